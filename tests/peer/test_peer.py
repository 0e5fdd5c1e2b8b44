"""Six scenarios in which Apache Iceberg's sink is known to lose, double or stall, with both sinks.

Only with `--peer`. Frazil has to be exactly once; what the peer does is measured and written down
(`tests/peer/table.py` makes the table of docs/peer-comparison.md of it), not asserted.
"""

from __future__ import annotations

import time
from typing import Callable, Iterator

import pytest
from pyiceberg.catalog import load_catalog
from sides import APACHE, FRAZIL, WANTED, Outcome, Side

from bed.catalogs import RestCatalog
from bed.connect import Worker
from bed.peer import lay_peer
from bed.process import wait_until
from bed.proxy import Hold, Proxied

pytestmark = pytest.mark.peer

BATCH = 500


@pytest.fixture(scope="session")
def catalogs(scratch, logs) -> Iterator[dict[str, RestCatalog]]:
    """A catalog for each sink, so that a fault meets the one it is meant for."""
    started = {}
    for sink in (FRAZIL, APACHE):
        short = sink.split()[0].lower()
        if short in WANTED:
            started[sink] = RestCatalog(scratch / f"rest-{short}", logs)
    try:
        for catalog in started.values():
            catalog.start()
        yield started
    finally:
        for catalog in started.values():
            catalog.stop()


@pytest.fixture(scope="session")
def make_both(make_worker) -> Callable[..., Worker]:
    """Makes workers that have both plugins."""

    def make(**settings: str) -> Worker:
        worker = make_worker(
            heap="1500m",
            settings={key.replace("_", "."): value for key, value in settings.items()},
        )
        lay_peer(worker.plugins)
        return worker.start()

    return make


@pytest.fixture(scope="session")
def busy_worker(make_both) -> Worker:
    """A worker that flushes offsets each 5 s. The peer looks at its control topic only when Connect
    calls it, so this spares it the stall of `test_idle_tail` in all other scenarios."""
    return make_both(offset_flush_interval_ms="5000")


@pytest.fixture
def sides(busy_worker, catalogs, broker, name) -> Iterator[tuple[Side, Side]]:
    made = tuple(
        Side(sink, catalog, broker, busy_worker, name) for sink, catalog in catalogs.items()
    )
    yield made
    for side in made:
        side.delete()


def first_rows(sides, **how: int) -> None:
    """Starts both sinks and waits until the first batch of each is in its table."""
    for side in sides:
        side.start(**how)
        side.send(BATCH)
    for side in sides:
        assert side.settle(BATCH, 180) is not None, f"{side.sink} never started: {side.state()}"


def measure(sides, limit: float) -> None:
    """Notes how long after the last record was sent all of them are in the table."""
    waiting, start = list(sides), time.monotonic()
    for side in sides:
        side.outcome.stall = None
        side.outcome.waited = limit
    while waiting and time.monotonic() - start < limit:
        for side in list(waiting):
            if side.counts()[1] >= side.sent and side.on_branch():
                side.outcome.stall = time.monotonic() - side.sent_at
                waiting.remove(side)
        time.sleep(0.5)
    for side in waiting:
        missing = side.sent - side.counts()[1]
        side.note(f"{missing} missing after {limit:.0f} s, {side.state()}")


def conclude(sides) -> None:
    """Restarts what does not go on by itself, counts, and asserts that Frazil is exactly once."""
    for side in sides:
        if side.outcome.stall is None:
            side.restart()
    for side in sides:
        if side.outcome.stall is None:
            seconds = side.settle(side.sent, 60)
            side.note("not even then" if seconds is None else f"complete {seconds:.0f} s after it")
    outcomes = {side.sink: side.end() for side in sides}
    ours = outcomes.get(FRAZIL)
    if ours is None:
        return
    assert (ours.lost, ours.doubled) == (0, 0), ours
    assert ours.stall is not None, f"somebody had to help: {ours}"


def table_of(side: Side):
    """Opens a table as another engine does."""
    return load_catalog("foreign", type="rest", uri=side.catalog.uri).load_table(side.table)


# Shows: rows of a burst are in the table within the commit interval and some seconds though one
# task has nothing to do and the worker has its default settings
def test_idle_tail(make_both, catalogs, broker, name):
    worker = make_both()
    both = [Side(sink, catalog, broker, worker, name) for sink, catalog in catalogs.items()]
    first_rows(both, partitions=2, tasks=2)
    stalls: dict[str, list[float | None]] = {side.sink: [] for side in both}
    for _ in range(2):
        for side in both:
            side.send(BATCH)  # to partition 0 alone
        measure(both, 240)
        for side in both:
            stalls[side.sink].append(side.outcome.stall)
    for side in both:
        seen = stalls[side.sink]
        side.outcome.stall = None if None in seen else max(seen)  # type: ignore[type-var]
        side.note("bursts visible after " + ", ".join("never" if s is None else f"{s:.0f} s" for s in seen))
    conclude(both)
    for side in both:
        if side.sink == FRAZIL:
            assert side.outcome.stall < 15, side.outcome
    worker.stop()


