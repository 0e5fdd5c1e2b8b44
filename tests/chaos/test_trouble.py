"""Panics, records that do not fit, queues that do not answer, memory that is short."""

from __future__ import annotations

import json

import pytest

from bed import data
from bed.exactly import Flow, pause_for
from bed.process import wait_until
from bed.proxy import Gate

long = pytest.mark.long

DEAD = {
    "errors__tolerance": "all",
    "errors__deadletterqueue__topic__replication__factor": "1",
    "errors__deadletterqueue__context__headers__enable": "true",
}


# Promise: a panic in native code is an exception of one task: the worker lives, other connectors go
# on, and a restart by REST mends it
# Injection: 32
@pytest.mark.parametrize(
    "point",
    [
        pytest.param("session.after-append", id="32-in-put"),
        pytest.param("seal.after-data-files", id="32-in-a-seal", marks=long),
        pytest.param("catalog.before-commit", id="32-in-a-commit", marks=long),
        pytest.param("upload.before-part", id="32-in-an-upload", marks=long),
    ],
)
def test_native_code_panics(flow, cut_worker, broker, proxied, points, name, point):
    other = Flow(cut_worker, broker, proxied, f"{name}_b", reads=proxied.direct, tasks=1)
    big = point.startswith("upload")
    run = flow(tasks=1, iceberg__control__commit__interval_ms="60000" if big else "1000")
    with other.running(), run.running():
        run.wait_lag()
        other.wait_lag()
        pid = cut_worker.process.pid
        points.arm(**{point.replace(".", "__").replace("-", "_"): "panic*1"})
        if big:
            run.send_noise(4000)
        else:
            run.send(400)
        points.wait_cut(point)
        points.disarm()
        wait_until(
            "the end of the trouble",
            lambda: run.worker.failure(run.name) or run.rows() == [run.sent],
            90,
        )
        trace = run.worker.failure(run.name)
        if trace:
            assert "ConnectException" in trace, trace
            run.restart_tasks()
        other.send(400)
        other.check()
        run.send(400)
        run.check(timeout=120)
        assert cut_worker.process.running() and cut_worker.process.pid == pid


# Promise (long): a record that does not fit is in the dead letter queue although the queue did not answer
# and the worker died: no offset passed it before
# Injection: 36
@pytest.mark.long
def test_the_queue_does_not_answer_and_the_worker_dies(flow, broker, name):
    dead = f"{name}_dead"
    broker.create_topic(dead)
    gate = Gate(broker.port)
    run = flow(
        tasks=1,
        partitions=1,
        errors__deadletterqueue__topic__name=dead,
        producer__override__bootstrap__servers=gate.address,
        **DEAD,
    )
    with run.running(first=100):
        run.wait_lag()
        at = run.sent
        values = [*data.orders(50, at), {"id": "no number"}, *data.orders(50, at + 51)]
        broker.produce_json(name, values)
        run.send_nothing(101)
        pause_for(8)
        assert run.view.offsets()[name][0] <= at + 50, "the table's offsets passed the letter"
        assert broker.group_offsets(f"connect-{name}")[(name, 0)] <= at + 50
        run.kill()
        assert not broker.read(dead, 1, 3), "the queue has the letter already"
        gate.open()
        run.revive()
        run.view.wait_rows(run.sent - 1, 90)
        letters = broker.read(dead, 2, 10)
        assert {json.loads(letter.value())["id"] for letter in letters} == {"no number"}
        run.wait_lag(60)
        asked = "SELECT count(*), count(DISTINCT _offset) FROM {t}"
        assert run.view.query(asked) == [(run.sent - 1, run.sent - 1)]
    gate.stop()


# Injection: 37
@pytest.mark.long
def test_the_queue_cannot_be_made(flow, broker, name):
    """Connect wants to make the topic with more replicas than there are brokers."""
    settings = {**DEAD, "errors__deadletterqueue__topic__replication__factor": "3"}
    run = flow(tasks=1, errors__deadletterqueue__topic__name=f"{name}_dead", **settings)
    broker.create_topic(name, run.partitions)
    run.send(400)
    run.worker.create(name, run.config)
    try:
        run.worker.wait_failed(name)
    finally:
        run.worker.delete(name)
    assert run.view.rows() == 0
    assert not broker.group_offsets(f"connect-{name}")


