"""What a death costs on a cluster with the default settings of Connect and of its consumers."""

from __future__ import annotations

import time

import pytest
from measure import keep, now_ms, parameter
from scenario import Scenario
from storm import committer

from bed.connect import start_cluster
from bed.process import wait_until
from bed.read import connect_duckdb

PARTITIONS, TASKS, INTERVAL_MS, RECORDS_PER_SECOND = 4, 4, 5000, 40
SETTLE_SECONDS = parameter("DEFAULTS_SECONDS", 120)


# Shows: on worker defaults a worker that dies for good loses and doubles nothing; its partitions
# go on when its consumers' session ends after 45 s
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_worker_dies_on_default_settings(make_worker, broker, rest, name):
    table = f"{name}.t"
    defaults = {"scheduled.rebalance.max.delay.ms": "300000"}
    workers = start_cluster(make_worker, 2, heap="384m", settings=defaults)
    run = Scenario.begin(
        workers,
        broker,
        rest,
        name,
        [table],
        tasks=TASKS,
        partitions=PARTITIONS,
        per_second=RECORDS_PER_SECOND,
        interval_ms=INTERVAL_MS,
    )
    load, watch = run.load, run.watch
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
    lag = run.wait_lag_zero(180)
    times = run.times()
    run.end(through=other)
    # Rows are old when their interval is long over; the partitions flow when none is old any more.
    old = [at for at, age in watch.ages if killed < at < back and age >= 15]
    numbers = {
        "the committer died": leader is not None,
        "seconds from the death to the next commit": times.next_after(killed).get(table),
        "seconds from the death until all partitions flow": (old[-1] - killed) / 1000 if old else None,
        "oldest record not in the table, worst s": max(age for _, age in watch.ages),
        "seconds from its return to lag 0": lag,
        "records": load.acked,
    }
    wrong = run.wrong(connect_duckdb())
    keep("defaults", numbers)
    assert not wrong, wrong
    assert lag is not None
    # 45 s of session, a rebalance, a round.
    assert old and (old[-1] - killed) / 1000 < 75, numbers
