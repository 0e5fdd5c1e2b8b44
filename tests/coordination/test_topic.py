"""Workers that agree on commits through a control topic: one of them commits for all."""

from __future__ import annotations

import json
import threading
import time
import uuid

import pytest
from confluent_kafka import Producer

from bed import data
from bed.connect import start_cluster
from bed.process import wait_until
from bed.read import TableView, local
from bed.sink import running, sink, verify

PARTITIONS = 4
TASKS = 4
INTERVAL_S = 2
CHUNK = 200


@pytest.fixture(scope="module")
def cluster(make_worker):
    """Two workers of one cluster. A test that kills one starts it again."""
    workers = start_cluster(make_worker, 2, plugin="jar", heap="512m")
    yield workers
    for worker in workers:
        worker.stop()


@pytest.fixture
def topics(broker, name):
    """A topic of records, and the name of a control topic that does not exist yet."""
    broker.create_topic(name, PARTITIONS)
    return name, f"{name}-control"


class Feed:
    """Produces orders without a pause: order n is at offset n / 4 of partition n % 4."""

    def __init__(self, broker, topic: str) -> None:
        self.sent = 0
        self._broker, self._topic = broker, topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._over.wait(0.4):
            self._send()

    def _send(self) -> None:
        chunk = data.orders(CHUNK, self.sent)
        self._broker.produce_json(self._topic, chunk, lambda index: index % PARTITIONS)
        self.sent += CHUNK

    def __enter__(self) -> Feed:
        self._send()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the producer hangs"


def connector(rest, topics: tuple[str, str], tables: list[str], **overrides) -> dict[str, str]:
    topic, control = topics
    settings = {
        "tasks__max": str(TASKS),
        "iceberg__control__commit__interval_ms": str(INTERVAL_S * 1000),
        "iceberg__tables__metadata_columns": "_topic,_partition,_offset",
        "frazil__control__topic": control,
        # A dead worker's tasks leave their group after 10 s, not after 45.
        "consumer__override__session__timeout__ms": "10000",
        **overrides,
    }
    return sink(rest, topic, ",".join(tables), **settings)


def commits(view: TableView) -> list[tuple[int, str]]:
    """Returns (ms, hub id) of each commit that the table's metadata still tells of."""
    newest = view.metadata()
    files = [entry["metadata-file"] for entry in newest.get("metadata-log", [])]
    found = []
    for metadata in [*(json.load(open(local(file))) for file in files), newest]:
        for key, value in metadata["properties"].items():
            if key.startswith("frazil.w."):
                state = json.loads(value)
                found.append((state["m"], state["h"]))
    return sorted(set(found))


def hubs(view: TableView, since_ms: float = 0) -> set[str]:
    return {hub for ms, hub in commits(view) if ms >= since_ms}


def snapshots(view: TableView, since_ms: float, until_ms: float) -> int:
    return sum(since_ms <= s["timestamp-ms"] < until_ms for s in view.snapshots())


def wait_committed(view: TableView, since_ms: float, timeout: float) -> float:
    """Waits for a commit after a moment; returns how many seconds after it came."""

    def first() -> float | None:
        later = [s["timestamp-ms"] for s in view.snapshots() if s["timestamp-ms"] > since_ms]
        return min(later, default=None)

    return (wait_until("the next commit", first, timeout, 0.2) - since_ms) / 1000


def wait_snapshots(view: TableView, count: int) -> None:
    """Waits until the table is there and has more than this many snapshots."""
    wait_until("commits", lambda: view.rows() and len(view.snapshots()) > count, 90)


def now_ms() -> float:
    return time.time() * 1000


