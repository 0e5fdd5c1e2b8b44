"""Offset resets by every way there is, and tables whose state somebody meddled with.

The id of an order is its offset, so the number of rows of an id says how often a record was written.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition

from bed import data
from bed.artifacts import frazil_cli
from bed.connect import RestError, Worker
from bed.process import wait_until
from bed.read import TableView
from bed.sink import running, sink


def ids(*spans: tuple[int, int]) -> Counter[int]:
    """Counts each id of the spans once per span."""
    return Counter(number for first, end in spans for number in range(first, end))


def found(view: TableView) -> Counter[int]:
    return Counter(dict(view.query("SELECT id, count(*) FROM {t} GROUP BY id")))


def wait_for(view: TableView, expected: Counter[int]) -> None:
    """Waits for the rows, and a little longer for more that should not come."""
    view.wait_rows(expected.total(), 90)
    assert found(view) == expected


class Sink:
    """A connector of one topic with one partition, whose offsets are changed."""

    def __init__(self, worker: Worker, broker, catalog, name: str) -> None:
        self.worker, self.broker, self.catalog, self.name = worker, broker, catalog, name
        self.group = f"connect-{name}"
        self.config = sink(catalog, name, f"{name}.orders")
        self.view = TableView(catalog, f"{name}.orders")
        self.sent = 0
        broker.create_topic(name)

    def send(self, count: int) -> None:
        self.broker.produce_json(self.name, data.orders(count, self.sent))
        self.sent += count

    def stop(self) -> None:
        self.worker.insist("PUT", f"/connectors/{self.name}/stop")

        def stopped() -> bool:
            status = self.worker.status(self.name)
            return status["connector"]["state"] == "STOPPED" and not status["tasks"]

        wait_until(f"{self.name} to stop", stopped, 60, 0.25)
        wait_until(f"{self.group} to be empty", self._left, 60, 0.25)

    def _left(self) -> bool:
        described = self.broker.admin.describe_consumer_groups([self.group])[self.group]
        return not described.result(30).members

    def resume(self) -> None:
        self.worker.insist("PUT", f"/connectors/{self.name}/resume")
        self.worker.wait_running(self.name)

    def patch(self, offset: int | None) -> None:
        partition = {"kafka_topic": self.name, "kafka_partition": 0}
        asked = None if offset is None else {"kafka_offset": offset}
        body = {"offsets": [{"partition": partition, "offset": asked}]}
        self.worker.insist("PATCH", f"/connectors/{self.name}/offsets", body)

    def delete_offsets(self) -> None:
        self.worker.insist("DELETE", f"/connectors/{self.name}/offsets")

    def epoch(self) -> str:
        task = self.worker.call("GET", f"/connectors/{self.name}/tasks")[0]
        return task["config"]["frazil.internal.epoch"]

    def move_group(self, offset: int) -> None:
        """As `kafka-consumer-groups --reset-offsets` does."""
        asked = ConsumerGroupTopicPartitions(
            self.group, [TopicPartition(self.name, 0, offset)]
        )
        self.broker.admin.alter_consumer_group_offsets([asked])[self.group].result(30)

    def forget_group(self) -> None:
        self.broker.admin.delete_consumer_groups([self.group])[self.group].result(30)

    def state(self, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs `frazil state`."""
        file = folder / f"{self.name}.json"
        file.write_text(json.dumps({"name": self.name, "config": self.config}))
        command = [str(frazil_cli()), "state", arguments[0], "--config", str(file), *arguments[1:]]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@contextlib.contextmanager
def started(worker: Worker, broker, catalog, name: str) -> Iterator[Sink]:
    made = Sink(worker, broker, catalog, name)
    with running(worker, name, made.config):
        yield made


