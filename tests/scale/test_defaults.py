"""What a death costs on a cluster with the default settings of Connect and of its consumers."""

from __future__ import annotations

import time

import pytest
from measure import (
    Load,
    Times,
    Watch,
    exactly_once,
    keep,
    now_ms,
    parameter,
    wait_lag_zero,
)
from storm import committer

from bed.connect import start_cluster
from bed.process import wait_until
from bed.read import connect_duckdb
from bed.sink import sink

PARTITIONS, TASKS, INTERVAL_MS = 4, 4, 5000
SETTLE_SECONDS = parameter("DEFAULTS_SECONDS", 120)


# Shows: on worker defaults a worker that dies for good loses and doubles nothing; its partitions
# go on when its consumers' session ends after 45 s
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_worker_dies_on_default_settings(make_worker, broker, rest, name):
    table = f"{name}.t"
    defaults = {"scheduled.rebalance.max.delay.ms": "300000"}
    workers = start_cluster(make_worker, 2, heap="384m", settings=defaults)
    config = sink(
        rest,
        name,
        table,
        tasks__max=str(TASKS),
        iceberg__tables__metadata_columns="_topic,_partition,_offset",
        iceberg__control__commit__interval_ms=str(INTERVAL_MS),
    )
    broker.create_topic(name, PARTITIONS)
    load = Load(broker, name, PARTITIONS, 40).start()
    workers[0].create(name, config)
    workers[0].wait_running(name, TASKS, 120)
    watch = Watch(rest, table, load).start()
    wait_until("every partition in the table", lambda: watch.flows(PARTITIONS), 120, 0.5)
    time.sleep(2 * INTERVAL_MS / 1000)
    leader = committer(workers)
    victim = workers[leader if leader is not None else 1]
    other = workers[1 - workers.index(victim)]
    killed = now_ms()
    victim.kill()
    time.sleep(SETTLE_SECONDS)
    back = now_ms()
    victim.start()
    other.wait_running(name, TASKS, 120)
    time.sleep(4 * INTERVAL_MS / 1000)
    load.stop()
    lag = wait_lag_zero(broker, f"connect-{name}", load, 180)
    watch.stop()
    times = Times.read(rest, [table])
    other.delete(name)
    for worker in workers:
        worker.stop()
    calm = [at for at, age in watch.ages if killed + 10_000 < at < back and age < 15]
    numbers = {
        "the committer died": leader is not None,
        "seconds from the death to the next commit": times.next_after(killed).get(table),
        "seconds from the death until all partitions flow": (calm[0] - killed) / 1000 if calm else None,
        "oldest record not in the table, worst s": max(age for _, age in watch.ages),
        "seconds from its return to lag 0": lag,
        "records": load.acked,
    }
    wrong = exactly_once(connect_duckdb(), rest, [table], load)
    keep("defaults", numbers)
    assert not wrong, wrong
    assert lag is not None
    # 45 s of session, a rebalance, a round.
    assert calm and (calm[0] - killed) / 1000 < 75, numbers
