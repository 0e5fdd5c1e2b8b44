"""What Spark makes of our tables, in format 2 and 3, through a SQL and a REST catalog.

Not a part of CI: Spark is large and slow. By hand, with SPARK a folder of your choice:

    pip install --target SPARK pyspark==4.1.1
    mvn dependency:copy -DoutputDirectory=SPARK \
        -Dartifact=org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0
    FRAZIL_SPARK=SPARK build/venv/bin/python -m pytest -c tests/pytest.ini \
        tests/interop/spark_check.py

A real worker writes the tables of `test_readers.py`, and tables with changes. Spark opens them by their catalog, and has to
say what DuckDB says. At the end it is the other way around: tables that Spark made are continued. The
last result is in docs/compatibility.md.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyiceberg.catalog import load_catalog

from bed.artifacts import libraries
from bed.catalogs import SqlCatalog
from bed.process import wait_until
from bed.read import TableView
from bed.sink import ENVELOPE, envelope, running, sink

sys.path.append(os.environ["FRAZIL_SPARK"])
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
import test_encodings
from test_readers import (
    ARROW,
    BEGINNING,
    LONG_TEXTS,
    ROWS,
    TABLES,
    differences,
    long_texts,
    write_long_texts,
    write_tables,
)

# Spark has no type for Iceberg's `time`, and opens no table with one.
NAMES = [name for name in ARROW.names if name != "wake"]
WITHOUT_TIME = {
    "transforms": "untimed",
    "transforms__untimed__type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "transforms__untimed__exclude": "wake",
}
# What Spark's own transform functions say that the partition of a row is.
PARTITIONS = {
    "identity": ("name", "name"),
    "year": ("ts_year", "{c}.system.years(ts)"),
    "month": ("ts_month", "{c}.system.months(ts)"),
    "day": ("ts_day", "{c}.system.days(ts)"),
    "hour": ("ts_hour", "{c}.system.hours(ts)"),
    "bucket": ("id_bucket", "{c}.system.bucket(7, id)"),
    "trunc": ("name_trunc", "{c}.system.truncate(2, name)"),
    "mixed": ("name_bucket", "{c}.system.bucket(3, name)"),
}
# Filters on the column that a table is partitioned by: some files need not be read.
PRUNED = {
    "identity": ["name = 'björk'", "name = ''", "name IS NULL", "name IN ('a/b=c d', 'Chidi')"],
    "year": ["ts < TIMESTAMP '1970-01-01 00:00:00+00:00'"],
    "month": ["ts < TIMESTAMP '1969-12-20 05:00:00+00:00'", "ts IS NULL"],
    "day": [
        "ts >= TIMESTAMP '1970-01-03 00:00:00+00:00' AND ts < TIMESTAMP '1970-01-07 12:00:00+00:00'"
    ],
    "hour": [
        "ts BETWEEN TIMESTAMP '1969-12-24 04:00:01+00:00' AND TIMESTAMP '1970-01-05 03:00:00+00:00'"
    ],
    "bucket": ["id = 123", "id IN (1, 599)"],
    "trunc": ["name LIKE 'zz%'", "name = 'björk'", "name LIKE '日本%'"],
    "mixed": ["name = 'Chidi' AND born < DATE '1970-01-01'"],
}
# Filters on other columns, for every table.
ANY = [
    "n > 100000 AND ok",
    "price < 0 AND place.city = 'Chidi'",
    "d IS NULL OR f >= 295.5",
]


@pytest.fixture(scope="module")
def spark(scratch, rest):
    """Spark on one core, with the SQL catalog as `iceberg` and the REST catalog as `rest`."""
    runtime = [str(jar) for jar in Path(os.environ["FRAZIL_SPARK"]).glob("iceberg-spark-*.jar")]
    assert len(runtime) == 1, "FRAZIL_SPARK has to have one iceberg-spark-runtime"
    driver = [str(jar) for jar in libraries("rest").glob("sqlite-jdbc-*.jar")]
    sql = SqlCatalog(scratch / "spark")
    catalog = "org.apache.iceberg.spark.SparkCatalog"
    options = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.jars": ",".join(runtime + driver),
        "spark.sql.adaptive.enabled": "false",
        # This is the name that the sink gives to its catalog.
        "spark.sql.catalog.iceberg": catalog,
        "spark.sql.catalog.iceberg.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "spark.sql.catalog.iceberg.uri": f"jdbc:sqlite:{sql.database}",
        "spark.sql.catalog.iceberg.warehouse": f"file://{sql.warehouse}",
        "spark.sql.catalog.rest": catalog,
        "spark.sql.catalog.rest.type": "rest",
        "spark.sql.catalog.rest.uri": rest.uri,
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(scratch / "spark-warehouse"),
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[1]")
    for key, value in options.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


KINDS = [(kind, version) for kind in ("iceberg", "rest") for version in (2, 3)]


@pytest.fixture(scope="module", params=KINDS, ids=["sql-v2", "sql-v3", "rest-v2", "rest-v3"])
def kind(request) -> tuple[str, int]:
    return request.param


def catalog_of(request, kind: str):
    if kind == "rest":
        return request.getfixturevalue("rest")
    return SqlCatalog(request.getfixturevalue("scratch") / "spark")


@pytest.fixture(scope="module")
def written(request, worker, broker, kind) -> dict[str, TableView]:
    catalog, version = kind
    name = f"{catalog}_v{version}"
    return write_tables(
        worker, broker, catalog_of(request, catalog), name, version, **WITHOUT_TIME
    )


def called(kind: tuple[str, int], view: TableView) -> str:
    """Returns the name of a table in Spark."""
    return f"{kind[0]}.{view.namespace}.{view.table}"


def by_duckdb(view: TableView, sql: str) -> list[dict]:
    location = view.location()
    answer = view.connection.execute(sql.replace("{t}", f"iceberg_scan('{location}')"))
    return pa.table(answer.arrow()).to_pylist()


def by_spark(spark: SparkSession, table: str, sql: str) -> list[dict]:
    return spark.sql(sql.replace("{t}", table)).toArrow().to_pylist()


def ids_and_files(spark: SparkSession, table: str, where: str) -> tuple[list[int], int]:
    """Returns the ids that a filter finds and how many files Spark read for them."""
    frame = spark.sql(f"SELECT id FROM {table} WHERE {where}")
    ids = sorted(entry.id for entry in frame.collect())
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    assert leaves.size() == 1
    return ids, leaves.apply(0).metrics().apply("resultDataFiles").value()


def test_every_value(spark, kind, written):
    for key, view in written.items():
        columns = ", ".join(NAMES)
        found = spark.sql(f"SELECT {columns} FROM {called(kind, view)}").toArrow()
        assert found.num_rows == ROWS
        assert differences(view, found, NAMES) == [], f"Spark, {key}"
        assert differences(view, None, NAMES) == [], f"DuckDB, {key}"


def test_counts_sums_nulls_and_extremes(spark, kind, written):
    """Spark takes counts and extremes from our manifests alone where they can be exact."""
    flat = [name for name in NAMES if name not in ("tags", "place")]
    exact = [name for name in flat if name not in ("name", "raw")]
    counts = [f"count({name}) AS {name}" for name in NAMES]
    sums = [f"CAST(sum({name}) AS BIGINT) AS {name}" for name in ("id", "n", "small")]
    sums += ["CAST(sum(price) AS DECIMAL(38, 2)) AS price", "sum(f) AS f", "sum(d) AS d"]

    def extremes(names: list[str]) -> list[str]:
        return [f"min({name}) AS {name}_0, max({name}) AS {name}_1" for name in names]

    for key, view in written.items():
        table = called(kind, view)
        for what, unread in (
            (["count(*) AS rows", *counts[: len(flat)]], True),
            (extremes(exact), True),
            (counts[len(flat) :] + extremes(["name", "raw"]) + sums, False),
        ):
            sql = f"SELECT {', '.join(what)} FROM {{t}}"
            plan = spark.sql("EXPLAIN " + sql.replace("{t}", table)).collect()[0].plan
            assert ("LocalTableScan" in plan) == unread, plan
            assert by_spark(spark, table, sql) == by_duckdb(view, sql), key
        files = "SELECT sum(record_count) AS rows FROM {t}"
        assert by_spark(spark, f"{table}.partitions", files) == [{"rows": ROWS}], key


def test_partitions_are_those_of_sparks_transforms(spark, kind, written):
    for key, (field, function) in PARTITIONS.items():
        value = function.format(c=kind[0])
        sql = f"SELECT count(*) AS n FROM {{t}} WHERE NOT (_partition.{field} <=> {value})"
        assert by_spark(spark, called(kind, written[key]), sql) == [{"n": 0}], key


def test_filters_and_pruning(spark, kind, written):
    for key, view in written.items():
        table = called(kind, view)
        all_files = spark.table(f"{table}.files").count()
        for where in PRUNED.get(key, []) + ANY:
            ids, files = ids_and_files(spark, table, where)
            right = view.query(f"SELECT id FROM {{t}} WHERE {where} ORDER BY id")
            assert ids == [number for (number,) in right], (key, where)
            if where not in ANY:
                assert ids, (key, where)
                assert files < all_files, (key, where)


def test_row_ids(spark, kind, written):
    if kind[1] == 2:
        pytest.skip("format 2 has no row ids")
    sql = (
        "SELECT count(*) AS rows, count(DISTINCT _row_id) AS ids, min(_row_id) AS first,"
        " max(_row_id) AS last, count(_last_updated_sequence_number) AS sequenced FROM {t}"
    )
    right = {"rows": ROWS, "ids": ROWS, "first": 0, "last": ROWS - 1, "sequenced": ROWS}
    for key, view in written.items():
        assert by_spark(spark, called(kind, view), sql) == [right], key


def test_long_texts(request, spark, kind, worker, broker):
    catalog, version = kind
    name = f"{catalog}_long_v{version}"
    view = write_long_texts(worker, broker, catalog_of(request, catalog), name, version)
    table, texts = called(kind, view), long_texts()
    for number in (0, LONG_TEXTS // 2, LONG_TEXTS - 1):
        assert ids_and_files(spark, table, f"s = '{texts[number]}'")[0] == [number]
    for where, count in (
        (f"s >= '{BEGINNING}019990'", 10),
        (f"s < '{BEGINNING}000003'", 3),
        (f"s LIKE '{BEGINNING}0123%'", 100),
        (f"s > '{BEGINNING}'", LONG_TEXTS),
        (f"s = '{BEGINNING}'", 0),
    ):
        ids, _ = ids_and_files(spark, table, where)
        right = view.query(f"SELECT id FROM {{t}} WHERE {where} ORDER BY id")
        assert ids == [number for (number,) in right] and len(ids) == count, where
    whole = "SELECT count(*) AS n, min(s) AS least, max(s) AS most, sum(length(s)) AS size FROM {t}"
    assert by_spark(spark, table, whole) == by_duckdb(view, whole)


@pytest.mark.parametrize("version", [2, 3])
def test_each_encoding(spark, worker, broker, rest, version):
    """Vectorized, which Spark does for columns that are not nested, and one by one."""
    name = f"spark_encodings_v{version}"
    catalog = load_catalog("encodings", type="rest", uri=rest.uri)
    tables = test_encodings.create(catalog, name, version)
    views = test_encodings.write_encodings(worker, broker, rest, tables, name)
    every = test_encodings.ARROW.names
    flat = [column for column in every if column not in ("li", "ls", "ma", "st")]
    for key, view in views.items():
        for vectorized, names in (("true", flat), ("false", flat), ("true", every)):
            reader = spark.read.option("vectorization-enabled", vectorized)
            found = reader.table(f"rest.{view.namespace}.{view.table}").select(*names).toArrow()
            assert found.num_rows == test_encodings.ROWS
            assert test_encodings.differences(view, found, names) == [], (key, vectorized)


def test_a_table_with_a_time_is_not_opened(request, spark, worker, broker, scratch):
    """A limit of Iceberg's Spark runtime; when this fails the limit is gone."""
    view = write_tables(worker, broker, SqlCatalog(scratch / "spark"), "timed", 2)["plain"]
    with pytest.raises(PySparkException, match="Spark does not support time fields"):
        spark.table(f"iceberg.{view.namespace}.{view.table}").collect()


