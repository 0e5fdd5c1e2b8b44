"""Other people change the table, its state, the topic or the group behind the sink's back."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import NewPartitions
from pyiceberg.catalog import load_catalog

from bed import data, foreign
from bed.exactly import Flow, pause_for
from bed.process import wait_until
from bed.read import TableView

long = pytest.mark.long


def stop(run: Flow) -> None:
    """Stops the connector, so that its group is empty; the configuration stays."""
    run.worker.insist("PUT", f"/connectors/{run.name}/stop")
    wait_until(
        "an empty group",
        lambda: run.worker.status(run.name)["connector"]["state"] == "STOPPED"
        and not run.worker.task_states(run.name)
        and not run.broker.members(f"connect-{run.name}"),
        60,
    )


def resume(run: Flow) -> None:
    run.worker.insist("PUT", f"/connectors/{run.name}/resume")
    run.worker.wait_running(run.name, run.tasks)


def state_key(view: TableView) -> str:
    keys = [key for key in view.metadata()["properties"] if key.startswith("frazil.w.")]
    assert len(keys) == 1, keys
    return keys[0]


# Injection: 42
@pytest.mark.long
def test_four_tasks_make_one_table_and_one_column(flow):
    """All tasks find that the table is missing at once, and then that the column is."""
    run = flow(tasks=4, iceberg__tables__evolve_schema_enabled="true")
    with run.running(first=400):
        assert run.view.query("SELECT count(*) FROM {t}") == [(400,)]

        def wider():
            for order in data.orders(400, run.sent):
                yield {**order, "colour": f"c{order['id'] % 7}"}

        run.broker.produce_json(run.name, wider(), lambda index: index % run.partitions)
        run.sent += 400
        run.settle()
        fields = [field["name"] for field in run.view.metadata()["schemas"][-1]["fields"]]
        assert fields.count("colour") == 1
        assert run.view.query("SELECT count(colour) FROM {t}") == [(400,)]
        run.check()


# Promise (long): a clock that is ten minutes behind the table's last snapshot stops no commit
# Injection: 52
@pytest.mark.long
def test_the_table_is_ten_minutes_ahead(flow):
    """What a worker with a slow clock sees: the last snapshot is from the future."""
    with flow().running() as run:
        ahead = int(time.time() * 1000) + 600_000
        foreign.commit_to_branch(run.reads, run.tables[0], "main", at_ms=ahead)
        run.send(400)
        run.check()
        last = run.view.metadata()
        stamps = [snapshot["timestamp-ms"] for snapshot in last["snapshots"]]
        assert stamps == sorted(stamps) and stamps[-1] >= ahead


# Injection: 54
@pytest.mark.long
def test_partitions_are_added(flow):
    run = flow(partitions=3, consumer__override__metadata__max__age__ms="2000")
    with run.running(first=300):
        futures = run.broker.admin.create_partitions([NewPartitions(run.name, 12)])
        futures[run.name].result(30)
        run.broker.produce_json(run.name, data.orders(1200, run.sent), lambda index: index % 12)
        run.view.wait_rows(1500, 60)
        asked = "SELECT count(DISTINCT id), max(id), count(DISTINCT _partition) FROM {t}"
        assert run.view.query(asked) == [(1500, 1499, 12)]
        ends = {(run.name, n): 200 if n < 3 else 100 for n in range(12)}
        run.broker.wait_group_offsets(f"connect-{run.name}", ends)
        assert run.view.offsets() == {run.name: [ends[run.name, n] for n in range(12)]}
        assert run.worker.task_states(run.name) == ["RUNNING"] * run.tasks


def set_group(run: Flow, offsets: dict[int, int]) -> None:
    """What `kafka-consumer-groups --reset-offsets` does."""
    wanted = [TopicPartition(run.name, p, offset) for p, offset in offsets.items()]
    asked = [ConsumerGroupTopicPartitions(f"connect-{run.name}", wanted)]
    for future in run.broker.admin.alter_consumer_group_offsets(asked).values():
        future.result(30)


# Promise (long): offsets that somebody moved back with Kafka's own tool double no row
# Injection: 56
@pytest.mark.long
def test_the_group_is_moved_back(flow):
    with flow().running() as run:
        run.wait_lag()
        stop(run)
        set_group(run, dict.fromkeys(range(run.partitions), 0))
        run.send(400)
        resume(run)
        run.check()


# Injection: 56
@pytest.mark.long
def test_the_group_is_moved_forward(flow):
    """Whoever skips records with Kafka's tool gets what was asked for."""
    with flow().running() as run:
        run.wait_lag()
        stop(run)
        before = run.sent
        run.send(400)
        set_group(run, dict.fromkeys(range(run.partitions), run.sent // run.partitions))
        run.send(400)
        resume(run)
        run.view.wait_rows(before + 400, 60)
        asked = f"SELECT count(*) FROM {{t}} WHERE id >= {before} AND id < {before + 400}"
        assert run.view.query(asked) == [(0,)]
        assert run.view.query("SELECT count(DISTINCT id) FROM {t}") == [(before + 400,)]
        run.wait_lag()


# Injection: 57
@pytest.mark.long
def test_the_group_is_deleted(flow):
    """All is read again from the earliest offset, and what the table has is skipped."""
    with flow().running() as run:
        run.wait_lag()
        stop(run)
        group = f"connect-{run.name}"
        run.broker.admin.delete_consumer_groups([group])[group].result(30)
        run.send(400)
        resume(run)
        run.check()


# Promise (long): expired snapshots, two hundred foreign commits and rewritten files do not touch the state
# Injection: 58
@pytest.mark.long
def test_the_table_is_maintained_while_it_is_written(flow, proxied):
    with flow().running() as run:
        run.feed(count=80, pause=0.3)
        for _ in range(200):
            foreign.try_commit(run.reads, run.tables[0], "main")
        run.wait_progress()
        run.stop_feed()
        run.settle()
        metadata = run.view.metadata()
        old = [
            snapshot["snapshot-id"]
            for snapshot in metadata["snapshots"]
            if snapshot["snapshot-id"] != metadata["current-snapshot-id"]
        ]
        foreign.must_change(
            run.reads, run.tables[0], {"action": "remove-snapshots", "snapshot-ids": old}
        )
        assert len(run.view.snapshots()) == 1
        run.send(400)
        run.settle()
        # All rows into new files, as a compaction does; the rows stay what they were.
        table = load_catalog("bed", type="rest", uri=proxied.direct.uri).load_table(run.tables[0])
        table.overwrite(table.scan().to_arrow())
        run.send(400)
        run.check()


# Injection: 60
@pytest.mark.long
def test_the_state_is_copied_to_another_table(flow):
    """It names the table that it belongs to: the other one does not believe it."""
    run = flow(tables=2, tasks=1)
    with run.running():
        run.wait_lag()
        stop(run)
        key = state_key(run.views[0])
        value = json.loads(run.views[0].metadata()["properties"][key])
        own = json.loads(run.views[1].metadata()["properties"][key])
        assert value["u"] != own["u"]
        # Further than the second table is, so that to believe it would lose rows.
        for entry in value["t"].values():
            entry["o"] = [offset + 1000 for offset in entry["o"]]
        copied = {key: json.dumps(value)}
        foreign.must_change(
            run.reads, run.tables[1], {"action": "set-properties", "updates": copied}
        )
        run.send(400)
        resume(run)
        wait_until(
            "the second table to be judged",
            lambda: run.views[0].rows() == run.sent,
            60,
        )
        # Without a state of its own the table takes what the group has not passed.
        run.settle()
        assert run.views[1].query("SELECT count(DISTINCT id) FROM {t}") == [(run.sent,)]


# Injection: 61
@pytest.mark.long
def test_the_table_is_renamed_and_comes_back(flow):
    with flow(tasks=1).running() as run:
        run.wait_lag()
        old, other = run.tables[0], run.tables[0] + "_away"
        rename(run, old, other)
        run.send(400)
        pause_for(5)
        assert run.worker.task_states(run.name) == ["RUNNING"]
        rename(run, other, old)
        run.check(timeout=120)


def rename(run: Flow, source: str, target: str) -> None:
    def split(name: str) -> dict:
        namespace, table = name.rsplit(".", 1)
        return {"namespace": [namespace], "name": table}

    body = {"source": split(source), "destination": split(target)}
    status, answer = run.reads.call("POST", "/v1/tables/rename", body)
    assert status in (200, 204), answer


# Promise: a table that is dropped and made again gets all rows that were not yet committed
# Injection: 61
def test_the_table_is_dropped_and_made_again(flow, points):
    """In the middle of a segment: it was written for the table that is gone."""
    with flow(tasks=1).running() as run:
        run.wait_lag()
        before = run.sent
        namespace, table = run.tables[0].rsplit(".", 1)
        metadata = run.view.metadata()
        points.arm(seal__after_manifest="wait:3000*1")
        run.send(400)
        pause_for(2)
        path = f"/v1/namespaces/{namespace}/tables"
        status, answer = run.reads.call("DELETE", f"{path}/{table}")
        assert status in (200, 204), answer
        made = {"name": table, "schema": metadata["schemas"][-1]}
        status, answer = run.reads.call("POST", path, made)
        assert status == 200, answer
        points.disarm()
        run.send(400)
        run.view.wait_rows(800, 90)
        asked = "SELECT count(DISTINCT id), min(id), max(id) FROM {t}"
        assert run.view.query(asked) == [(800, before, before + 799)]
        run.wait_lag()
        assert run.worker.task_states(run.name) == ["RUNNING"]


# Promise (long): the partition spec and the target file size may change while rows flow
# Injection: 66
@pytest.mark.long
def test_the_layout_changes_while_rows_flow(flow):
    with flow().running() as run:
        run.feed(count=200, pause=0.2)
        run.wait_progress()
        schema = run.view.metadata()["schemas"][-1]
        column = next(field["id"] for field in schema["fields"] if field["name"] == "status")
        field = {"source-id": column, "transform": "identity", "name": "status_part"}
        foreign.must_change(
            run.reads,
            run.tables[0],
            {"action": "add-spec", "spec": {"spec-id": 1, "fields": [field]}},
            {"action": "set-default-spec", "spec-id": -1},
        )
        pause_for(4)
        sizes = {"write.target-file-size-bytes": "1048576"}
        foreign.must_change(
            run.reads, run.tables[0], {"action": "set-properties", "updates": sizes}
        )
        pause_for(4)
        run.check(timeout=120, lag=60)
        metadata = run.view.metadata()
        assert metadata["default-spec-id"] != 0
        paths = [row[0] for row in run.view.query("SELECT DISTINCT filename FROM {t}")]
        assert any("status_part=" in path for path in paths)
        assert any("status_part=" not in path for path in paths)
