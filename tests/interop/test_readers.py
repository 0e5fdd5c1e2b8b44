"""What other engines make of our tables: every transform, format 2 and 3, values and bounds."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from urllib.parse import quote_plus

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

from bed.catalogs import SqlCatalog
from bed.read import Question, TableView, ask_java, local, pyiceberg_table
from bed.sink import ENVELOPE, running, sink

ROWS = 600
LOGICAL = "org.apache.kafka.connect.data."
FIELDS = [
    {"field": "id", "type": "int64", "optional": False},
    {"field": "n", "type": "int32", "optional": True},
    {"field": "small", "type": "int16", "optional": True},
    {"field": "f", "type": "float", "optional": True},
    {"field": "d", "type": "double", "optional": True},
    {"field": "ok", "type": "boolean", "optional": True},
    {"field": "name", "type": "string", "optional": True},
    {"field": "raw", "type": "bytes", "optional": True},
    {
        "field": "price",
        "type": "bytes",
        "name": LOGICAL + "Decimal",
        "version": 1,
        "parameters": {"scale": "2"},
        "optional": True,
    },
    {"field": "born", "type": "int32", "name": LOGICAL + "Date", "version": 1, "optional": True},
    {"field": "wake", "type": "int32", "name": LOGICAL + "Time", "version": 1, "optional": True},
    {"field": "ts", "type": "int64", "name": LOGICAL + "Timestamp", "version": 1, "optional": True},
    {"field": "tags", "type": "array", "items": {"type": "string", "optional": True}}
    | {"optional": True},
    {
        "field": "place",
        "type": "struct",
        "optional": True,
        "fields": [
            {"field": "city", "type": "string", "optional": True},
            {"field": "zip", "type": "int32", "optional": True},
        ],
    },
]
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int32()),
        ("small", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("ok", pa.bool_()),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("price", pa.decimal128(38, 2)),
        ("born", pa.date32()),
        ("wake", pa.time64("us")),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
    ]
)
NAMES = ("Ægir", "björk", "Chidi", "日本語の長い名前がここに入ります、はい", "", "a/b=c d", "zz" * 40)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
TABLES = {
    "plain": "",
    "identity": "name",
    "year": "year(ts)",
    "month": "month(ts)",
    "day": "day(ts)",
    "hour": "hour(ts)",
    "bucket": "bucket(id, 7)",
    "trunc": "truncate(name, 2)",
    "nothing": "void(n)",
    "mixed": "bucket(name, 3), year(born)",
}


def millis(number: int) -> int:
    """Milliseconds around the epoch, some hours apart, never at a full second."""
    return (number % 40 - 20) * 3_600_000 * 31 + 1_501


def payload(number: int) -> dict:
    """The n-th row in JSON. Every seventh row is as null as it may be."""
    if number % 7 == 0:
        return {"id": number} | {field["field"]: None for field in FIELDS[1:]}
    cents = (number * 37 - 9000).to_bytes(4, "big", signed=True)
    return {
        "id": number,
        "n": number * 1000 - 250_000,
        "small": number - 300,
        "f": number / 2,
        "d": -number / 4,
        "ok": number % 3 == 0,
        "name": NAMES[number % len(NAMES)],
        "raw": base64.b64encode(bytes([number % 256, 0, 255])).decode(),
        "price": base64.b64encode(cents).decode(),
        "born": number - 300,
        "wake": number * 1001 + 1,
        "ts": millis(number),
        "tags": ["x", None, str(number)][: number % 4],
        "place": {"city": NAMES[(number + 1) % len(NAMES)], "zip": None if number % 2 else number},
    }


def row(number: int) -> dict:
    """The n-th row as it has to be read."""
    sent = payload(number)
    if number % 7 == 0:
        return sent
    return sent | {
        "raw": base64.b64decode(sent["raw"]),
        "price": decimal.Decimal(number * 37 - 9000).scaleb(-2),
        "born": EPOCH.date() + datetime.timedelta(days=sent["born"]),
        "wake": (EPOCH + datetime.timedelta(milliseconds=sent["wake"])).time(),
        "ts": EPOCH + datetime.timedelta(milliseconds=sent["ts"]),
    }


EXPECTED = pa.Table.from_pylist([row(number) for number in range(ROWS)], schema=ARROW)


def write_tables(worker, broker, catalog, name: str, version: int, **more: str):
    """Writes the same rows into one table for each transform, by one connector whose
    configuration also has what `more` says."""
    head = b'{"schema":' + json.dumps(
        {"type": "struct", "optional": False, "fields": FIELDS}
    ).encode()
    broker.create_topic(name)
    broker.produce(
        name,
        (
            (0, None, head + b',"payload":' + json.dumps(payload(number)).encode() + b"}")
            for number in range(ROWS)
        ),
    )
    tables = {key: f"{name}.{key}" for key in TABLES}
    config = sink(catalog, name, ",".join(tables.values()), **ENVELOPE, **more)
    config["iceberg.tables.auto-create-props.format-version"] = str(version)
    for key, by in TABLES.items():
        if by:
            config[f"iceberg.table.{tables[key]}.partition-by"] = by
    views = {key: TableView(catalog, table) for key, table in tables.items()}
    with running(worker, name, config):
        for view in views.values():
            view.wait_rows(ROWS, 120)
    assert {view.metadata()["format-version"] for view in views.values()} == {version}
    return views


@pytest.fixture(scope="module", params=[2, 3], ids=["v2", "v3"])
def written(request, worker, broker, scratch) -> dict[str, TableView]:
    name = f"interop_v{request.param}"
    return write_tables(worker, broker, SqlCatalog(scratch / name), name, request.param)


def differences(
    view: TableView, found: pa.Table | None = None, names: list[str] = ARROW.names
) -> list[tuple]:
    """Compares the table as DuckDB (or, in `found`, another engine) reads it with what was sent."""
    columns = ", ".join(names)
    view.connection.register("expected", EXPECTED)
    right = "{t}"
    if found is not None:
        view.connection.register("found", found)
        right = "found"
    sides = [f"SELECT {columns} FROM expected", f"SELECT {columns} FROM {right}"]
    return [
        *view.query(f"({sides[0]}) EXCEPT ALL ({sides[1]})"),
        *view.query(f"({sides[1]}) EXCEPT ALL ({sides[0]})"),
    ]


# Promise: DuckDB reads every value of every type, for each partition transform, format 2 and 3
def test_duckdb_reads_every_value(written):
    assert {key: differences(view) for key, view in written.items()} == dict.fromkeys(TABLES, [])


# Promise: pyiceberg reads every value of every type, for each partition transform, format 2 and 3
def test_pyiceberg_reads_every_value(written):
    found = {
        key: differences(view, pyiceberg_table(view).scan().to_arrow())
        for key, view in written.items()
    }
    assert found == dict.fromkeys(TABLES, [])


def as_java_says(value) -> str | None:
    """Writes a value the way that Iceberg's Java types print themselves."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.") + f"{value.microsecond // 1000:03}Z"
    if isinstance(value, datetime.time):
        text = value.strftime("%H:%M:%S")
        return text + f".{value.microsecond // 1000:03}" if value.microsecond else text
    return str(value)


