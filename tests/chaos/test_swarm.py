"""Faults at random, one after the other, while rows flow: `./x chaos --minutes M`."""

from __future__ import annotations

import os
import random
import time
from typing import Callable

import pytest

from bed import foreign
from bed.exactly import Flow, pause_for
from bed.proxy import Proxy, after, delay, refuse, replay, reset

POINTS = (
    "session.after-append",
    "seal.after-data-files",
    "seal.after-manifest",
    "seal.after-submit",
    "catalog.before-commit",
    "catalog.after-commit",
    "session.after-result",
)


class Swarm:
    """All faults that need nothing but the worker and the proxy."""

    def __init__(self, run: Flow, proxy: Proxy, points, dice: random.Random) -> None:
        self.run, self.proxy, self.points, self.dice = run, proxy, points, dice
        self.done: dict[str, int] = {}

    def one(self) -> None:
        """Lets one fault happen, and waits until it is over."""
        light: list[Callable[[], None]] = [self.catalog, self.silence, self.stranger, self.failing]
        heavy: list[Callable[[], None]] = [self.kill, self.cut]
        fault = self.dice.choice(light if self.dice.random() < 0.8 else heavy)
        self.done[fault.__name__] = self.done.get(fault.__name__, 0) + 1
        fault()

    def catalog(self) -> None:
        status = self.dice.choice((409, 429, 500, 502, 503, 504))
        action = self.dice.choice(
            (refuse(status), after(status), reset(True), reset(False), replay(), delay(3))
        )
        self.proxy.on_commit(action, share=0.5, count=self.dice.randint(1, 6))
        pause_for(self.dice.uniform(2, 6))
        self.proxy.clear()

    def silence(self) -> None:
        self.run.worker.process.pause()
        pause_for(self.dice.uniform(1, 9))
        self.run.worker.process.resume()

    def stranger(self) -> None:
        table = self.dice.choice(self.run.tables)
        for _ in range(self.dice.randint(1, 10)):
            foreign.try_commit(self.run.reads, table, self.dice.choice(("main", "audit")))

    def failing(self) -> None:
        point = self.dice.choice(POINTS)
        self.points.arm(**{point.replace(".", "__").replace("-", "_"): "fail*2"})
        pause_for(self.dice.uniform(2, 5))
        self.points.disarm()

    def kill(self) -> None:
        self.run.kill()
        self.run.revive()

    def cut(self) -> None:
        point = self.dice.choice(POINTS)
        self.points.arm(**{point.replace(".", "__").replace("-", "_"): "kill"})
        self.run.worker.process.wait_ended(60)
        self.points.disarm()
        self.run.revive()


# Promise (long): faults at random, one after the other, lose and double nothing
@pytest.mark.long
@pytest.mark.timeout(0)
def test_a_swarm_of_faults(flow, proxy, points):
    minutes = float(os.environ.get("FRAZIL_CHAOS_MINUTES", "2"))
    seed = int(os.environ.get("FRAZIL_CHAOS_SEED", str(time.time_ns() % 1_000_000)))
    print(f"FRAZIL_CHAOS_SEED={seed}")
    run = flow(tables=3)
    with run.running():
        run.feed(count=200, pause=0.5)
        swarm = Swarm(run, proxy, points, random.Random(seed))
        end = time.monotonic() + minutes * 60
        while time.monotonic() < end:
            swarm.one()
            pause_for(1)
        print(f"faults: {swarm.done}, records: {run.sent}")
        run.check(timeout=180, lag=120)
