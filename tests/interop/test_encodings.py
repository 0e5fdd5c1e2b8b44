"""What other engines make of every encoding that a column may get: nulls, pages of nothing but nulls,
nested lists, negative and extreme values, all of them in each encoding."""

from __future__ import annotations

import base64
import datetime
import decimal
import json

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from bed.read import Question, TableView, ask_java, local, pyiceberg_table
from bed.sink import ENVELOPE, running, sink

ROWS = 4_000
PAGE_ROWS = 100
LOGICAL = "org.apache.kafka.connect.data."
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def element(kind, number: int) -> ListType:
    return ListType(element_id=number, element_type=kind, element_required=False)


SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "i", IntegerType(), required=False),
    NestedField(3, "l", LongType(), required=False),
    NestedField(4, "f", FloatType(), required=False),
    NestedField(5, "d", DoubleType(), required=False),
    NestedField(6, "s", StringType(), required=False),
    NestedField(7, "b", BinaryType(), required=False),
    NestedField(8, "dec9", DecimalType(9, 2), required=False),
    NestedField(9, "dec18", DecimalType(18, 4), required=False),
    NestedField(10, "day", DateType(), required=False),
    NestedField(11, "ts", TimestamptzType(), required=False),
    NestedField(12, "ok", BooleanType(), required=False),
    NestedField(13, "li", element(element(LongType(), 15), 14), required=False),
    NestedField(16, "ls", element(StringType(), 17), required=False),
    NestedField(
        18,
        "ma",
        MapType(key_id=19, key_type=StringType(), value_id=20, value_type=LongType(), value_required=False),
        required=False,
    ),
    NestedField(
        21,
        "st",
        StructType(
            NestedField(22, "n", LongType(), required=False),
            NestedField(23, "t", StringType(), required=False),
        ),
        required=False,
    ),
)
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("b", pa.binary()),
        ("dec9", pa.decimal128(9, 2)),
        ("dec18", pa.decimal128(18, 4)),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("ok", pa.bool_()),
        ("li", pa.list_(pa.list_(pa.int64()))),
        ("ls", pa.list_(pa.string())),
        ("ma", pa.map_(pa.string(), pa.int64())),
        ("st", pa.struct([("n", pa.int64()), ("t", pa.string())])),
    ]
)


def connect(field: str, kind: str, **more: object) -> dict:
    return {"field": field, "type": kind, "optional": True, **more}


def logical(field: str, kind: str, name: str, **parameters: str) -> dict:
    more = {"parameters": parameters} if parameters else {}
    return connect(field, kind, name=LOGICAL + name, version=1, **more)


LONGS = {"type": "array", "optional": True, "items": {"type": "int64", "optional": True}}
FIELDS = [
    {"field": "id", "type": "int64", "optional": False},
    connect("i", "int32"),
    connect("l", "int64"),
    connect("f", "float"),
    connect("d", "double"),
    connect("s", "string"),
    connect("b", "bytes"),
    logical("dec9", "bytes", "Decimal", scale="2"),
    logical("dec18", "bytes", "Decimal", scale="4"),
    logical("day", "int32", "Date"),
    logical("ts", "int64", "Timestamp"),
    connect("ok", "boolean"),
    connect("li", "array", items=LONGS),
    connect("ls", "array", items={"type": "string", "optional": True}),
    connect(
        "ma",
        "map",
        keys={"type": "string", "optional": False},
        values={"type": "int64", "optional": True},
    ),
    connect(
        "st",
        "struct",
        fields=[connect("n", "int64"), connect("t", "string")],
    ),
]

# The Parquet columns by what encodings they may have.
WHOLE = ["id", "i", "l", "dec9", "dec18", "day", "ts", "li.element.element", "ma.value", "st.n"]
BROKEN = ["f", "d"]
TEXTS = ["s", "b", "ls.element", "ma.key", "st.t"]
# For each table: of whole numbers, of broken ones, of texts; and what the files must show.
TABLES = {
    "dictionary": ("dictionary", "dictionary", "dictionary"),
    "plain": ("plain", "plain", "plain"),
    "lengths": ("delta_binary_packed", "plain", "delta_length_byte_array"),
    "prefixes": ("delta_binary_packed", "byte_stream_split", "delta_byte_array"),
}
SHOWN = {"dictionary": "RLE_DICTIONARY"}


def mixed(number: int) -> int:
    """Spreads the bits of a number over 64 signed ones."""
    bits = (number * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) % (1 << 64)
    bits ^= bits >> 29
    return bits - (1 << 63)