# Promise: Iceberg's Java library reads every value, for each partition transform, format 2 and 3
def test_iceberg_java_reads_every_value(written):
    answers = ask_java([Question(view.location(), "rows") for view in written.values()])
    flat = [column for column in ARROW.names if column not in ("tags", "place")]
    expected = [
        {column: as_java_says(row(number)[column]) for column in flat} for number in range(ROWS)
    ]
    for key, rows in zip(TABLES, answers):
        found = [{column: entry[column] for column in flat} for entry in rows]
        found.sort(key=lambda entry: int(entry["id"]))
        # An empty text and the word null look alike only to whoever does not look.
        assert found == expected, key


def partition_of(key: str, number: int) -> str:
    """Returns the partition path that Iceberg's Java library shows for a row."""
    value = row(number)

    def moment(pattern: str) -> str:
        return "null" if value["ts"] is None else value["ts"].strftime(pattern)

    def text(name: str | None) -> str:
        return "null" if name is None else quote_plus(name, safe="*-._")

    def bucket(count: int, kind, source) -> str:
        found = BucketTransform(count).transform(kind)(source)
        return "null" if found is None else str(found)

    if key == "bucket":
        return f"id_bucket={bucket(7, LongType(), number)}"
    return {
        "plain": "",
        "identity": f"name={text(value['name'])}",
        "year": f"ts_year={moment('%Y')}",
        "month": f"ts_month={moment('%Y-%m')}",
        "day": f"ts_day={moment('%Y-%m-%d')}",
        "hour": f"ts_hour={moment('%Y-%m-%d-%H')}",
        "trunc": f"name_trunc={text(value['name'] and value['name'][:2])}",
        "nothing": "n_null=null",
    }[key]


# Promise: each row is in the partition that its transform gives, as Iceberg's Java library shows it
def test_each_row_is_in_its_partition(written):
    keys = [key for key in TABLES if key != "mixed"]
    answers = ask_java([Question(written[key].location(), "files") for key in keys])
    for key, files in zip(keys, answers):
        connection = written[key].connection
        for file in files:
            ids = connection.execute(
                f"SELECT id FROM read_parquet('{local(file['path'])}')"
            ).fetchall()
            found = {partition_of(key, number) for (number,) in ids}
            assert found == {file["partition"]}, key


# Promise: counts, nulls and bounds of each file and column are true
def test_the_metrics_of_each_file_are_true(written):
    answers = ask_java([Question(view.location(), "files") for view in written.values()])
    flat = [column for column in ARROW.names if column not in ("tags", "place")]
    for (key, view), files in zip(written.items(), answers):
        assert sum(int(file["rows"]) for file in files) == ROWS, key
        for file in files:
            ids = [
                number
                for (number,) in view.connection.execute(
                    f"SELECT id FROM read_parquet('{local(file['path'])}')"
                ).fetchall()
            ]
            assert len(ids) == int(file["rows"])
            for column in flat:
                check_bounds(file, column, [row(number)[column] for number in ids])