def continued(worker, broker, rest, name: str, records: list[dict]) -> None:
    """Has Frazil add records to a table of Spark's, which is `rest.<name>.t`."""
    view = TableView(rest, f"{name}.t")
    before = view.rows()
    broker.create_topic(name)
    broker.produce_json(name, records)
    with running(worker, name, sink(rest, name, f"{name}.t")):
        view.wait_rows(before + len(records), 90)


def test_a_table_that_spark_made_and_evolved_is_continued(spark, worker, broker, rest):
    """Columns renamed, dropped, widened and added, another partition spec, a sort order."""
    name, table = "sparkmade", "rest.sparkmade.t"
    for sql in (
        "CREATE NAMESPACE rest.sparkmade",
        f"CREATE TABLE {table} (id BIGINT NOT NULL, name STRING, old STRING, qty INT, ts TIMESTAMP)"
        " USING iceberg PARTITIONED BY (bucket(4, id)) TBLPROPERTIES ('format-version' = '2')",
        f"INSERT INTO {table} SELECT id, concat('n', id), 'gone', CAST(id AS INT),"
        " timestamp '2026-11-01 00:00:00' FROM range(6)",
        f"ALTER TABLE {table} RENAME COLUMN name TO title",
        f"ALTER TABLE {table} DROP COLUMN old",
        f"ALTER TABLE {table} ALTER COLUMN qty TYPE BIGINT",
        f"ALTER TABLE {table} ADD COLUMN place STRUCT<city: STRING>",
        f"ALTER TABLE {table} DROP PARTITION FIELD bucket(4, id)",
        f"ALTER TABLE {table} ADD PARTITION FIELD days(ts)",
        f"ALTER TABLE {table} WRITE ORDERED BY id",
    ):
        spark.sql(sql)
    records = [
        {
            "id": number,
            "title": f"t{number}",
            "qty": 3_000_000_000 + number,
            "old": "no column",
            "place": {"city": f"c{number}"},
            "ts": f"2026-11-0{number % 3 + 1}T05:00:00Z",
        }
        for number in reversed(range(100, 160))
    ]
    continued(worker, broker, rest, name, records)
    spark.sql(f"REFRESH TABLE {table}")
    rows = by_spark(spark, table, "SELECT id, title, qty, place.city AS city FROM {t} ORDER BY id")
    old = [{"id": n, "title": f"n{n}", "qty": n, "city": None} for n in range(6)]
    new = [
        {"id": n, "title": f"t{n}", "qty": 3_000_000_000 + n, "city": f"c{n}"}
        for n in range(100, 160)
    ]
    assert rows == old + new
    sql = "SELECT count(*) AS n FROM {t} WHERE id >= 100 AND NOT (_partition.ts_day <=> CAST(ts AS DATE))"
    assert by_spark(spark, table, sql) == [{"n": 0}]
    files = "SELECT spec_id, sum(record_count) AS n FROM {t} GROUP BY spec_id ORDER BY spec_id"
    assert [row["n"] for row in by_spark(spark, f"{table}.files", files)] == [6, 60]


