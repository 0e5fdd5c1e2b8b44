"""Debezium for real: a database, its connector and ours in one Connect worker, which is killed twice.
At the end the tables in the database and ours hold the same rows."""

from __future__ import annotations

import json
import os

import pytest
import shop as shops
from checks import check_deletes

from bed.debezium import WITH_SCHEMAS, mysql_source, postgres_source
from bed.exactly import SHORT_SESSION
from bed.process import wait_until
from bed.read import TableView
from bed.sink import sink

SECONDS = float(os.environ.get("FRAZIL_CDC_SECONDS", "60"))


class Pipeline:
    """A source and a sink of one worker, and what becomes of the tables of a shop in between."""

    def __init__(
        self, worker, broker, catalog, shop: shops.Shop, prefix: str, *, partitions: int = 3
    ) -> None:
        self.worker, self.broker, self.shop, self.prefix = worker, broker, shop, prefix
        self.partitions = partitions
        self.topics = [f"{prefix}.{table}" for table in shop.tables]
        self.views = {
            table: TableView(catalog, f"{prefix}.{table.split('.')[1]}") for table in shop.tables
        }
        tables = [f"{view.namespace}.{view.table}" for view in self.views.values()]
        self.config = sink(
            catalog,
            ",".join(self.topics),
            ",".join(tables),
            iceberg__tables__default_mode="cdc",
            iceberg__tables__default_id_columns="tenant,nr",
            iceberg__tables__route_source="topic",
            **SHORT_SESSION,
        )
        self.config |= WITH_SCHEMAS
        for topic, table in zip(self.topics, tables):
            self.config[f"iceberg.table.{table}.route-regex"] = topic.replace(".", "\\.")

    def follow(self, source: dict[str, str]) -> None:
        for topic in self.topics:
            self.broker.create_topic(topic, self.partitions)
        self.worker.create(f"{self.prefix}-source", source)
        self.worker.wait_running(f"{self.prefix}-source")
        self.worker.create(f"{self.prefix}-sink", self.config)
        self.worker.wait_running(f"{self.prefix}-sink")

    def kill(self) -> None:
        self.worker.kill()
        shops.pause(1)
        self.worker.start()
        for name in ("source", "sink"):
            self.worker.wait_running(f"{self.prefix}-{name}", timeout=120)

    def records(self) -> int:
        return sum(self.broker.count(topic) for topic in self.topics)

    def close(self) -> None:
        if self.worker.process.running():
            for name in ("sink", "source"):
                self.worker.delete(f"{self.prefix}-{name}")

    def run(self, source: dict[str, str]) -> None:
        """The workload, with two kills in it, and the comparison at its end."""
        shop = self.shop
        shop.do(100)
        self.follow(source)
        try:
            shops.wait_same(shop, self.views, 60)
            shop.open()
            for _ in range(2):
                shops.pause(SECONDS / 3)
                self.kill()
            shops.pause(SECONDS / 3)
            shop.close()
            shops.wait_same(shop, self.views, 120)
            for name in ("source", "sink"):
                assert self.worker.task_states(f"{self.prefix}-{name}") == ["RUNNING"]
        finally:
            shop.close()
            self.close()
        print(f"{shop.done}, {self.records()} records")
        assert min(shop.done.get(kind, 0) for kind in ("insert", "update", "move", "delete")) > 0
        shops.check_readers(shop, self.views)
        for view in self.views.values():
            check_deletes(view)


@pytest.fixture
def prefix() -> str:
    return shops.unique()


def test_both_databases_answer(postgres, maria):
    """They are where they should be, also where none of the long tests runs."""
    assert postgres.rows("select current_setting('wal_level') as level") == [{"level": "logical"}]
    assert maria.rows({"format": "@@binlog_format"}, "from dual") == [{"format": "ROW"}]


# Promise (long): PostgreSQL's tables, followed by Debezium through two kills of the worker, and ours
# hold the same rows: long values, changes of keys and of partitions, deletes
@pytest.mark.long
@pytest.mark.timeout(0)
def test_postgresql_through_two_kills(debezium_worker, broker, rest, postgres, prefix):
    shop = shops.PostgresShop(postgres, 7, prefix, whole=True)
    pipeline = Pipeline(debezium_worker, broker, rest, shop, prefix)
    orders, whole = pipeline.views.values()
    pipeline.config[f"iceberg.table.{prefix}.{orders.table}.partition-by"] = "day(placed)"
    pipeline.config[f"iceberg.table.{prefix}.{whole.table}.auto-create-props.format-version"] = "3"
    pipeline.run(postgres_source(postgres, prefix, ",".join(pipeline.shop.tables)))
    assert [view.metadata()["format-version"] for view in pipeline.views.values()] == [2, 3]