def one_of(number: int, bits: int) -> int:
    """The extremes of so many bits side by side, and numbers between them."""
    least = -(1 << (bits - 1))
    return [least, -least - 1, 0, -1, 1, mixed(number) >> (64 - bits), number][number % 7]


def text(number: int) -> str:
    return [
        "",
        f"/a/long/beginning/that/many/share/{number:07}",
        f"/a/long/beginning/that/many/share/{number:07}/日本語",
        "x" * (number % 700),
        f"{mixed(number):x}\0🧊",
    ][number % 5]


def is_null(number: int) -> bool:
    """Five pages of nulls in a row, then some."""
    return number % 1_000 < 5 * PAGE_ROWS or number % 11 == 0


def row(number: int) -> dict:
    """The n-th row as it has to be read."""
    if is_null(number):
        return {"id": number} | dict.fromkeys(ARROW.names[1:])
    nine, eighteen = 10**9 - 1, 10**18 - 1
    return {
        "id": number,
        "i": one_of(number, 32),
        "l": one_of(number, 64),
        "f": [0.0, -0.5, 3.0e38, -3.0e38, 1.5 * number][number % 5],
        "d": [0.0, -0.5, 1.7e308, 5e-324, mixed(number) / 3][number % 5],
        "s": text(number),
        "b": text(number + 1).encode()[::-1],
        "dec9": decimal.Decimal([-nine, nine, 0, number - 2_000][number % 4]).scaleb(-2),
        "dec18": decimal.Decimal([-eighteen, eighteen, -1, mixed(number) // 10][number % 4]).scaleb(-4),
        "day": (EPOCH + datetime.timedelta(days=[-700_000, 2_000_000, number][number % 3])).date(),
        "ts": EPOCH + datetime.timedelta(milliseconds=[-1, 0, 253_402_300_799_999, number][number % 4]),
        "ok": number % 3 == 0,
        "li": [[one_of(n, 64), None] if n % 2 else None for n in range(number, number + number % 5)] + [[]],
        "ls": [text(n) for n in range(number, number + number % 4)] + [None],
        "ma": {f"k{n}": one_of(n, 64) if n % 3 else None for n in range(number, number + number % 3)},
        "st": None if number % 13 == 0 else {"n": one_of(number + 3, 64), "t": text(number + 3)},
    }


def sent(number: int) -> dict:
    """The n-th row in JSON with an envelope."""
    value = row(number)
    if is_null(number):
        return value

    def unscaled(name: str, scale: int) -> str:
        whole = int(value[name].scaleb(scale))
        return base64.b64encode(whole.to_bytes(9, "big", signed=True)).decode()

    return value | {
        "b": base64.b64encode(value["b"]).decode(),
        "dec9": unscaled("dec9", 2),
        "dec18": unscaled("dec18", 4),
        "day": (value["day"] - EPOCH.date()).days,
        "ts": (value["ts"] - EPOCH) // datetime.timedelta(milliseconds=1),
    }


def expected() -> pa.Table:
    rows = (row(number) for number in range(ROWS))
    return pa.Table.from_pylist(
        [one | {"ma": None if one["ma"] is None else list(one["ma"].items())} for one in rows],
        schema=ARROW,
    )


def create(catalog, namespace: str, version: int = 2) -> dict[str, str]:
    """Makes a table for each group of encodings, and one whose columns get theirs by their values;
    returns their names."""
    catalog.create_namespace(namespace)
    tables = {key: f"{namespace}.{key}" for key in [*TABLES, "auto"]}
    for key, name in tables.items():
        properties = {
            "format-version": str(version),
            "write.parquet.page-row-limit": str(PAGE_ROWS),
            "write.parquet.row-group-size-bytes": "400000",
        }
        for columns, encoding in zip((WHOLE, BROKEN, TEXTS), TABLES.get(key, ())):
            for column in columns:
                properties[f"frazil.parquet.encoding.column.{column}"] = encoding
        catalog.create_table(name, SCHEMA, properties=properties)
    return tables


def write_encodings(worker, broker, catalog, tables: dict[str, str], topic: str) -> dict[str, TableView]:
    """Writes the same rows into all tables."""
    head = b'{"schema":' + json.dumps(
        {"type": "struct", "optional": False, "fields": FIELDS}
    ).encode()
    broker.create_topic(topic)
    broker.produce(
        topic,
        (
            (0, None, head + b',"payload":' + json.dumps(sent(number)).encode() + b"}")
            for number in range(ROWS)
        ),
    )
    config = sink(catalog, topic, ",".join(tables.values()), **ENVELOPE)
    config["iceberg.control.commit.interval-ms"] = "5000"
    views = {key: TableView(catalog, name) for key, name in tables.items()}
    with running(worker, topic, config):
        for view in views.values():
            view.wait_rows(ROWS, 120)
    return views


@pytest.fixture(scope="module")
def written(worker, broker, rest) -> dict[str, TableView]:
    catalog = load_catalog("encodings", type="rest", uri=rest.uri)
    return write_encodings(worker, broker, rest, create(catalog, "encodings"), "encodings")


def comparable(column: str) -> str:
    """Maps are compared as sorted entries: they have no order."""
    return f"list_sort(map_entries({column})) AS {column}" if column == "ma" else column


def differences(
    view: TableView, found: pa.Table | None = None, names: list[str] = ARROW.names
) -> list[tuple]:
    """Compares the table as DuckDB (or, in `found`, another engine) reads it with what was sent."""
    columns = ", ".join(map(comparable, names))
    view.connection.register("expected", expected())
    right = "{t}"
    if found is not None:
        view.connection.register("found", found)
        right = "found"
    sides = [f"SELECT {columns} FROM expected", f"SELECT {columns} FROM {right}"]
    return [
        *view.query(f"({sides[0]}) EXCEPT ALL ({sides[1]})"),
        *view.query(f"({sides[1]}) EXCEPT ALL ({sides[0]})"),
    ]


def used(view: TableView) -> dict[str, set[str]]:
    """Returns the encodings of each Parquet column, over all files and row groups."""
    paths = [local(file["path"]) for file in ask_java([Question(view.location(), "files")])[0]]
    rows = view.connection.execute(
        f"SELECT path_in_schema, encodings FROM parquet_metadata({paths})"
    ).fetchall()
    found: dict[str, set[str]] = {}
    for path, encodings in rows:
        name = path.replace(", ", ".").replace(".list.", ".").replace(".key_value.", ".")
        found.setdefault(name, set()).update(encodings.replace("[", "").replace("]", "").split(", "))
    return found


def test_each_column_has_the_encoding_that_is_asked_for(written):
    for key, (whole, broken, texts) in TABLES.items():
        found = used(written[key])
        for columns, encoding in ((WHOLE, whole), (BROKEN, broken), (TEXTS, texts)):
            for column in columns:
                assert SHOWN.get(encoding, encoding.upper()) in found[column], f"{key}: {found}"
    auto = used(written["auto"])
    for column, encoding in (
        ("id", "DELTA_BINARY_PACKED"),
        ("i", "RLE_DICTIONARY"),
        ("s", "DELTA_LENGTH_BYTE_ARRAY"),
        ("b", "DELTA_LENGTH_BYTE_ARRAY"),
    ):
        assert encoding in auto[column], auto


# Promise: DuckDB reads every value from each encoding that a column may get: pages of nulls, nested
# lists and maps, negative and extreme values among them
def test_duckdb_reads_each_encoding(written):
    assert {key: differences(view) for key, view in written.items()} == dict.fromkeys(written, [])


# Promise: pyiceberg reads every value from each encoding that a column may get
def test_pyiceberg_reads_each_encoding(written):
    found = {
        key: differences(view, pyiceberg_table(view).scan().to_arrow())
        for key, view in written.items()
    }
    assert found == dict.fromkeys(written, [])


def as_java_says(value) -> str | None:
    """Writes a value the way that Iceberg's Java types print themselves."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, list):
        return "[" + ", ".join(as_java_says(one) or "null" for one in value) + "]"
    return str(value)


# Promise: Iceberg's Java library reads every value from each encoding that a column may get
def test_iceberg_java_reads_each_encoding(written):
    answers = ask_java([Question(view.location(), "rows") for view in written.values()])
    columns = ["id", "i", "l", "s", "b", "dec9", "dec18", "day", "ok", "li"]
    right = [
        {column: as_java_says(row(number)[column]) for column in columns} for number in range(ROWS)
    ]
    for key, rows in zip(written, answers):
        found = [{column: entry[column] for column in columns} for entry in rows]
        found.sort(key=lambda entry: int(entry["id"]))
        assert found == right, key
        instants = {int(entry["id"]): entry["ts"] for entry in rows}
        broken = {int(entry["id"]): (entry["f"], entry["d"]) for entry in rows}
        for number in range(ROWS):
            value = row(number)
            moment, (f, d) = instants[number], broken[number]
            assert (moment is None) == (value["ts"] is None), (key, number)
            if moment is not None:
                parsed = datetime.datetime.fromisoformat(moment.replace("Z", "+00:00"))
                assert parsed == value["ts"], (key, number)
            for said, was in ((f, value["f"]), (d, value["d"])):
                assert (said is None) == (was is None), (key, number)
                assert said is None or float(said) == pytest.approx(was, rel=1e-6), (key, number)