# Promise: offsets altered or deleted by Connect's REST are obeyed: records from there on are written
# once more, those that are skipped are not, and the same request twice is one reset
# Injection: 55
def test_offsets_are_altered_over_rest(worker, broker, sql, name):
    with started(worker, broker, sql, name) as sink:
        sink.send(100)
        wait_for(sink.view, ids((0, 100)))
        assert sink.epoch() == "0"
        sink.stop()
        sink.delete_offsets()
        sink.resume()
        wait_for(sink.view, ids((0, 100), (0, 100)))
        assert sink.epoch() == "1"
        sink.stop()
        sink.patch(60)
        sink.patch(60)
        sink.resume()
        wait_for(sink.view, ids((0, 100), (0, 100), (60, 100)))
        assert sink.epoch() == "2"
        sink.stop()
        sink.send(50)
        sink.patch(120)
        sink.resume()
        wait_for(sink.view, ids((0, 100), (0, 100), (60, 100), (120, 150)))
        sink.send(10)
        wait_for(sink.view, ids((0, 100), (0, 100), (60, 100), (120, 160)))
        assert sink.view.offsets() == {name: [160]}
        broker.wait_group_offsets(sink.group, {(name, 0): 160}, 90)


# Promise: when Kafka refuses altered offsets after the tables took them, nothing is lost or doubled
# Injection: 55
@pytest.mark.parametrize("offset", [30, 500, None])
def test_a_reset_that_kafka_refuses_changes_no_row(worker, broker, sql, name, offset):
    with started(worker, broker, sql, name) as sink:
        sink.send(100)
        wait_for(sink.view, ids((0, 100)))
        sink.stop()
        # What Connect calls a zombie task: somebody is still in the group.
        member = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": sink.group})
        member.subscribe([name])
        wait_until("a member in the group", lambda: member.poll(0.5) is None and bool(member.assignment()), 60, 0)
        with pytest.raises(RestError) as refused:
            sink.patch(offset)
        member.close()
        assert refused.value.status in (400, 500)
        # The tables took it, which is what this test is about.
        assert any(key.startswith("frazil.a.") for key in sink.view.metadata()["properties"])
        sink.send(20)
        sink.resume()
        wait_for(sink.view, ids((0, 120)))
        assert sink.epoch() == "1"


# Promise: offsets that other tools moved back are skipped as far as the table has their records, and
# those moved forward are obeyed; a consumer group that is gone costs and doubles nothing
# Injection: 56
def test_the_group_is_changed_behind_our_back(worker, broker, sql, name):
    with started(worker, broker, sql, name) as sink:
        sink.send(100)
        wait_for(sink.view, ids((0, 100)))
        sink.stop()
        sink.move_group(20)
        sink.send(10)
        sink.resume()
        wait_for(sink.view, ids((0, 110)))
        sink.stop()
        sink.send(40)
        sink.move_group(130)
        sink.resume()
        wait_for(sink.view, ids((0, 110), (130, 150)))
        sink.stop()
        sink.forget_group()
        sink.send(5)
        sink.resume()
        wait_for(sink.view, ids((0, 110), (130, 155)))
        # A group that is gone is reset all the same: the tables know the partitions.
        sink.stop()
        sink.forget_group()
        sink.delete_offsets()
        sink.resume()
        wait_for(sink.view, ids((0, 110), (130, 155), (0, 155)))


# Promise: a topic that was deleted and made again under its name is another topic, known by its id:
# all its records are written
# Case: 31
def test_a_topic_is_made_again(worker, broker, sql, name):
    with started(worker, broker, sql, name) as sink:
        sink.send(100)
        wait_for(sink.view, ids((0, 100)))
        sink.stop()
        broker.delete_topic(name)
        broker.create_topic(name)
        sink.sent = 0
        sink.send(40)
        sink.resume()
        wait_for(sink.view, ids((0, 100), (0, 40)))
        assert sink.view.offsets() == {name: [40]}
        sink.send(10)
        wait_for(sink.view, ids((0, 100), (0, 50)))


