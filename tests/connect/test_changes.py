"""A table and a configuration that change in the middle of a run."""

from __future__ import annotations

import threading

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import BucketTransform

from bed import data
from bed.connect import RestError
from bed.process import wait_until
from bed.read import TableView
from bed.sink import running, sink

PARTITIONS = 2


class Feed:
    """Sends orders in the background all the time, so that a change comes in the middle."""

    def __init__(self, broker, topic: str) -> None:
        self.sent = 0
        self._broker, self._topic = broker, topic
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self.send(200)

    def send(self, count: int) -> None:
        with self._lock:
            orders = data.orders(count, self.sent)
            self._broker.produce_json(self._topic, orders, lambda index: index % PARTITIONS)
            self.sent += count


def table_of(catalog, table: str):
    return load_catalog("other", type="rest", uri=catalog.uri).load_table(table)


def files(catalog, table: str) -> list[dict]:
    return table_of(catalog, table).inspect.files().to_pylist()


def check_exactly_once(view: TableView, sent: int) -> None:
    """Order n is at offset n / P of partition n % P."""
    each = sent // PARTITIONS
    asked = (
        "SELECT _partition, count(*), count(DISTINCT _offset), min(_offset), max(_offset),"
        f" count(*) FILTER (id != _offset * {PARTITIONS} + _partition)"
        " FROM {t} GROUP BY _partition ORDER BY _partition"
    )
    assert view.query(asked) == [(p, each, each, 0, each - 1, 0) for p in range(PARTITIONS)]


@pytest.fixture
def config(broker, rest, name) -> dict[str, str]:
    broker.create_topic(name, PARTITIONS)
    return sink(
        rest,
        name,
        f"{name}.t",
        tasks__max="2",
        iceberg__tables__metadata_columns="_topic,_partition,_offset",
    )


# Promise: a table whose partition spec and target file size are changed while records flow gets
# each record once, and its new files follow the new spec and size
def test_spec_and_file_size_change_in_the_middle(worker, broker, rest, config, name):
    table, view = f"{name}.t", TableView(rest, f"{name}.t")
    with running(worker, name, config, 2), Feed(broker, name) as feed:
        wait_until("rows", lambda: view.rows() > 400, 60)
        with table_of(rest, table).transaction() as change:
            change.set_properties({"write.target-file-size-bytes": "1000"})

        def several() -> bool:
            """A task whose table has no partitions makes one file a commit, until it is full."""
            feed.send(20_000)
            added = (s.summary["added-data-files"] for s in table_of(rest, table).snapshots())
            return max(map(int, added)) > 4

        wait_until("small files", several, 40, 1)
        with table_of(rest, table).update_spec() as update:
            update.add_field("id", BucketTransform(4), "id_bucket")

        def follows() -> bool:
            return any(file["spec_id"] == 1 for file in files(rest, table))

        wait_until("files of the new spec", follows, 30, 0.5)
        feed.stop()
        view.wait_rows(feed.sent, 60)
        assert worker.task_states(name) == ["RUNNING"] * 2
    specs = {file["spec_id"] for file in files(rest, table)}
    assert specs == {0, 1}
    check_exactly_once(view, feed.sent)
    assert view.offsets() == {name: [feed.sent // PARTITIONS] * PARTITIONS}


# Promise: a table that is added to `iceberg.tables` while records flow gets each record from then
# on once, and the tables that were there before get each record once
def test_a_table_is_added_in_the_middle(worker, broker, rest, config, name):
    first, second = TableView(rest, f"{name}.t"), TableView(rest, f"{name}.u")
    with running(worker, name, config, 2), Feed(broker, name) as feed:
        wait_until("rows", lambda: first.rows() > 400, 60)
        worker.configure(name, config | {"iceberg.tables": f"{name}.t,{name}.u"})
        wait_until("rows of the new table", lambda: second.rows() > 400, 60)
        feed.stop()
        first.wait_rows(feed.sent, 60)
        each = feed.sent // PARTITIONS
        wait_until(
            "the new table to follow",
            lambda: second.query("SELECT min(m) FROM (SELECT max(_offset) m FROM {t} GROUP BY _partition)")
            == [(each - 1,)],
            30,
        )
        assert worker.task_states(name) == ["RUNNING"] * 2
    check_exactly_once(first, feed.sent)
    asked = (
        "SELECT _partition, count(*) = max(_offset) - min(_offset) + 1,"
        " count(DISTINCT _offset) = count(*), max(_offset) FROM {t}"
        " GROUP BY _partition ORDER BY _partition"
    )
    assert second.query(asked) == [(p, True, True, each - 1) for p in range(PARTITIONS)]
    assert 0 < second.rows() < feed.sent


# Promise: a task whose table has changes stops with its topic and both numbers when partitions are added, and
# goes on when the configuration says that it is meant
def test_added_partitions_stop_a_table_with_changes(worker, broker, rest, name):
    broker.create_topic(name, 2)
    config = sink(
        rest,
        name,
        f"{name}.t",
        consumer__override__metadata__max__age__ms="1000",
        iceberg__tables__default_mode="upsert",
        iceberg__tables__default_id_columns="id",
    )
    view = TableView(rest, f"{name}.t")
    worker.create(name, config)
    worker.wait_running(name)
    broker.produce_json(name, data.orders(20, 0), lambda index: index % 2)
    view.wait_rows(20, 60)
    broker.add_partitions(name, 4)
    # Records make the task look at the table again; where they land does not matter.
    orders = data.orders(20, 20)

    def stopped() -> str | None:
        broker.produce_json(name, orders, lambda index: index % 4)
        return worker.failure(name)

    trace = wait_until("the task to stop", stopped, 60, 1)
    for part in ("TOPIC_PARTITIONS_ADDED", "4 partitions", "had 2", "frazil.partitions.accept=4", f"topic={name}"):
        assert part in trace, trace
    # The configuration as it is would not be taken again.
    with pytest.raises(RestError, match="TOPIC_PARTITIONS_ADDED"):
        worker.insist("PUT", f"/connectors/{name}/config", config)
    worker.insist("PUT", f"/connectors/{name}/config", config | {"frazil.partitions.accept": "4"})
    view.wait_rows(40, 90)
    worker.delete(name)
