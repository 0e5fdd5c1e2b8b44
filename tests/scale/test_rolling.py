"""Six workers are restarted one after another under load, with each of the two transports."""

from __future__ import annotations

import json
import time

import pytest
from measure import Times, Watch, keep, now_ms, parameter, percentile
from scenario import Scenario

from bed.catalogs import RestCatalog
from bed.connect import start_cluster
from bed.read import connect_duckdb

WORKERS = parameter("ROLLING_WORKERS", 6)
TASKS = parameter("ROLLING_TASKS", 24)
TABLES = parameter("ROLLING_TABLES", 20)
PARTITIONS = parameter("ROLLING_PARTITIONS", 24)
RECORDS_PER_SECOND = parameter("ROLLING_RATE", 24)
INTERVAL_MS = parameter("ROLLING_INTERVAL_MS", 5000)
# How long the cluster is left alone before the first restart and after each.
QUIET_SECONDS = parameter("ROLLING_QUIET_SECONDS", 20)
# A restart and what follows from it: Connect gives the tasks away after 5 s, consumers regroup.
FAILOVER_MS = 20_000
SNAPSHOTS_PER_INTERVAL = 1.1
FRESHNESS_SECONDS = 15


@pytest.fixture
def catalog(scratch, logs, name):
    """A reference catalog of its own, so that its counters are those of this run."""
    started = RestCatalog(scratch / f"rest-{name}", logs)
    try:
        yield started.start()
    finally:
        started.stop()


# Shows: a rolling restart of six workers under load leaves one snapshot per table and interval,
# delays commits by at most 15 s per restart, and loses and doubles nothing
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("coordination", ["topic", "local"])
def test_a_rolling_restart(make_worker, broker, catalog, name, coordination):
    tables = [f"{name}.t{number:02}" for number in range(TABLES)]
    workers = start_cluster(make_worker, WORKERS, heap="224m")
    run = Scenario.begin(
        workers,
        broker,
        catalog,
        name,
        tables,
        tasks=TASKS,
        partitions=PARTITIONS,
        per_second=RECORDS_PER_SECOND,
        interval_ms=INTERVAL_MS,
        seconds=180,
        frazil__coordination=coordination,
    )
    run.wait_begun()
    time.sleep(FAILOVER_MS / 1000)
    stats, began = catalog.stats(), now_ms()
    time.sleep(QUIET_SECONDS)
    restarts: list[tuple[int, int]] = []
    for worker in workers:
        start = now_ms()
        worker.stop()
        worker.start()
        others = [other for other in workers if other is not worker]
        others[0].wait_running(name, TASKS, 120)
        restarts.append((start, now_ms()))
        print(f"rolling: restart took {restarts[-1][1] - start} ms", flush=True)
        time.sleep(FAILOVER_MS / 1000 + QUIET_SECONDS)
    over = now_ms()
    used = {key: value - stats[key] for key, value in catalog.stats().items()}
    run.load.stop()
    lag = run.wait_lag_zero(120)
    times = run.times()
    failures = workers[0].failure(name)
    states = workers[0].task_states(name)
    run.end()
    numbers = summary(coordination, times, run.watch, restarts, began, over, used)
    numbers["records"], numbers["seconds to lag 0"] = run.load.acked, lag
    numbers["tasks running at the end"] = states.count("RUNNING")
    wrong = run.wrong(connect_duckdb())
    numbers["tables that are not exactly once"] = wrong
    keep(f"rolling-{coordination}", numbers)
    assert not wrong, json.dumps(wrong)[:2000]
    for ended in run.verify(4):
        assert ended.returncode == 0, ended.stdout + ended.stderr
    assert lag is not None and failures is None, failures
    assert states == ["RUNNING"] * TASKS
    if coordination == "topic":
        assert numbers["snapshots per table and interval, worst"] <= SNAPSHOTS_PER_INTERVAL, numbers
        assert max(numbers["largest commit gap per restart s"]) <= FRESHNESS_SECONDS, numbers


def summary(
    coordination: str,
    times: Times,
    watch: Watch,
    restarts: list[tuple[int, int]],
    began: int,
    over: int,
    used: dict[str, int],
) -> dict:
    """Returns the numbers that docs/long-runs.md has."""
    marks = [began, *(end + FAILOVER_MS for _, end in restarts)]
    quiet = [(start, end) for start, end in zip(marks, [*(s for s, _ in restarts), over]) if end > start]
    per_interval = times.per_interval(quiet, INTERVAL_MS)
    gaps = [max(times.largest_gap(s, e + FAILOVER_MS).values()) for s, e in restarts]
    ages = [
        max((age for at, age in watch.ages if s <= at <= e + FAILOVER_MS), default=0)
        for s, e in restarts
    ]
    quiet_ages = [age for at, age in watch.ages if any(s <= at < e for s, e in quiet)]
    snapshots = sum(1 for found in times.tables.values() for at in found if began <= at < over)
    intervals = (over - began) / INTERVAL_MS
    return {
        "coordination": coordination,
        "workers": WORKERS,
        "tasks": TASKS,
        "tables": TABLES,
        "records per second": RECORDS_PER_SECOND,
        "rows per second": RECORDS_PER_SECOND * TABLES,
        "commit interval ms": INTERVAL_MS,
        "minutes": round((over - began) / 60000, 1),
        "restart seconds": [round((e - s) / 1000, 1) for s, e in restarts],
        "quiet seconds": round(sum(e - s for s, e in quiet) / 1000),
        "snapshots per table and interval, median": round(percentile(per_interval.values(), 0.5), 2),
        "snapshots per table and interval, worst": round(max(per_interval.values()), 2),
        "largest commit gap per restart s": [round(gap, 1) for gap in gaps],
        "oldest record not in t00 per restart s": [round(age, 1) for age in ages],
        "oldest record not in t00, quiet, p95 s": round(percentile(quiet_ages, 0.95), 1),
        "snapshots": snapshots,
        "snapshots per table and interval, whole run": round(snapshots / intervals / TABLES, 2),
        "commit requests that made no snapshot": used["commits"] - snapshots,
        "catalog requests": used["requests"],
        "catalog requests per table and interval": round(used["requests"] / intervals / TABLES, 1),
        "table loads": used["loads"],
    }