def as_bound(value) -> str | None:
    """Writes a bound as Iceberg keeps it: dates in days, times and timestamps in microseconds."""
    if isinstance(value, datetime.datetime):
        return str((value - EPOCH) // datetime.timedelta(microseconds=1))
    if isinstance(value, datetime.date):
        return str((value - EPOCH.date()).days)
    if isinstance(value, datetime.time):
        since = datetime.datetime.combine(EPOCH.date(), value) - EPOCH.replace(tzinfo=None)
        return str(since // datetime.timedelta(microseconds=1))
    return as_java_says(value)


def check_bounds(file: dict, column: str, values: list) -> None:
    present = [value for value in values if value is not None]
    lower, upper = file[f"{column}.lower"], file[f"{column}.upper"]
    assert file[f"{column}.values"] == str(len(values)), column
    assert file[f"{column}.nulls"] == str(len(values) - len(present)), column
    if not present:
        assert lower is None and upper is None, column
        return
    least, most = as_bound(min(present)), as_bound(max(present))
    assert least is not None and most is not None
    if isinstance(present[0], (str, bytes)):
        # A long text's bound may be cut, but then the upper one has to be above it.
        assert lower is not None and lower <= least and least.startswith(lower), column
        assert upper is None or upper.encode() >= most.encode(), column
        if len(most.encode()) <= 16:
            assert upper == most, column
    else:
        assert (lower, upper) == (least, most), column


# Promise: rows of a format 3 table have row ids, in one row of numbers
# Case: 25
def test_format_3_has_row_lineage(written):
    for key, view in written.items():
        metadata = view.metadata()
        if metadata["format-version"] == 2:
            assert "next-row-id" not in metadata
            continue
        assert metadata["next-row-id"] == ROWS, key
        first = [snapshot["first-row-id"] for snapshot in metadata["snapshots"]]
        added = [snapshot["added-rows"] for snapshot in metadata["snapshots"]]
        assert [sum(added[:n]) for n in range(len(added))] == first, key
    v3 = [view for view in written.values() if view.metadata()["format-version"] == 3]
    for files in ask_java([Question(view.location(), "files") for view in v3]):
        starts = sorted((int(file["first_row_id"]), int(file["rows"])) for file in files)
        following = 0
        for first_id, count in starts:
            assert first_id == following
            following += count


LONG_TEXTS = 20_000
BEGINNING = "the same beginning for each and every row of this column, " * 2


def long_texts() -> list[str]:
    """Texts that are all different, but not in their first 64 bytes."""
    return [f"{BEGINNING}{(n * 7919) % LONG_TEXTS:06} {'x' * 60}" for n in range(LONG_TEXTS)]


def write_long_texts(worker, broker, catalog, name: str, version: int = 2) -> TableView:
    """Writes long texts into a table whose files have three row groups and more."""
    broker.create_topic(name)
    broker.produce_json(name, ({"id": n, "s": text} for n, text in enumerate(long_texts())))
    config = sink(catalog, name, f"{name}.t")
    config["iceberg.control.commit.interval-ms"] = "5000"
    config["iceberg.tables.auto-create-props.format-version"] = str(version)
    config["iceberg.tables.write-props.write.parquet.row-group-size-bytes"] = "262144"
    view = TableView(catalog, f"{name}.t")
    with running(worker, name, config):
        view.wait_rows(LONG_TEXTS, 90)
    paths = [local(f["path"]) for f in ask_java([Question(view.location(), "files")])[0]]
    groups = view.connection.execute(
        f"SELECT max(n) FROM (SELECT count(DISTINCT row_group_id) AS n"
        f" FROM parquet_metadata({paths}) GROUP BY file_name)"
    ).fetchall()[0][0]
    assert groups >= 3, "one row group proves nothing"
    return view


# Promise: a filter on long texts that differ only after 64 bytes finds its rows in every row group
def test_long_texts_are_filtered_right(worker, broker, scratch, name):
    texts = long_texts()
    view = write_long_texts(worker, broker, SqlCatalog(scratch / name), name)
    location = view.location()
    table = pyiceberg_table(view)
    wanted = [texts[0], texts[LONG_TEXTS // 2], texts[-1]]
    equal = [{"type": "eq", "term": "s", "value": text} for text in wanted]
    above = {"type": "gt-eq", "term": "s", "value": f"{BEGINNING}019990"}
    *by_equality, by_range = ask_java([Question(location, "rows", f) for f in [*equal, above]])
    for text, found in zip(wanted, by_equality):
        assert [entry["s"] for entry in found] == [text]
        assert view.query(f"SELECT s FROM {{t}} WHERE s = '{text}'") == [(text,)]
        assert table.scan(row_filter=f"s = '{text}'").to_arrow()["s"].to_pylist() == [text]
    ten = sorted(text for text in texts if text >= f"{BEGINNING}019990")
    assert len(ten) == 10
    assert sorted(entry["s"] for entry in by_range) == ten
    asked = f"SELECT s FROM {{t}} WHERE s >= '{BEGINNING}019990' ORDER BY s"
    assert [text for (text,) in view.query(asked)] == ten
