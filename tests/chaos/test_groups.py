"""Zombies, rebalances, and a broker that goes away."""

from __future__ import annotations

import contextlib
import threading
from typing import Iterator

import pytest
from confluent_kafka import Consumer

from bed.connect import Worker
from bed.exactly import Flow, pause_for
from bed.process import wait_until

long = pytest.mark.long

COOPERATIVE = {
    "consumer__override__partition__assignment__strategy": (
        "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    )
}


def on_both(run: Flow, workers: list[Worker]) -> None:
    """Waits until each worker has a task."""
    ids = {worker.worker_id for worker in workers}
    wait_until(
        "a task on each worker", lambda: set(run.worker.task_workers(run.name).values()) == ids, 60
    )


# Promise (long): a worker that stands still for longer than its session, and then goes on with what it
# holds in memory, doubles nothing
# Injection: 10, 45
@pytest.mark.long
@pytest.mark.parametrize(
    "settings", [pytest.param({}, id="eager"), pytest.param(COOPERATIVE, id="cooperative")]
)
def test_a_worker_stands_still_and_comes_back(spread, cluster, settings):
    run = spread(iceberg__control__commit__interval_ms="4000", **settings)
    with run.running():
        on_both(run, cluster)
        run.feed(count=200, pause=0.3)
        run.wait_progress()
        pause_for(1.5)
        cluster[1].process.pause()
        try:
            before = run.sent
            # Its partitions go to the other task, which reads from the last durable offsets.
            pause_for(25)
            run.view.wait_rows_at_least(before, 60)
        finally:
            cluster[1].process.resume()
        run.wait_progress()
        run.check(timeout=150, lag=60)


# Promise (long): a task that is blocked for longer than `max.poll.interval.ms`, and a second one that has
# its partitions meanwhile, together write each row once
# Injection: 11, 12
@pytest.mark.long
def test_a_task_is_blocked_for_longer_than_it_may(flow, points):
    run = flow(consumer__override__max__poll__interval__ms="5000")
    with run.running():
        run.wait_lag()
        points.arm(session__after_append="wait:12000*1")
        run.send(400)
        points.wait_cut("session.after-append")
        points.disarm()
        run.send(400)
        # The other task has all partitions now, and the blocked one does not know.
        run.settle(60)
        run.send(400)
        run.check(timeout=120, lag=60)


# Promise (long): two connectors with one writer id on the same partitions end in a failure that names both
# and the remedy, and not in doubled rows
# Injection: 12
@pytest.mark.long
def test_two_connectors_write_as_one(flow, broker):
    run = flow(tasks=1, frazil__writer__id="the-same")
    second = f"{run.name}_second"
    with run.running():
        run.worker.create(second, run.config)
        try:
            run.feed(count=80, pause=0.3)

            def lost() -> str | None:
                for connector in (run.name, second):
                    if run.worker.failure(connector):
                        return connector
                return None

            loser = wait_until("one of them to fail", lost, 240, 1)
            trace = run.worker.failure(loser) or ""
            assert "WRITER_CONFLICT" in trace and "frazil.writer.id" in trace, trace
            other = second if loser == run.name else run.name
            for named in (f"connector `{loser}` task 0 on", f"made by connector `{other}` on"):
                assert named in trace, trace
            run.stop_feed()
            if loser == run.name:
                # The other goes on; its group has to have read all.
                run.settle(120)
            else:
                run.check(timeout=120, lag=60)
            run.check_table(run.view)
        finally:
            run.worker.delete(second)


@contextlib.contextmanager
def member(broker, group: str, topic: str, strategy: str) -> Iterator[None]:
    """Another member of a group, which takes its share of the topic and reads nothing of it."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "partition.assignment.strategy": strategy,
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
        }
    )
    done, owned = threading.Event(), threading.Event()

    def on_assign(_, partitions) -> None:
        if partitions:
            owned.set()
            consumer.pause(partitions)

    def work() -> None:
        consumer.subscribe([topic], on_assign=on_assign)
        while not done.is_set():
            consumer.poll(0.1)
        consumer.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        if not owned.wait(60):
            raise AssertionError("the other member got no partition")
        yield
    finally:
        done.set()
        thread.join(60)


# Promise (long): rebalances in the middle of commits, eager or cooperative, lose and double nothing
# Injection: 43, 44
# Complaint: 21
@pytest.mark.parametrize(
    ("strategy", "settings", "rounds"),
    [
        pytest.param("range", {}, 4, id="43-eager", marks=long),
        pytest.param("cooperative-sticky", COOPERATIVE, 2, id="44-cooperative", marks=long),
    ],
)
def test_partitions_come_and_go(flow, broker, strategy, settings, rounds):
    """One of four partitions, and more, go to a stranger and come back, with rows in open files."""
    run = flow(tasks=1, **settings)
    with run.running():
        run.feed(count=200, pause=0.2)
        for _ in range(rounds):
            run.wait_progress()
            with member(broker, f"connect-{run.name}", run.name, strategy):
                pause_for(2)
        run.check(timeout=120, lag=60)
        if strategy == "cooperative-sticky":
            # Rows of a partition that left are committed with those that stayed: nobody starts over.
            words = [line for line in run.worker.log().splitlines() if "starts over" in line]
            assert not [line for line in words if run.name in line], words[-1]


# Injection: 46
@pytest.mark.long
def test_the_broker_goes_away(flow, broker):
    with flow().running() as run:
        for away in (0, 30):
            run.send(400)
            broker.process.kill()
            pause_for(away)
            broker.start()
            run.send(400)
        run.check(timeout=180, lag=90)


# Injection: 46
@pytest.mark.long
def test_the_broker_restarts_under_load(flow, broker):
    with flow().running() as run:
        run.send(40000)
        run.wait_progress()
        broker.stop()
        broker.start()
        run.check(timeout=180, lag=90)