def exactly_once(rest, views: list[TableView], topic: str, count: int) -> None:
    """Checks each record by another engine, and by `frazil verify`."""
    per_partition = count // PARTITIONS
    for view in views:
        view.wait_rows(count, 120)
        asked = (
            "SELECT _topic, _partition, count(*), count(DISTINCT _offset), max(_offset)"
            " FROM {t} GROUP BY ALL ORDER BY _partition"
        )
        assert view.query(asked) == [
            (topic, partition, per_partition, per_partition, per_partition - 1)
            for partition in range(PARTITIONS)
        ]
        asked = f"SELECT count(*) FROM {{t}} WHERE id != _offset * {PARTITIONS} + _partition"
        assert view.query(asked) == [(0,)]
        ends = {(topic, partition): per_partition for partition in range(PARTITIONS)}
        verified = verify(rest, f"{view.namespace}.{view.table}", ends)
        assert verified.returncode == 0, verified.stdout + verified.stderr


def leader(cluster, hub: str):
    """Returns the worker whose process has the hub id."""
    (worker,) = (worker for worker in cluster if f"hub={hub}" in worker.log())
    return worker


def start(cluster, rest, name: str, config: dict[str, str]) -> None:
    """Creates the connector and waits until both workers have tasks of it."""
    cluster[0].create(name, config)
    cluster[0].wait_running(name, TASKS, 120)

    def spread() -> bool:
        return len(set(cluster[0].task_workers(name).values())) == len(cluster)

    wait_until("tasks on both workers", spread, 60)


def views_of(rest, tables: list[str]) -> list[TableView]:
    return [TableView(rest, table) for table in tables]