def test_files_that_spark_added_without_field_ids_are_continued(
    spark, worker, broker, rest, scratch
):
    name, table = "sparkadded", "rest.sparkadded.t"
    folder = scratch / "plain-files"
    folder.mkdir()
    plain = pa.table({"title": ["n0", "n1"], "id": pa.array([0, 1], pa.int64())})
    pq.write_table(plain, folder / "plain.parquet")
    spark.sql("CREATE NAMESPACE rest.sparkadded")
    spark.sql(f"CREATE TABLE {table} (id BIGINT, title STRING) USING iceberg")
    spark.sql(
        f"CALL rest.system.add_files(table => '{name}.t', source_table => '`parquet`.`file://{folder}`')"
    )
    continued(
        worker, broker, rest, name, [{"id": n, "title": f"t{n}"} for n in range(2, 10)]
    )
    spark.sql(f"REFRESH TABLE {table}")
    rows = by_spark(spark, table, "SELECT id, title FROM {t} ORDER BY id")
    assert rows == [{"id": n, "title": f"{'n' if n < 2 else 't'}{n}"} for n in range(10)]
    properties = TableView(rest, f"{name}.t").metadata()["properties"]
    assert "schema.name-mapping.default" in properties


class Changes:
    """Upserts and deletes at random, and the rows that are there after them."""

    FIELDS = [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "part", "type": "string", "optional": False},
        {"field": "v", "type": "int64", "optional": False},
    ]

    def __init__(self, broker, topic: str, view: TableView) -> None:
        self.broker, self.topic, self.view = broker, topic, view
        self.dice = random.Random(topic)
        self.rows: dict[int, tuple[str, int]] = {}
        self.history: list[dict[int, tuple[str, int]]] = []

    def send(self, count: int) -> None:
        """Sends changes, and waits until the table shows them."""
        records = []
        for _ in range(count):
            key = self.dice.randrange(200)
            if self.dice.random() < 0.25:
                self.rows.pop(key, None)
                records.append((0, self._key(key), None))
                continue
            self.rows[key] = (self.dice.choice("abc"), self.dice.randrange(10**6))
            part, v = self.rows[key]
            records.append((0, self._key(key), envelope(self.FIELDS, {"id": key, "part": part, "v": v})))
        self.broker.produce(self.topic, records)
        wait_until("the changes", lambda: self._there() == self.rows, 60, 0.5)
        self.history.append(dict(self.rows))

    def _key(self, key: int) -> bytes:
        return json.dumps({"id": key}).encode()

    def _there(self) -> dict[int, tuple[str, int]]:
        if self.view.location() is None or not self.view.metadata().get("snapshots"):
            return {}
        found = self.view.query("SELECT id, part, v FROM {t}")
        rows = {id: (part, v) for id, part, v in found}
        assert len(rows) == len(found), "a key is there twice"
        return rows