def change(catalog, table: str, update: dict) -> None:
    namespace, table = table.rsplit(".", 1)
    path = f"/v1/namespaces/{namespace}/tables/{table}"
    status, body = catalog.call("POST", path, {"requirements": [], "updates": [update]})
    assert status == 200, body


def state_key(view: TableView) -> str:
    keys = [key for key in view.metadata()["properties"] if key.startswith("frazil.w.")]
    assert len(keys) == 1, keys
    return keys[0]


# Promise: a table whose state property was removed goes on from its snapshots; one that was copied
# with the properties of another table begins at the beginning
# Injection: 60
def test_properties_are_removed_and_copied(worker, broker, rest, name):
    with started(worker, broker, rest, name) as sink:
        for count in (60, 40):
            sink.send(count)
            wait_for(sink.view, ids((0, sink.sent)))
        sink.stop()
        key = state_key(sink.view)
        value = sink.view.metadata()["properties"][key]
        change(rest, f"{name}.orders", {"action": "remove-properties", "removals": [key]})
        sink.move_group(10)
        sink.send(10)
        sink.resume()
        wait_for(sink.view, ids((0, 110)))
        assert state_key(sink.view) == key
        sink.stop()
        schema = sink.view.metadata()["schemas"][0]
        body = {"name": "copy", "schema": schema, "properties": {key: value}}
        status, answer = rest.call("POST", f"/v1/namespaces/{name}/tables", body)
        assert status == 200, answer
        sink.forget_group()
        worker.configure(name, {**sink.config, "iceberg.tables": f"{name}.orders,{name}.copy"})
        sink.resume()
        wait_for(TableView(rest, f"{name}.copy"), ids((0, 110)))
        wait_for(sink.view, ids((0, 110)))


# Promise: after a rollback the sink says so and goes on; `frazil state reset` writes the rows again
# Injection: 59
def test_a_table_is_rolled_back(worker, broker, rest, name, scratch):
    with started(worker, broker, rest, name) as sink:
        for count in (60, 40):
            sink.send(count)
            wait_for(sink.view, ids((0, sink.sent)))
        first = min(sink.view.snapshots(), key=lambda snapshot: snapshot["sequence-number"])
        kept = int(first["summary"]["total-records"])
        back = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"}
        change(rest, f"{name}.orders", {**back, "snapshot-id": first["snapshot-id"]})
        assert found(sink.view) == ids((0, kept))
        sink.send(10)
        wait_for(sink.view, ids((0, kept), (100, 110)))
        wait_until("words", lambda: "rolled back behind the last commit" in worker.log(), 30)
        shown = sink.state(scratch, "show")
        assert shown.returncode == 0 and f"{name}-0: next offset 110" in shown.stdout, shown
        sink.stop()
        reset = sink.state(scratch, "reset", "--offsets", f"{name}:0={kept}")
        assert reset.returncode == 0 and "epoch 1" in reset.stdout, reset
        sink.move_group(kept)
        sink.resume()
        wait_for(sink.view, ids((0, kept), (100, 110), (kept, 110)))
        assert sink.epoch() == "1"


# Promise: a state property that nobody can read stops the task with a remedy that works
# Injection: 60
def test_a_damaged_property_stops_the_task_until_it_is_repaired(worker, broker, rest, name, scratch):
    with started(worker, broker, rest, name) as sink:
        sink.send(100)
        wait_for(sink.view, ids((0, 100)))
        sink.stop()
        key = state_key(sink.view)
        change(
            rest,
            f"{name}.orders",
            {"action": "set-properties", "updates": {key: '{"v":1,'}},
        )
        sink.send(10)
        sink.worker.insist("PUT", f"/connectors/{name}/resume")
        trace = worker.wait_failed(name)
        assert "STATE_INVALID" in trace and "frazil state repair" in trace
        sink.stop()
        repaired = sink.state(scratch, "repair")
        assert repaired.returncode == 0 and "written anew" in repaired.stdout, repaired
        sink.move_group(50)
        sink.resume()
        wait_for(sink.view, ids((0, 110)))