# Promise: with two workers and four tasks one process commits for all: at most 1.1 snapshots per
# table and interval, and each record exactly once
def test_one_process_commits_for_all_workers(cluster, broker, rest, name, topics):
    tables = [f"{name}.a", f"{name}.b"]
    views = views_of(rest, tables)
    with Feed(broker, name) as feed:
        # No setting of a Kafka client: it is the worker's own file that is read.
        start(cluster, rest, name, connector(rest, topics, tables))
        for view in views:
            wait_snapshots(view, 0)
        time.sleep(3 * INTERVAL_S)
        begun, rows = now_ms(), [view.rows() for view in views]
        time.sleep(15 * INTERVAL_S)
        ended = now_ms()
        intervals = (ended - begun) / (INTERVAL_S * 1000)
        for view, before in zip(views, rows):
            assert view.rows() > before
            assert snapshots(view, begun, ended) <= 1.1 * intervals
            assert len(hubs(view, begun)) == 1, commits(view)
    exactly_once(rest, views, name, feed.sent)
    assert hubs(views[0], begun) == hubs(views[1], begun)
    cluster[0].delete(name)
    ends = {(name, partition): feed.sent // PARTITIONS for partition in range(PARTITIONS)}
    broker.wait_group_offsets(f"connect-{name}", ends)
    partitions = broker.admin.list_topics(timeout=10).topics[topics[1]].partitions
    assert list(partitions) == [0]


# Promise: when the worker that commits for all is killed, another commits within 20 s, and each
# record is in its table exactly once
def test_another_worker_commits_when_the_one_that_does_is_killed(cluster, broker, rest, name, topics):
    tables = [f"{name}.a", f"{name}.b"]
    views = views_of(rest, tables)
    with Feed(broker, name) as feed:
        start(cluster, rest, name, connector(rest, topics, tables))
        wait_snapshots(views[0], 3)
        (before,) = hubs(views[0], now_ms() - 3 * INTERVAL_S * 1000)
        victim = leader(cluster, before)
        (heir,) = (worker for worker in cluster if worker is not victim)
        killed = now_ms()
        victim.kill()
        taken = max(wait_committed(view, killed + 500, 60) for view in views)
        print(f"the next commit came {taken:.1f} s after the kill")
        wait_until("all tasks with the heir", lambda: whole(heir, name), 90)
        wait_committed(views[0], now_ms(), 30)
        victim.start()
    exactly_once(rest, views, name, feed.sent)
    assert taken <= 20
    assert before not in hubs(views[0], killed + 500)
    heir.delete(name)


def whole(worker, name: str) -> bool:
    """Tells whether all tasks run on one worker."""
    states = worker.task_states(name)
    return states == ["RUNNING"] * TASKS and set(worker.task_workers(name).values()) == {
        worker.worker_id
    }


# Promise: a control topic that is deleted is made anew, commits go on, and nothing is lost or doubled
# Complaint: 27
def test_a_deleted_control_topic_is_made_anew(cluster, broker, rest, name, topics):
    tables = [f"{name}.a", f"{name}.b"]
    views = views_of(rest, tables)
    with Feed(broker, name) as feed:
        start(cluster, rest, name, connector(rest, topics, tables))
        wait_snapshots(views[0], 2)
        for _ in range(2):
            deleted = now_ms()
            broker.admin.delete_topics([topics[1]])[topics[1]].result(30)
            wait_until("the topic", lambda: topics[1] in broker.admin.list_topics().topics, 60)
            # The first may have been underway when the topic went.
            for view in views:
                wait_committed(view, deleted + 2 * INTERVAL_S * 1000, 60)
            assert cluster[0].task_states(name) == ["RUNNING"] * TASKS
    exactly_once(rest, views, name, feed.sent)
    assert any("is gone; it is made anew" in worker.log() for worker in cluster)
    cluster[0].delete(name)


def forgeries(broker, control: str, wid: str, table: str) -> list[tuple[bytes | None, bytes | None]]:
    """Returns records that nobody may obey."""
    message = broker.read(control, 1)[0]
    genuine = json.loads(message.value())
    assert genuine["wid"] == wid == message.key().decode()
    namespace, _, short = table.rpartition(".")
    segment = {
        "table": {"ns": [namespace], "name": short, "branch": "main"},
        "seq": 0,
        "first_unacked": 0,
        "manifests": [{"path": "/etc/passwd", "length": 1, "sha256": "00"}],
    }
    stranger = {**genuine, "sess": str(uuid.uuid4()), "type": "SEGMENT", "body": segment}
    documents = [
        stranger,
        {**genuine, "v": 99},
        {**genuine, "wid": "0" * 16},
        {**genuine, "type": "OBEY"},
        {**genuine, "type": "RESULT", "sess": str(uuid.uuid4()), "body": None},
    ]
    key = wid.encode()
    return [
        (None, None),
        (None, b"\x00\x01garbage"),
        (key, b"{"),
        (key, b"{" + b" " * (300 << 10) + b"}"),
        (key, b"\xff" * (2 << 20)),
        *((key, json.dumps(document).encode()) for document in documents),
    ]


# Promise: garbage, forged, foreign and oversized records of the control topic are counted and ignored
def test_records_that_nobody_may_obey_change_nothing(cluster, broker, rest, name, topics):
    tables = [f"{name}.a"]
    (view,) = views_of(rest, tables)
    with Feed(broker, name) as feed:
        start(cluster, rest, name, connector(rest, topics, tables))
        wait_snapshots(view, 2)
        (wid,) = (
            key.removeprefix("frazil.w.")
            for key in view.metadata()["properties"]
            if key.startswith("frazil.w.")
        )
        producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 4 << 20})
        for _ in range(3):
            for key, value in forgeries(broker, topics[1], wid, tables[0]):
                producer.produce(topics[1], value, key, partition=0)
            assert producer.flush(30) == 0
            wait_committed(view, now_ms() + INTERVAL_S * 1000, 60)
        assert cluster[0].task_states(name) == ["RUNNING"] * TASKS
        # They are among the first records of the topic by now, which is still ours.
        cluster[0].call("POST", f"/connectors/{name}/restart?includeTasks=true")
        cluster[0].wait_running(name, TASKS, 120)
        wait_committed(view, now_ms(), 60)
    exactly_once(rest, [view], name, feed.sent)
    log = "".join(worker.log() for worker in cluster)
    for reason in ("garbage", "other version", "oversized", "unknown type"):
        assert any(
            "records of the control topic were not obeyed" in line and reason in line
            for line in log.splitlines()
        ), reason
    assert "passwd" not in log
    cluster[0].delete(name)


