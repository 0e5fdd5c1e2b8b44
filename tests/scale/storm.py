"""The faults of the storm: when which comes, and how each is done."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Callable

from measure import now_ms

from bed.catalogs import RestCatalog
from bed.connect import Worker
from bed.kafka import Broker
from bed.process import Process, free_port, listens

LIGHT_SECONDS, HEAVY_SECONDS = 20, 60
CONTROL = "frazil-control"


# Kafka's own words when a consumer of the committer's group is given the control partition.
ELECTED = re.compile(r"^(\d\d:\d\d:\d\d,\d{3}) .*-frazil-committer\].*newly assigned partitions: \[[^\]]", re.M)


def committer(workers: list[Worker]) -> int | None:
    """Returns the worker that was given the control partition last, by the workers' logs."""
    given = {}
    for number, worker in enumerate(workers):
        moments = ELECTED.findall(worker.log())
        if moments:
            given[moments[-1]] = number
    return given[max(given)] if given else None


class Store:
    """The relay in front of a store, which can be turned bad for a while."""

    def __init__(self, target: int, folder: Path, logs: Path) -> None:
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._folder, self._target = folder, target
        self.process = Process("relay", logs / "relay.log")

    def start(self) -> Store:
        self._folder.mkdir()
        script = Path(__file__).with_name("relay.py")
        self.process.start([sys.executable, script, str(self._target), str(self.port), self._folder])
        self.process.wait_ready(lambda: listens(self.port))
        return self

    def stop(self) -> None:
        self.process.stop()

    def fail(self, seconds: float) -> None:
        (self._folder / "bad").touch()
        time.sleep(seconds)
        (self._folder / "bad").unlink()


@dataclass
class Event:
    """One fault: when it began and ended, what it was, and whom it met."""

    began_ms: int
    kind: str
    detail: str = ""
    ended_ms: int = 0


class Storm:
    """Makes faults from one seed: a light one each 20 s, a death each minute."""

    def __init__(
        self, workers: list[Worker], broker: Broker, catalog: RestCatalog, store: Store, seed: int
    ) -> None:
        self.workers, self.broker, self.catalog, self.store = workers, broker, catalog, store
        self.events: list[Event] = []
        self._random = random.Random(seed)
        self._away: set[int] = set()
        self._timers: list[threading.Thread] = []
        self._light = 0
        self._heavy = 0

    def run(self, seconds: float, committer: Callable[[], int | None]) -> None:
        """Runs for `seconds`. `committer` tells which worker commits, as far as that is known."""
        began = time.monotonic()
        light, heavy = 0.0, HEAVY_SECONDS / 6
        while (passed := time.monotonic() - began) < seconds:
            if passed >= heavy:
                heavy += HEAVY_SECONDS
                self._do(self._next_heavy(committer))
            if passed >= light:
                light += LIGHT_SECONDS
                self._do(self._next_light())
            time.sleep(0.2)

    def calm(self) -> None:
        """Waits until every fault has ended: no process is stopped or dead."""
        for timer in self._timers:
            timer.join(180)
        self.catalog.fault("none", 0, operation="none")
        for worker in self.workers:
            worker.wait_ready()

    def _do(self, fault: tuple[str, Callable[[Event], None]]) -> None:
        kind, act = fault
        event = Event(now_ms(), kind)
        self.events.append(event)

        def work() -> None:
            act(event)
            event.ended_ms = now_ms()
            print(f"storm: {kind} {event.detail} {event.ended_ms - event.began_ms} ms", flush=True)

        self._timers.append(threading.Thread(target=work, daemon=True))
        self._timers[-1].start()

    # In turn, so that a short run meets each kind as well.
    def _next_light(self) -> tuple[str, Callable[[Event], None]]:
        light = [
            ("catalog 503 before", self._catalog("before", 8)),
            ("stopped worker", self._pause),
            ("catalog 504 after", self._catalog("after", 5)),
            ("store 503", self._store),
            ("catalog 409", self._catalog("conflict", 12)),
            ("control topic deleted", self._control),
            ("catalog slow", self._catalog("delay", 6, 3000)),
            ("any request 503", self._catalog("before", 20, operation="any")),
        ]
        self._light += 1
        return light[(self._light - 1) % len(light)]

    def _next_heavy(self, committer) -> tuple[str, Callable[[Event], None]]:
        self._heavy += 1
        if self._heavy % 4 == 0:
            return "broker restart", self._restart_broker
        return "kill -9", lambda event: self._kill(event, committer)

    def _catalog(self, mode: str, count: int, delay_ms: int = 0, operation: str = "commit"):
        def act(event: Event) -> None:
            before = self.catalog.stats()["faults"]
            self.catalog.fault(mode, count, operation=operation, delay_ms=delay_ms)
            deadline = time.monotonic() + LIGHT_SECONDS - 2
            while (met := self.catalog.stats()["faults"] - before) < count:
                if time.monotonic() > deadline:
                    self.catalog.fault("none", 0, operation="none")
                    break
                time.sleep(0.2)
            event.detail = f"{met} requests"

        return act

    def _store(self, event: Event) -> None:
        self.store.fail(self._random.uniform(3, 8))

    def _control(self, event: Event) -> None:
        if CONTROL in self.broker.admin.list_topics(timeout=10).topics:
            self.broker.delete_topic(CONTROL)
        else:
            event.detail = "there is none"

    def _up(self) -> list[int]:
        return [n for n in range(len(self.workers)) if n not in self._away]

    def _pause(self, event: Event) -> None:
        victim = self._random.choice(self._up() or [0])
        if victim in self._away:
            event.detail = "nobody is up"
            return
        seconds = self._random.uniform(5, 15)
        self._away.add(victim)
        pid = self.workers[victim].process.pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
        self._away.discard(victim)
        event.detail = f"worker {victim} for {seconds:.0f} s"

    def _kill(self, event: Event, committer) -> None:
        known = committer()
        up = self._up()
        victim = known if known in up else self._random.choice(up or [0])
        self._away.add(victim)
        event.detail = f"worker {victim}{', the committer' if victim == known else ''}"
        self.workers[victim].kill()
        event.began_ms = now_ms()  # it is dead: whoever commits from now on is another
        time.sleep(self._random.uniform(1, 8))
        self.workers[victim].launch().wait_ready()
        self._away.discard(victim)

    def _restart_broker(self, event: Event) -> None:
        self.broker.stop()
        self.broker.start()

    def log(self) -> list[dict]:
        return [asdict(event) for event in self.events]
