"""One connector, 500 tables: a burst of records for all of them at once."""

from __future__ import annotations

import threading
import time

import pytest
from measure import Resident, Times, exactly_once, keep, now_ms, parameter, percentile, state_of

from bed.process import wait_until
from bed.proxy import Proxied
from bed.read import connect_duckdb
from bed.sink import running, sink, verify

TABLES = parameter("MANY_TABLES", 500)
PARTITIONS, TASKS, INTERVAL_MS, BURST = 4, 2, 10_000, 400
# The plugin's own limit (`COMMITS_AT_ONCE`).
AT_ONCE = 64


class Crowd:
    """Counts how many commits are with the catalog at the same moment."""

    def __init__(self) -> None:
        self.now = self.most = self.all = 0
        self._lock = threading.Lock()

    def __call__(self, asked, forward):
        with self._lock:
            self.all += 1
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            return forward(asked)
        finally:
            with self._lock:
                self.now -= 1


class Sent:
    """What `exactly_once` asks of a load: where the records are."""

    def __init__(self, topic: str) -> None:
        self.topic, self.partitions, self.ends = topic, PARTITIONS, [0] * PARTITIONS

    def burst(self, broker, count: int) -> int:
        """Sends as many records at once, and returns when the last one was sent."""
        first = sum(self.ends)
        values = ({"id": number, "note": f"order {number % 97}"} for number in range(first, first + count))
        broker.produce_json(self.topic, values, lambda index: index % PARTITIONS)
        self.ends = [end + count // PARTITIONS for end in self.ends]
        return now_ms()


def behind(catalog, tables: list[str], ends: list[int]) -> list[str]:
    """Returns the tables whose offsets are not at `ends`."""
    late = []
    for table in tables:
        state = state_of(catalog.metadata(*table.rsplit(".", 1)) or {})
        if not any(entry["o"] == ends for entry in state.get("t", {}).values()):
            late.append(table)
    return late


def wait_all(catalog, tables: list[str], ends: list[int], timeout: float) -> None:
    left = list(tables)

    def done() -> bool:
        nonlocal left
        left = behind(catalog, left, ends)
        return not left

    wait_until(f"{len(tables)} tables", done, timeout, 0.5)


# Promise (long): 500 tables of one connector take a burst at the same moment: all of it is visible within
# an interval and 30 s, exactly once, with at most 64 commits at a time and bounded memory
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_500_tables_take_a_burst(make_worker, broker, rest, name):
    tables = [f"{name}.t{number:03}" for number in range(TABLES)]
    catalog = Proxied(rest, rest.port)
    crowd = Crowd()
    worker = make_worker(heap="512m").start()
    config = sink(
        catalog,
        name,
        ",".join(tables),
        tasks__max=str(TASKS),
        iceberg__tables__metadata_columns="_topic,_partition,_offset",
        iceberg__control__commit__interval_ms=str(INTERVAL_MS),
    )
    broker.create_topic(name, PARTITIONS)
    sent = Sent(name)
    with running(worker, name, config, TASKS):
        began = time.monotonic()
        sent.burst(broker, PARTITIONS)
        wait_all(rest, tables, sent.ends, 600)
        made = time.monotonic() - began
        memory = Resident(worker.process.pid)
        before, stats = memory.now(), rest.stats()
        catalog.proxy.on_commit(crowd)
        visible, commits = [], []
        for _ in range(3):
            at = sent.burst(broker, BURST)
            wait_all(rest, tables, sent.ends, 180)
            times = Times.read(rest, tables).tables
            visible.append([(moments[-1] - at) / 1000 for moments in times.values()])
            commits.append(sum(1 for moments in times.values() for moment in moments if moment > at))
        used = {key: value - stats[key] for key, value in rest.stats().items()}
        rss = memory.stop()
        broker.wait_group_offsets(
            f"connect-{name}", {(name, partition): end for partition, end in enumerate(sent.ends)}, 60
        )
        assert worker.task_states(name) == ["RUNNING"] * TASKS
    catalog.proxy.stop()
    ends = {(name, partition): end for partition, end in enumerate(sent.ends)}
    numbers = {
        "tables": TABLES,
        "rows per burst": BURST * TABLES,
        "tables made and first commit s": round(made, 1),
        "visible after s, median table of each burst": [round(percentile(v, 0.5), 1) for v in visible],
        "visible after s, last table of each burst": [round(max(v), 1) for v in visible],
        "snapshots of each burst": commits,
        "commits at once": crowd.most,
        "commit requests": crowd.all,
        "loads by the plugin and by this test": used["loads"],
        "rss MB before, most": [before, rss],
        "tables that are wrong": exactly_once(connect_duckdb(), rest, tables, sent),
        "verify": [verify(rest, table, ends).returncode for table in tables[::100]],
    }
    keep("many-tables", numbers)
    assert not numbers["tables that are wrong"] and not any(numbers["verify"]), numbers
    assert max(numbers["visible after s, last table of each burst"]) <= INTERVAL_MS / 1000 + 30, numbers
    # A burst may fall on the end of an interval, and be two commits of a table.
    assert crowd.all <= 6 * TABLES and 1 < crowd.most <= AT_ONCE, numbers
    assert rss - before < 300, numbers