# Promise: a control topic that holds somebody else's records fails the tasks, naming topic and remedy
def test_a_topic_of_somebody_else_is_not_touched(cluster, broker, rest, name, topics):
    broker.create_topic(topics[1])
    ends = broker.produce(topics[1], [(0, b"cg-control", b"Obj\x01avro"), (0, None, b"x")])
    broker.produce_json(name, data.orders(PARTITIONS), lambda index: index % PARTITIONS)
    cluster[0].create(name, connector(rest, topics, [f"{name}.a"]))
    trace = cluster[0].wait_failed(name, 60)
    assert "[CONTROL_TOPIC_FOREIGN]" in trace
    assert f"`{topics[1]}`" in trace and "`frazil.control.topic`" in trace
    cluster[0].delete(name)
    assert ends == [2] and len(broker.read(topics[1], 3, 5)) == 2, "something was written to it"


# Promise: without client settings `auto` coordinates inside each worker, and the log states the cost
def test_without_settings_the_workers_coordinate_locally(cluster, broker, rest, name, topics):
    tables = [f"{name}.a"]
    (view,) = views_of(rest, tables)
    config = connector(
        rest, topics, tables, frazil__kafka__from_worker="false", iceberg__control__topic="x-control"
    )
    with Feed(broker, name) as feed:
        start(cluster, rest, name, config)
        wait_snapshots(view, 3)
    exactly_once(rest, [view], name, feed.sent)
    lines = "".join(worker.log() for worker in cluster).splitlines()
    warned = [line for line in lines if f"Connector {name}: frazil.coordination: " in line]
    assert warned and len(warned) <= len(cluster), warned
    assert "k workers make k snapshots per table and interval" in warned[0]
    assert "`frazil.kafka.from-worker=false`" in warned[0]
    inert = [line for line in lines if f"Connector {name}: iceberg.control.topic: " in line]
    assert inert and len(inert) <= len(cluster) and "has no effect" in inert[0], inert
    known = broker.admin.list_topics(timeout=10).topics
    assert topics[1] not in known and "x-control" not in known
    cluster[0].delete(name)


# Promise: coordination may change between local and topic under load; each record is there once
def test_a_connector_changes_its_coordination_under_load(cluster, broker, rest, name, topics):
    tables = [f"{name}.a", f"{name}.b"]
    views = views_of(rest, tables)
    with Feed(broker, name) as feed:
        start(
            cluster, rest, name, connector(rest, topics, tables, frazil__coordination="local")
        )
        wait_snapshots(views[0], 2)
        for coordination in ("topic", "local", "topic"):
            cluster[0].configure(
                name, connector(rest, topics, tables, frazil__coordination=coordination)
            )
            changed = now_ms()
            cluster[0].wait_running(name, TASKS, 120)
            for view in views:
                wait_committed(view, changed + 2 * INTERVAL_S * 1000, 60)
        time.sleep(2 * INTERVAL_S)
        assert len(hubs(views[0], now_ms() - 2 * INTERVAL_S * 1000)) == 1
    exactly_once(rest, views, name, feed.sent)
    cluster[0].delete(name)


# Promise: explicit `topic` without client settings is refused at validation
def test_topic_coordination_needs_settings(cluster, rest, name, topics):
    config = connector(
        rest, topics, [f"{name}.a"], frazil__coordination="topic", frazil__kafka__from_worker="false"
    )
    errors = cluster[0].validate({**config, "name": name})
    assert list(errors) == ["frazil.coordination"], errors
    assert "`iceberg.kafka.bootstrap.servers`" in errors["frazil.coordination"][0]