@pytest.mark.parametrize("version", [2, 3])
def test_a_table_with_changes(spark, worker, broker, rest, version):
    """Spark reads every snapshot, changes the table itself and compacts it, and we go on."""
    name = f"spark_changes_v{version}"
    view, table = TableView(rest, f"{name}.t"), f"rest.{name}.t"
    broker.create_topic(name)
    config = sink(
        rest,
        name,
        f"{name}.t",
        **ENVELOPE,
        key__converter="org.apache.kafka.connect.json.JsonConverter",
        key__converter__schemas__enable="false",
        iceberg__tables__default_mode="upsert",
        iceberg__tables__default_id_columns="id",
        iceberg__tables__default_partition_by="part",
        iceberg__tables__auto_create_props__format_version=str(version),
    )
    changes = Changes(broker, name, view)

    def by_spark_now(as_of: str = "") -> dict[int, tuple[str, int]]:
        found = by_spark(spark, table, f"SELECT id, part, v FROM {{t}}{as_of}")
        rows = {row["id"]: (row["part"], row["v"]) for row in found}
        assert len(rows) == len(found), "a key is there twice"
        return rows

    with running(worker, name, config):
        for _ in range(6):
            changes.send(150)
        seen: list[dict] = []
        for snapshot in view.snapshots():
            rows = by_spark_now(f" VERSION AS OF {snapshot['snapshot-id']}")
            if not seen or seen[-1] != rows:
                seen.append(rows)
        # A send may be two commits.
        assert [rows for rows in seen if rows in changes.history] == changes.history
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode'='merge-on-read',"
                  " 'write.update.mode'='merge-on-read')")
        spark.sql(f"DELETE FROM {table} WHERE id % 7 = 0")
        spark.sql(f"UPDATE {table} SET v = -1 WHERE id % 5 = 0")
        changes.rows = {
            key: (part, -1 if key % 5 == 0 else v)
            for key, (part, v) in changes.rows.items()
            if key % 7
        }
        assert by_spark_now() == changes.rows
        changes.send(150)
        spark.sql(f"REFRESH TABLE {table}")
        spark.sql(f"CALL rest.system.rewrite_data_files(table => '{name}.t', options => map('rewrite-all', 'true'))")
        changes.send(150)
    spark.sql(f"REFRESH TABLE {table}")
    assert by_spark_now() == changes.rows
