"""Coordination through a control topic: it may repeat, lose, mix up and forge records, or be gone."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from typing import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bed.connect import Worker
from bed.exactly import Flow, pause_for
from bed.process import wait_until
from bed.proxy import Hold

long = pytest.mark.long


@pytest.fixture
def topical(spread, name) -> Callable[..., Flow]:
    """Makes flows on the cluster whose tasks agree through a topic of their own."""

    def make(**options) -> Flow:
        options.setdefault("frazil__control__topic", f"{name}_control")
        return spread(frazil__coordination="topic", **options)

    return make


@contextlib.contextmanager
def watched(broker, topic: str, meddle: Callable[[Producer, object], None]) -> Iterator[list[int]]:
    """Hands each record that comes to a topic to `meddle`, with a producer. Yields their count."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"meddler-{random.randrange(1 << 30)}",
            "auto.offset.reset": "earliest",
        }
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    consumer.assign([TopicPartition(topic, 0, 0)])
    done, seen = threading.Event(), [0]

    def work() -> None:
        while not done.is_set():
            message = consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            if dict(message.headers() or []).get("bed") is None:
                seen[0] += 1
                meddle(producer, message)
            producer.poll(0)
        producer.flush(30)
        consumer.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join(60)


def feed_and_meddle(run: Flow, broker, meddle: Callable[[Producer, object], None]) -> None:
    """Lets rows flow while control records are meddled with; all has to be right in the end."""
    with watched(broker, run.config["frazil.control.topic"], meddle) as seen:
        run.feed(count=200, pause=0.3)
        pause_for(15)
        run.check(timeout=150, lag=60)
    assert seen[0] > 10


OURS = [("bed", b"1")]


# Promise (long): a control topic that says everything three times and in another order changes nothing
# Injection: 47
@pytest.mark.long
def test_control_records_are_repeated_and_mixed_up(topical, broker):
    kept: list = []
    dice = random.Random(3)

    def repeat(producer: Producer, message) -> None:
        kept.append(message)
        # One that came now, and one of some time ago.
        for copy in (message, dice.choice(kept[-20:])):
            producer.produce(message.topic(), copy.value(), copy.key(), headers=OURS)

    run = topical()
    with run.running():
        feed_and_meddle(run, broker, repeat)


# Promise (long): a control topic that loses records costs time, and no row
# Injection: 48
@pytest.mark.long
def test_control_records_are_lost(topical, broker):
    """All that is in the topic is deleted again and again: who has not read it never will."""
    run = topical()
    topic = run.config["frazil.control.topic"]
    admin: AdminClient = broker.admin
    with run.running():
        run.feed(count=200, pause=0.3)
        for _ in range(25):
            pause_for(0.6)
            # -1 is the end of the log.
            for future in admin.delete_records([TopicPartition(topic, 0, -1)]).values():
                future.result(30)
        run.check(timeout=180, lag=90)


# Promise (long): forged, foreign, old and broken control records are ignored
# Injection: 50
@pytest.mark.long
def test_control_records_are_forged(topical, broker):
    """Real ones with another path, session, writer or version, and noise."""

    def forge(producer: Producer, message) -> None:
        for value in forged(message.value()):
            producer.produce(message.topic(), value, message.key(), headers=OURS)

    run = topical()
    with run.running():
        feed_and_meddle(run, broker, forge)
        # Nothing that a forged record names is in the table.
        paths = [row[0] for row in run.view.query("SELECT DISTINCT filename FROM {t}")]
        assert not [path for path in paths if "/forged/" in path]


def forged(value: bytes) -> list[bytes]:
    made = [b"\x00\xff garbage", b"{}", b'{"v": 1', b"x" * 600_000]
    try:
        message = json.loads(value)
    except ValueError:
        return made
    made.append(json.dumps({**message, "v": 99}).encode())
    made.append(json.dumps({**message, "wid": "0123456789abcdef"}).encode())
    made.append(value.replace(b"/metadata/", b"/forged/metadata/"))
    return made


