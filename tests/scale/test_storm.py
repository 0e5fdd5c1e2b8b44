"""Fifty tables, three workers, and something that breaks all the time."""

from __future__ import annotations

import json
import time

import pytest
from measure import Load, Times, Watch, keep, now_ms, parameter, percentile
from scenario import Scenario
from storm import Store, Storm, committer

from bed.catalogs import RestCatalog
from bed.connect import start_cluster
from bed.kafka import Broker
from bed.read import connect_duckdb

MINUTES = parameter("STORM_MINUTES", 15)
TABLES = parameter("STORM_TABLES", 50)
WORKERS = parameter("STORM_WORKERS", 3)
TASKS = parameter("STORM_TASKS", 6)
PARTITIONS = parameter("STORM_PARTITIONS", 12)
RECORDS_PER_SECOND = parameter("STORM_RATE", 12)
INTERVAL_MS = parameter("STORM_INTERVAL_MS", 5000)
SEED = parameter("STORM_SEED", 4)
# How long the storm's catch-up may take after the last fault.
CATCH_UP_SECONDS = 180
FAILOVER_SECONDS = 20


@pytest.fixture
def storage(weed, scratch, logs):
    """SeaweedFS's S3 store behind a relay: the sink goes through it, tests and catalog do not."""
    weed.make_bucket("storm")
    store = Store(int(weed.s3.rsplit(":", 1)[1]), scratch / "relay", logs).start()
    yield store
    store.stop()


@pytest.fixture
def catalog(weed, storage, scratch, logs):
    """Apache's reference catalog over that store, which vends keys and the relay as endpoint."""
    keys = {
        "s3.region": weed.REGION,
        "s3.access-key-id": weed.ACCESS_KEY,
        "s3.secret-access-key": weed.SECRET_KEY,
        "s3.path-style-access": "true",
    }
    started = RestCatalog(
        scratch / "rest-storm",
        logs,
        warehouse="s3://storm/wh",
        backend={"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **keys, "s3.endpoint": weed.s3},
        vend={**keys, "s3.endpoint": storage.uri},
    )
    try:
        yield started.start()
    finally:
        started.stop()


# Shows: 50 tables of one connector on three workers stay exactly once through 15 minutes in which
# something small breaks every 20 s and a worker or the broker dies every minute
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_fifty_tables_in_a_storm(make_worker, broker: Broker, weed, catalog, storage, name):
    tables = [f"{name}.t{number:02}" for number in range(TABLES)]
    workers = start_cluster(make_worker, WORKERS, heap="512m")
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
        consumer__override__session__timeout__ms="10000",
        consumer__override__heartbeat__interval__ms="3000",
    )
    load, watch = run.load, run.watch
    run.wait_begun()
    storm = Storm(workers, broker, catalog, storage, SEED)
    began = now_ms()
    storm.run(MINUTES * 60, lambda: committer(workers))
    storm.calm()
    over = now_ms()
    time.sleep(INTERVAL_MS / 1000)
    load.stop()
    stopped = time.monotonic()
    lag = run.wait_lag_zero(CATCH_UP_SECONDS * 2)
    states = workers[0].task_states(name)
    times = run.times()
    numbers = summary(storm, times, watch, load, began, over)
    numbers["seconds to lag 0 after the last fault"] = None if lag is None else round(
        lag + stopped - time.monotonic() + (now_ms() - over) / 1000, 1
    )
    numbers["tasks"] = states
    keep("storm", {**numbers, "events": storm.log()})
    run.end()
    counting = time.monotonic()
    reader = connect_duckdb(weed)
    # Each file is several small requests to the store: waiting for them is most of the time.
    reader.execute("SET threads = 8")
    wrong = run.wrong(reader)
    numbers["rows"] = load.acked * TABLES
    numbers["tables that are not exactly once"] = wrong
    numbers["seconds to count all tables in SQL"] = round(time.monotonic() - counting, 1)
    verified = run.verify(5)
    numbers["tables seen by frazil verify"] = len(verified)
    keep("storm", {**numbers, "events": storm.log()})
    assert not wrong, json.dumps(wrong)[:2000]
    for ended in verified:
        assert ended.returncode == 0, ended.stdout + ended.stderr
    assert states == ["RUNNING"] * TASKS, states
    assert lag is not None and numbers["seconds to lag 0 after the last fault"] <= CATCH_UP_SECONDS
    failovers = numbers["failovers"]
    if failovers:
        assert numbers["failover p95 s"] <= FAILOVER_SECONDS, failovers


def summary(storm: Storm, times: Times, watch: Watch, load: Load, began: int, over: int) -> dict:
    """Returns the numbers that docs/long-runs.md has."""
    failovers, last_tables = [], []
    for event in storm.events:
        if event.kind != "kill -9":
            continue
        later = times.next_after(event.began_ms)
        if not later:
            continue
        took = min(later.values())
        before = watch.hub_at(event.began_ms)
        after = watch.hub_at(event.began_ms + int(max(later.values()) * 1000) + 2000)
        # Without hub ids every death counts.
        if not before or before != after:
            failovers.append(round(took, 1))
            last_tables.append(round(max(later.values()), 1))
    gaps = times.largest_gap(began, over)
    kinds: dict[str, int] = {}
    for event in storm.events:
        kinds[event.kind] = kinds.get(event.kind, 0) + 1
    minutes = (over - began) / 60000
    return {
        "minutes": round(minutes, 1),
        "tables": TABLES,
        "workers": WORKERS,
        "tasks.max": TASKS,
        "records per second": RECORDS_PER_SECOND,
        "rows per second": RECORDS_PER_SECOND * TABLES,
        "commit interval ms": INTERVAL_MS,
        "records": load.acked,
        "snapshots": times.count(),
        "snapshots per table and interval": round(
            percentile(times.per_interval([(began, over)], INTERVAL_MS).values(), 0.5), 2
        ),
        "faults": kinds,
        "failovers": failovers,
        "failover p50 s": percentile(failovers, 0.5) if failovers else None,
        "failover p95 s": percentile(failovers, 0.95) if failovers else None,
        "last table after a failover, worst s": max(last_tables, default=None),
        "largest commit gap of a table, median s": percentile(gaps.values(), 0.5),
        "largest commit gap of a table, worst s": max(gaps.values()),
        "oldest record not in t00, worst s": round(max((age for _, age in watch.ages), default=0), 1),
        "catalog": storm.catalog.stats(),
    }