# Promise (long): PostgreSQL's rows keep the long values that it does not send again (TOAST, REPLICA
# IDENTITY DEFAULT), through two kills of the worker, also where they get other keys and partitions
@pytest.mark.long
@pytest.mark.timeout(0)
def test_postgresql_leaves_values_out_through_two_kills(debezium_worker, broker, rest, postgres, prefix):
    shop = shops.PostgresShop(postgres, 11, prefix, whole=False)
    # Keys that rows leave and get are in one order only within a partition.
    pipeline = Pipeline(debezium_worker, broker, rest, shop, prefix, partitions=1)
    orders, whole = pipeline.views.values()
    pipeline.config[f"iceberg.table.{prefix}.{orders.table}.partition-by"] = "day(placed)"
    pipeline.config[f"iceberg.table.{prefix}.{whole.table}.auto-create-props.format-version"] = "3"
    pipeline.run(postgres_source(postgres, prefix, ",".join(pipeline.shop.tables)))
    topic = f"{prefix}.{shop.tables[0]}"
    _, left_out = _folded(broker, topic)
    print(f"{left_out} changes left values out")
    assert left_out > 0


# Promise (long): MariaDB's tables, followed by Debezium's connector for MySQL through two kills of the
# worker, and ours hold the same rows
@pytest.mark.long
@pytest.mark.timeout(0)
def test_mariadb_as_mysql_through_two_kills(debezium_worker, broker, rest, maria, prefix):
    pipeline = Pipeline(debezium_worker, broker, rest, shops.MariaShop(maria, 8, prefix), prefix)
    pipeline.config["iceberg.tables.default-partition-by"] = "bucket(nr, 4)"
    pipeline.config["iceberg.tables.auto-create-props.format-version"] = "3"
    pipeline.run(mysql_source(maria, broker, prefix, ",".join(pipeline.shop.tables)))


# What Debezium itself does, with nothing of ours: the tests above would not be what they say without it.
@pytest.mark.long
@pytest.mark.parametrize("database", ["postgres", "maria"])
def test_the_source_tells_all_that_the_shop_does(debezium_worker, broker, request, prefix, database):
    server = request.getfixturevalue(database)
    if database == "postgres":
        shop: shops.Shop = shops.PostgresShop(server, 9, prefix, whole=False)
        source = postgres_source(server, prefix, ",".join(shop.tables))
    else:
        shop = shops.MariaShop(server, 9, prefix)
        source = mysql_source(server, broker, prefix, ",".join(shop.tables))
    shop.do(30)
    topics = {table: f"{prefix}.{table}" for table in shop.tables}
    for topic in topics.values():
        broker.create_topic(topic, 2)
    name = f"{prefix}-source"
    debezium_worker.create(name, source)
    try:
        debezium_worker.wait_running(name)
        wait_until("the snapshot", lambda: all(map(broker.count, topics.values())), 60)
        shop.do(300)
        for table, topic in topics.items():
            wanted = {row[:2]: row[2:4] for row in shop.rows(table)}
            wait_until(f"all of {topic}", lambda: _folded(broker, topic)[0] == wanted, 60, 1)
    finally:
        debezium_worker.delete(name)
    left_out = [_folded(broker, topic)[1] for topic in topics.values()]
    assert (left_out[0] > 0) == (database == "postgres"), "only PostgreSQL leaves values out"
    assert left_out[1:] in ([], [0]), "not where it logs whole rows"


def _folded(broker, topic: str) -> tuple[dict, int]:
    """What the changes of a topic come to: status and quantity by key, and how many left a value out."""
    rows: dict[tuple, tuple] = {}
    left_out = 0
    for message in broker.read(topic, broker.count(topic)):
        if message.value() is None:
            continue
        change = json.loads(message.value())["payload"]
        key = json.loads(message.key())["payload"]
        after = change["after"]
        if after is None:
            rows.pop((key["tenant"], key["nr"]))
            continue
        left_out += "__debezium_unavailable_value" in (after["note"], after["payload"])
        rows[after["tenant"], after["nr"]] = (after["status"], after["qty"])
    return rows, left_out