# Promise (long): a control topic that is deleted, compacted, short-lived or has three partitions loses no
# row, and is refused in words where it cannot serve
# Injection: 49
@pytest.mark.long
@pytest.mark.parametrize(
    ("partitions", "settings"),
    [
        pytest.param(1, {"cleanup.policy": "compact", "segment.ms": "1000"}, id="49-compacted"),
        pytest.param(1, {"retention.ms": "60000", "segment.ms": "1000"}, id="49-short-lived"),
        pytest.param(3, {}, id="49-three-partitions"),
    ],
)
def test_the_control_topic_is_not_as_it_should_be(topical, broker, partitions, settings):
    run = topical()
    broker.create_topic(run.config["frazil.control.topic"], partitions, **settings)
    broker.create_topic(run.name, run.partitions)
    run.worker.create(run.name, run.config)
    try:
        run.send(400)
        wait_until(
            "rows or a refusal",
            lambda: run.view.rows() == run.sent or run.worker.failure(run.name),
            120,
            0.5,
        )
        trace = run.worker.failure(run.name)
        if trace:
            assert run.config["frazil.control.topic"] in trace, trace
            assert run.view.rows() == 0
            return
        run.feed(count=200, pause=0.3)
        pause_for(8)
        run.check(timeout=150, lag=60)
    finally:
        run.stop_feed()
        run.worker.delete(run.name)


# Injection: 49
@pytest.mark.long
def test_the_control_topic_is_deleted(topical, broker):
    run = topical()
    topic = run.config["frazil.control.topic"]
    with run.running():
        run.feed(count=200, pause=0.3)
        run.wait_progress()
        broker.admin.delete_topics([topic])[topic].result(30)
        pause_for(20)
        if run.worker.failure(run.name):
            assert topic in run.worker.wait_failed(run.name)
            run.restart_tasks(120)
        run.check(timeout=240, lag=120)


# Promise (long): a connector that changes between both ways of coordination while rows flow loses and
# doubles nothing
# Injection: 67
@pytest.mark.long
def test_coordination_changes_while_rows_flow(topical):
    run = topical()
    with run.running():
        run.feed(count=200, pause=0.3)
        for way in ("local", "topic"):
            run.wait_progress()
            run.worker.configure(run.name, {**run.config, "frazil.coordination": way})
            pause_for(5)
            run.worker.wait_running(run.name, run.tasks)
        run.wait_progress()
        run.check(timeout=150, lag=60)


# Promise (long): when the worker that commits dies in the middle of a commit, another one goes on
# Injection: 5, 6, 7
# Case: 34
@pytest.mark.long
@pytest.mark.parametrize(
    "applied", [pytest.param(False, id="6-not-applied-yet"), pytest.param(True, id="6-applied")]
)
def test_the_coordinator_dies_in_a_commit(topical, cluster, proxy, applied):
    run = topical()
    with run.running():
        run.feed(count=200, pause=0.3)
        run.wait_progress()
        hold = Hold(before=not applied)
        proxy.on_commit(hold, count=1)
        hold.wait_held()
        victim = coordinator(run, cluster)
        victim.kill()
        proxy.clear()
        run.worker = next(worker for worker in cluster if worker is not victim)
        run.wait_progress(90)
        statuses = hold.wait_answers()
        assert statuses == ([200] if applied else [409]), statuses
        victim.start()
        run.check(timeout=150, lag=60)


def coordinator(run: Flow, cluster: list[Worker]) -> Worker:
    """Returns the worker whose member of the committer group owns the control partition."""
    group = f"connect-{run.name}-frazil-committer"
    described = run.broker.admin.describe_consumer_groups([group])[group].result(30)
    owners = [m for m in described.members if m.assignment and m.assignment.topic_partitions]
    assert len(owners) == 1, described.members
    named = owners[0].member_id
    joined = "Successfully joined group"

    def is_member(worker: Worker) -> bool:
        return any(joined in line and named in line for line in worker.log().splitlines())

    found = [worker for worker in cluster if is_member(worker)]
    assert len(found) == 1, f"{named} is in the logs of {len(found)} workers"
    return found[0]