# Injection: 30
@pytest.mark.long
def test_native_memory_is_short(flow):
    """A small budget, many tables, and far more rows than it holds: the task pauses and goes on."""
    run = flow(
        tables=3,
        tasks=1,
        # For the tasks of the worker's other connectors, too.
        frazil__memory__max__bytes=str(6 * 32 * 1024 * 1024),
        iceberg__control__commit__interval_ms="5000",
    )
    with run.running():
        run.send(400_000)
        largest = 0

        def done() -> bool:
            nonlocal largest
            with open(f"/proc/{run.worker.process.pid}/status", encoding="ascii") as lines:
                found = next(line for line in lines if line.startswith("VmRSS:"))
            largest = max(largest, int(found.split()[1]) // 1024)
            return run.views[0].rows() >= run.sent

        wait_until("all rows", done, 300, 1)
        assert largest < 1200, f"{largest} MB"
        run.check(timeout=120, lag=60)


# Injection: 38
@pytest.mark.long
def test_a_record_is_very_large(flow, broker):
    """As large as the broker takes: 8 MB among small ones."""
    run = flow(
        tasks=1,
        partitions=1,
        consumer__override__max__partition__fetch__bytes="10485760",
        consumer__override__fetch__max__bytes="52428800",
    )
    with run.running(first=100):
        large = [
            {**order, "note": "x" * 8_000_000} if order["id"] % 10 == 0 else order
            for order in data.orders(30, run.sent)
        ]
        broker.produce_json(run.name, large)
        run.send_nothing(30)
        run.check(timeout=120)
        asked = "SELECT count(*) FROM {t} WHERE length(note) = 8000000"
        assert run.view.query(asked) == [(3,)]


# Injection: 39
@pytest.mark.long
def test_bytes_that_are_no_json_go_to_the_queue(flow, broker, name):
    """The converter of the worker reads them, and says so to the queue."""
    dead = f"{name}_dead"
    broker.create_topic(dead)
    run = flow(tasks=1, partitions=1, errors__deadletterqueue__topic__name=dead, **DEAD)
    with run.running(first=100):
        values = [json.dumps(order).encode() for order in data.orders(20, run.sent)]
        values[7] = b'{"id": 1'
        values[11] = b"\x00\x00\x00\x00\x07\xff"
        broker.produce(name, [(0, None, value) for value in values])
        run.send_nothing(20)
        run.view.wait_rows(run.sent - 2, 60)
        letters = broker.read(dead, 3, 5)
        assert [letter.value() for letter in letters] == [values[7], values[11]]
        run.wait_lag(60)
        assert run.worker.task_states(name) == ["RUNNING"]


# Promise (long): a task that hangs in native code while it is stopped, and goes on when its successor has
# its partitions, doubles nothing
# Injection: 65
@pytest.mark.long
def test_a_stopped_task_hangs(flow, points):
    with flow(tasks=1).running() as run:
        run.wait_lag()
        points.arm(session__after_append="wait:25000*1")
        run.send(400)
        points.wait_cut("session.after-append")
        points.disarm()
        run.worker.insist("PUT", f"/connectors/{run.name}/stop")
        pause_for(1)
        run.worker.insist("PUT", f"/connectors/{run.name}/resume")
        run.send(400)
        run.settle(120)
        # The one that hung wakes up behind its successor.
        pause_for(20)
        run.send(400)
        run.check(timeout=120, lag=60)


# Promise (long): tables that are added and taken out of a running configuration get each row once
# Injection: 66
@pytest.mark.long
def test_tables_are_added_while_rows_flow(flow):
    run = flow(tables=2, tasks=2)
    both = run.config["iceberg.tables"]
    run.config["iceberg.tables"] = run.tables[0]
    first, second = run.views
    run.views = [first]
    with run.running():
        run.feed(count=200, pause=0.2)
        run.wait_progress()
        run.worker.configure(run.name, {**run.config, "iceberg.tables": both})
        wait_until("rows in the new table", lambda: second.rows() > 0, 90, 0.5)
        run.worker.configure(run.name, run.config)
        run.worker.wait_running(run.name, 2)
        run.wait_progress()
        run.check(timeout=120, lag=60)
        # Of each partition the new table has a whole range of offsets, once.
        asked = (
            "SELECT count(*) FILTER (n != high - low + 1 OR n != apart) FROM (SELECT _partition,"
            " count(*) n, count(DISTINCT _offset) apart, min(_offset) low, max(_offset) high"
            " FROM {t} GROUP BY _partition)"
        )
        assert second.query(asked) == [(0,)]