def test_commit_branch_switch(sides):
    first_rows(sides)
    for side in sides:
        side.branch = "audit"
        side.worker.configure(
            side.connector, side.config() | {"iceberg.tables.default-commit-branch": "audit"}
        )
    time.sleep(15)  # the old tasks are gone by then: no record of the second batch meets them
    for side in sides:
        wait_until("tasks", lambda: "RUNNING" in side.worker.task_states(side.connector), 60)
        side.send(BATCH)
    measure(sides, 60)
    conclude(sides)


def test_table_replaced(sides):
    for side in sides:
        side.interval_ms = 20_000
    first_rows(sides)
    for side in sides:
        schema = table_of(side).schema()
        namespace, table = side.table.rsplit(".", 1)
        # This is written now, and is to be committed when there is a new table: once more, if a
        # commit came first. What was committed goes with the old table, as whoever dropped it wanted.
        for _ in range(5):
            gone = side.counts()[1]
            side.send(BATCH)
            time.sleep(3)
            if side.counts()[1] == gone:
                break
            assert side.settle(side.produced, 60) is not None
        else:
            pytest.fail("each commit came too early for the scenario")
        side.sent -= gone
        status, _ = side.catalog.call("DELETE", f"/v1/namespaces/{namespace}/tables/{table}")
        assert status in (200, 204)
        load_catalog("foreign", type="rest", uri=side.catalog.uri).create_table(side.table, schema)
    time.sleep(30)
    for side in sides:
        side.send(BATCH)
    measure(sides, 90)
    conclude(sides)


def test_control_topic_recreated(sides):
    first_rows(sides)
    for side in sides:
        for _ in range(3):
            side.send(100)
            assert side.settle(side.sent, 60) is not None
        side.recreate_control()
    for side in sides:
        side.send(BATCH)
    measure(sides, 60)
    conclude(sides)


def test_unknown_commit(sides):
    first_rows(sides)
    for side in sides:
        before = side.catalog.stats()["faults"]
        side.catalog.fault("after", 1)
        side.send(BATCH)
        wait_until("the fault", lambda: side.catalog.stats()["faults"] > before, 60)
        side.send(BATCH)
    measure(sides, 60)
    conclude(sides)


def test_busy_table(sides):
    first_rows(sides)
    for side in sides:
        # As when another writer commits all the time: nine requests in a row come too late.
        side.catalog.fault("conflict", 9)
        side.send(BATCH)
    time.sleep(30)
    for side in sides:
        side.send(BATCH)
    measure(sides, 60)
    conclude(sides)


def test_expired_carrier(make_both, catalogs, broker, name):
    both = []
    for sink, catalog in catalogs.items():
        worker = make_both(offset_flush_interval_ms="5000")
        proxied = Proxied(catalog, catalog.port)
        side = Side(sink, catalog, broker, worker, name, through=proxied)
        both.append(side)
        first_rows([side])
        # A commit is applied and the worker dies before it hears of it.
        answer = Hold(before=False)
        proxied.proxy.on_commit(answer, count=1)
        side.send(BATCH)
        answer.wait_held()
        assert side.settle(side.sent, 10) is not None
        worker.kill()
        answer.release()
        # Then table maintenance comes by: another engine rewrites all rows and expires every
        # snapshot but the newest.
        table = table_of(side)
        table.overwrite(table.scan().to_arrow())
        head = table.current_snapshot().snapshot_id
        old = [s.snapshot_id for s in table.snapshots() if s.snapshot_id != head]
        table.maintenance.expire_snapshots().by_ids(old).commit()
        side.note(f"{len(old)} snapshots expired")
        worker.start()
        side.send(BATCH)
        measure([side], 120)
        # What comes a second time comes with a later commit.
        time.sleep(15)
        side.send(100)
        assert side.settle(side.sent, 60) is not None
    conclude(both)
    for side in both:
        side.worker.stop()


# Shows: Apache's sink and Frazil in one Connect cluster do not disturb each other
def test_both_in_one_cluster(sides):
    first_rows(sides, partitions=2, tasks=2)
    for _ in range(4):
        for side in sides:
            side.send(BATCH, partitions=2)
        time.sleep(2)
    measure(sides, 120)
    for side in sides:
        outcome: Outcome = side.end()
        assert (outcome.lost, outcome.doubled) == (0, 0), outcome
