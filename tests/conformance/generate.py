#!/usr/bin/env python3
"""Writes types/*/*.json: every source type on every column type.

What is expected is worked out by `rules`, which shares nothing with the sink. Run it after changing a
table below: `python3 tests/conformance/generate.py`.
"""

from __future__ import annotations

import json
import math
import re
import struct
from datetime import date, datetime, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from rules import (
    CYCLE, DAY, EPOCH, NOT, RANGE, SECOND, Bool, Bytes, Clock, Day, Entries, Float, Geometry, Int, Items, Moment, Number,
    Parts, Refused, Scaled, Text, Uid, convert, read_clock, shown, single,
)  # fmt: skip

HERE = Path(__file__).resolve().parent

TARGETS = [
    "boolean", "int", "long", "float", "double", "decimal(9, 2)", "decimal(38, 0)", "string", "uuid",
    "binary", "fixed[4]", "date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns", "list<int>",
    "map<string, int>", "struct<x int, y string>",
]


# ---- the sources: what a case file writes, and what it means -------------------------------------


def ints(*values: int):
    return [(value, Int(value)) for value in values]


def floats(bits: int, *values: float):
    return [(shown(value, 64), Float(single(value) if bits == 32 else value, bits)) for value in values]


def texts(*values: str):
    return [(value, Text(value)) for value in values]


def octet_strings(*values: bytes):
    return [("0x" + value.hex(), Bytes(value)) for value in values]


def decimals(scale: int, *values: str):
    return [(value, Number(Decimal(value).quantize(Decimal(1).scaleb(-scale)))) for value in values]


def days(*values: str):
    return [(value, Day((date.fromisoformat(value) - EPOCH).days)) for value in values]


def clock_of(raw: int, unit: int):
    return Clock(raw * unit, raw)


def utc(text: str) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=timezone.utc)
    since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (since.days * 86_400 + since.seconds) * SECOND + since.microseconds * 1000


def raw_clocks(unit: int, *values: int):
    return [(raw, clock_of(raw, unit)) for raw in values]


def raw_moments(unit: int, *values: int, zoned: bool = False):
    return [(raw, Moment(raw * unit, raw, zoned)) for raw in values]


I8, I16, I32, I64 = 1 << 7, 1 << 15, 1 << 31, 1 << 63
TEXTS = texts(
    "", "true", "FALSE", "yes", "1", "0", "-7", "+7", "007", " 7", "2147483648", "9223372036854775808", "12.50",
    "12.345", "1.5e3", "1e400", ".5", "5.", "0x10", "NaN", "-Infinity", "größe 😀",
    "f24f9b64-81fa-49d1-b74e-8c09a6e31c56", "F24F9B64-81FA-49D1-B74E-8C09A6E31C56",
    "f24f9b6481fa49d1b74e8c09a6e31c56", "{f24f9b64-81fa-49d1-b74e-8c09a6e31c56}",
    "2024-02-29", "2023-02-29", "2024-2-9", "1969-12-31", "0001-01-01", "9999-12-31", "2024-02-29T00:00:00Z",
    "07:51:30.888", "07:51", "23:59:59.999999", "23:59:59.999999999", "24:00:00", "23:59:60",
    "2023-05-18T07:14:21Z", "2023-05-18 07:14:21", "2023-05-18T07:14:21+00", "2023-05-18T07:14:21+00:00",
    "2023-05-18T07:14:21+0000", "2023-05-18T07:14:21-08", "2023-05-18T07:14:21-08:00", "2023-05-18T07:14:21-0800",
    "2023-05-18T07:14:21.260514Z", "2023-05-18T07:14", "1969-12-31T23:59:59.999999Z", "1684394061000", "AQID",
    "2024-02-29T12:00:00Z", "2023-05-18T07:14:21.1234567Z", "2023-05-18T07:14:21.1234567891Z", "-0044-03-15",
    "+12024-01-01T00:00:00Z", "+9999999-01-01", "07:51:30.1234567",
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -2.5, 0.1, 16777217.0, 9007199254740993.0, 3e9, math.nan, math.inf, -math.inf)
MOMENTS = ("1970-01-01T00:00:00", "2023-11-14T22:13:20.123", "1969-12-31T23:59:59.999", "2024-02-29T00:00:00")
DBZ = "io.debezium."


def connect_moments(*values: str):
    return [(f"{value}Z", Moment(utc(value), utc(value) // 1_000_000, True)) for value in values]


def connect_clocks(*values: str):
    found = []
    for value in values:
        nanos = read_clock(value)
        found.append((value, Clock(nanos, nanos // 1_000_000)))
    return found


# The unscaled number in big-endian two's complement, as Java's BigInteger writes it.
def scaled(unscaled: int, scale: int):
    content = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    fields = ((Text("scale"), Int(scale)), (Text("value"), Bytes(content)))
    return {"scale": scale, "value": "0x" + content.hex()}, Scaled(Decimal(unscaled).scaleb(-scale), fields)


def geometry(wkb: str, srid: int | None, x: float | None = None, y: float | None = None, ewkb: str | None = None):
    """`ewkb`: with the reference system in it, as extended well-known binary has it."""
    notation: dict = {"wkb": "0x" + wkb, "srid": srid}
    fields = [(Text("wkb"), Bytes(bytes.fromhex(wkb))), (Text("srid"), None if srid is None else Int(srid))]
    if x is not None:
        notation = {"x": x, "y": y, **notation}
        fields = [(Text("x"), Float(x, 64)), (Text("y"), Float(y, 64)), *fields]
    return notation, Geometry(tuple(fields), bytes.fromhex(ewkb or wkb))


# The parts of Debezium's structured dates and times, each of them optional, and how wide they are.
DATE_PARTS = {"year": "int32", "month": "int8", "day": "int8"}
TIME_PARTS = {"hour": "int8", "minute": "int8", "second": "int8", "picoseconds": "int64"}
STRUCTURED = {
    "StructuredDate": (Day, DATE_PARTS),
    "StructuredTime": (Clock, TIME_PARTS),
    "StructuredTimestamp": (Moment, {**DATE_PARTS, **TIME_PARTS}),
    "StructuredZonedTimestamp": (Moment, {**DATE_PARTS, **TIME_PARTS, "offsetSeconds": "int32"}),
}
INFINITIES = ("POSITIVE_INFINITY", "NEGATIVE_INFINITY")


def days_of(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in any year: the calendar repeats every 400."""
    cycles = 0 if 1 <= year <= 9999 else year // 400 - 1
    return (date(year - 400 * cycles, month, day) - EPOCH).days + cycles * CYCLE


def whole_nanos(seconds: int, picoseconds: int) -> Fraction:
    return seconds * SECOND + Fraction(picoseconds, 1000)


def structured(name: str, *values):
    """Parts in the order of the fields, or the name of an infinity; last, a struct that says nothing."""
    kind, parts = STRUCTURED[name]
    found = []
    for value in (*values, ()):
        infinite = isinstance(value, str)
        known = {} if infinite or not value else dict(zip(parts, value, strict=True))
        notation = {"specialValue": value} if infinite else known
        fields = tuple((Text(part), Int(known[part]) if part in known else None) for part in parts)
        fields += ((Text("specialValue"), Text(value) if infinite else None),)
        made = meaning(kind, known) if known else None
        found.append((notation, Parts(fields, kind, made, RANGE if infinite or known else NOT)))
    return found


def meaning(kind: type, parts: dict):
    try:
        days = days_of(parts["year"], parts["month"], parts["day"]) if "year" in parts else 0
    except ValueError:
        return None
    if kind is Day:
        return Day(days)
    hour, minute, second = parts["hour"], parts["minute"], parts["second"]
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60):
        return None
    nanos = whole_nanos(hour * 3600 + minute * 60 + second, parts["picoseconds"])
    if kind is Clock:
        return Clock(nanos, None)
    return Moment(days * DAY + nanos - parts.get("offsetSeconds", 0) * SECOND, None, "offsetSeconds" in parts)


# What java.time writes with `toString` and reads with `parse`.
JAVA_DAY = r"([+-]?\d{4,10})-(\d\d)-(\d\d)"
JAVA_CLOCK = r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?"
JAVA_ZONE = r"(?:Z|([+-])(\d\d):(\d\d)(?::(\d\d))?)?(?:\[.*\])?"


def java_nanos(hour, minute, second, fraction) -> int:
    seconds = int(hour) * 3600 + int(minute) * 60 + int(second or 0)
    return seconds * SECOND + int((fraction or "").ljust(9, "0"))


def whole_millis(nanos: int) -> int | None:
    return None if nanos % 1_000_000 else nanos // 1_000_000


def java_days(*values: str):
    found = []
    for value in values:
        read = re.fullmatch(JAVA_DAY, value)
        found.append(({"$LocalDate": value}, Day(days_of(*map(int, read.groups())))))
    return found


def java_clocks(*values: str):
    found = []
    for value in values:
        nanos = java_nanos(*re.fullmatch(JAVA_CLOCK, value).groups())
        found.append(({"$LocalTime": value}, Clock(nanos, whole_millis(nanos))))
    return found


def java_moments(tag: str, *values: str):
    found = []
    for value in values:
        read = re.fullmatch(f"{JAVA_DAY}T{JAVA_CLOCK}{JAVA_ZONE}", value).groups()
        nanos = days_of(*map(int, read[:3])) * DAY + java_nanos(*read[3:7])
        if read[7]:
            offset = int(read[8]) * 3600 + int(read[9]) * 60 + int(read[10] or 0)
            nanos -= (offset if read[7] == "+" else -offset) * SECOND
        found.append(({tag: value}, Moment(nanos, whole_millis(nanos), tag != "$LocalDateTime")))
    return found


# The point (1, 2), little-endian: byte order, type 1, two doubles; then the same of reference system 4326.
POINT = "01" + "01000000" + struct.pack("<dd", 1, 2).hex()
POINT_4326 = "01" + "01000020" + struct.pack("<I", 4326).hex() + struct.pack("<dd", 1, 2).hex()
SPARSE = Entries(((Text("dimensions"), Int(4)), (Text("vector"), Entries(((Int(1), Float(0.5, 64)),), False))), True)

# Connect's schemas, the logical types and Debezium's names among them.
WITH_SCHEMA = {
    "boolean": [(True, Bool(True)), (False, Bool(False))],
    "int8": ints(0, I8 - 1, -I8),
    "int16": ints(0, I16 - 1, -I16),
    "int32": ints(0, 1, I32 - 1, -I32, 16777217),
    "int64": ints(0, -1, 3000000000, I64 - 1, -I64, 9007199254740993),
    "float32": floats(32, *FLOATS),
    "float64": floats(64, *FLOATS, 1e20, 1e300, 1.9, 123.45),
    "string": TEXTS,
    "bytes": octet_strings(b"", b"\x01\x02\x03\x04", bytes(range(16)), b"AB", b"\xff" * 20),
    "decimal(2)": decimals(2, "0.00", "12.34", "-0.01", "7.00", "9999999.99", "10000000.00", "3000000000.00"),
    "decimal(0)": decimals(0, "0", "7", "-7", "123456789", "99999999999999999999999999999999999999"),
    "decimal(-3)": [("5000", Number(Decimal("5E+3"))), ("-12000", Number(Decimal("-12E+3")))],
    "decimal(10)": decimals(10, "0.0000000001", "1.0000000000", "12.3400000000"),
    "decimal(9,2)": decimals(2, "0.00", "12.34", "-7.00", "9999999.99"),
    "decimal(40,2)": decimals(2, "0.00", "7.00", "12.34", "1" * 39 + ".00", "-" + "1" * 39 + ".00"),
    "date": days("1970-01-01", "2024-02-29", "1969-12-31", "0001-01-01", "9999-12-31"),
    "time": connect_clocks("00:00:00", "07:51:30.888", "23:59:59.999"),
    "timestamp": connect_moments(*MOMENTS),
    "string:uuid": TEXTS,
    f"int32:{DBZ}time.Date": [(raw, Day(raw)) for raw in (0, 19782, -1, -719162)],
    f"int32:{DBZ}time.Time": raw_clocks(1_000_000, 0, 28290888, 86399999, -1, 86400000),
    f"int64:{DBZ}time.MicroTime": raw_clocks(1000, 0, 28290888123, 86399999999, -1, 86400000000),
    f"int64:{DBZ}time.NanoTime": raw_clocks(1, 0, 28290888123000, 28290888123456, -1),
    f"int64:{DBZ}time.Timestamp": raw_moments(1_000_000, 0, 1700000000123, -1, 1709164800000),
    f"int64:{DBZ}time.MicroTimestamp": raw_moments(1000, 0, 1700000000123456, -1, 1709164800000000),
    f"int64:{DBZ}time.NanoTimestamp": raw_moments(1, 0, 1700000000123456000, 1700000000123456789, -1000),
    "int64:timestamp-micros": raw_moments(1000, 0, 1700000000123456, -1, 1709164800000000, zoned=True),
    "int64:timestamp-nanos": raw_moments(1, 0, 1700000000123456000, 1700000000123456789, -1000, zoned=True),
    f"bytes:{DBZ}data.Bits": octet_strings(b"\x01\x02\x03\x04", b"", bytes(range(16))),
    f"int32:{DBZ}time.Year": ints(2024, 1969, 0),
    f"int64:{DBZ}time.MicroDuration": ints(0, -1, 2629800000000),
    f"int64:{DBZ}time.NanoDuration": ints(0, 1, 2629800000000000),
    "array<int32?>": [([1, -2], Items((Int(1), Int(-2)))), ([], Items(())), ([1, None], Items((Int(1), None)))],
    "array<string?>": [
        (["7", "-1"], Items((Text("7"), Text("-1")))), (["7", "seven"], Items((Text("7"), Text("seven")))),
    ],
    "map<string,int32?>": [
        ({"x": 1, "z": 2}, Entries(((Text("x"), Int(1)), (Text("z"), Int(2))), False)),
        ({}, Entries((), False)), ({"x": None}, Entries(((Text("x"), None),), False)),
    ],
    "map<int32,int32?>": [
        ([[1, 10], [-2, None]], Entries(((Int(1), Int(10)), (Int(-2), None)), False)),
    ],
    "struct<x int32?, y string?>": [
        ({"x": 1, "y": "one"}, Entries(((Text("x"), Int(1)), (Text("y"), Text("one"))), True)),
        ({}, Entries(((Text("x"), None), (Text("y"), None)), True)),
    ],
    "struct<>": [({}, Entries((), True))],
    f"array:{DBZ}data.DoubleVector": [([1.0, -2.0], Items((Float(1.0, 64), Float(-2.0, 64))))],
    f"array:{DBZ}data.FloatVector": [([1.0, -2.0], Items((Float(1.0, 32), Float(-2.0, 32))))],
    f"struct:{DBZ}data.SparseDoubleVector": [({"dimensions": 4, "vector": [[1, 0.5]]}, SPARSE)],
    f"struct:{DBZ}data.VariableScaleDecimal": [scaled(7, 0), scaled(-7, 0), scaled(1234, 2), scaled(5, -3), scaled(10**37, 0)],
    f"struct:{DBZ}time.StructuredDate": structured(
        "StructuredDate", (2024, 2, 29), (1970, 1, 1), (1969, 12, 31), (9999, 12, 31), (-44, 3, 15), (12024, 1, 1),
        (2023, 2, 29), (2024, 13, 1), (2024, 0, 0), *INFINITIES,
    ),
    f"struct:{DBZ}time.StructuredTime": structured(
        "StructuredTime", (7, 51, 30, 888_000_000_000), (0, 0, 0, 0), (23, 59, 59, 999_999_000_000),
        (23, 59, 59, 999_999_999_000), (1, 2, 3, 1), (24, 0, 0, 0), (12, 60, 0, 0), (-1, 0, 0, 0), *INFINITIES[:1],
    ),
    f"struct:{DBZ}time.StructuredTimestamp": structured(
        "StructuredTimestamp", (2023, 11, 14, 22, 13, 20, 123_456_000_000), (1970, 1, 1, 0, 0, 0, 0),
        (2024, 2, 29, 0, 0, 0, 0), (1969, 12, 31, 23, 59, 59, 999_999_000_000), (-44, 3, 15, 0, 0, 0, 0),
        (12024, 1, 1, 0, 0, 0, 0), (2023, 11, 14, 22, 13, 20, 123_456_789_000), (2023, 11, 14, 22, 13, 20, 1),
        (2023, 2, 29, 0, 0, 0, 0), (2023, 5, 18, 24, 0, 0, 0), *INFINITIES,
    ),
    f"struct:{DBZ}time.StructuredZonedTimestamp": structured(
        "StructuredZonedTimestamp", (2023, 5, 18, 7, 14, 21, 260_514_000_000, -28_800), (1970, 1, 1, 0, 0, 0, 0, 0),
        (1969, 12, 31, 1, 0, 0, 0, 3_600), (2024, 2, 29, 0, 0, 0, 0, 3_600), (1890, 1, 1, 0, 53, 28, 0, 3_208),
        (2023, 5, 18, 7, 14, 21, 1_000, 0), (2023, 5, 18, 7, 14, 21, 1, 0), (2023, 2, 29, 0, 0, 0, 0, 0),
        (2023, 5, 18, 24, 0, 0, 0, 0), *INFINITIES,
    ),
    f"struct:{DBZ}data.geometry.Point": [
        geometry(POINT, None, 1.0, 2.0), geometry(POINT, 4326, 1.0, 2.0, POINT_4326), geometry("01010000", None, 1.0, 2.0),
    ],
    f"struct:{DBZ}data.geometry.Geometry": [
        geometry(POINT, None), geometry(POINT, 4326, ewkb=POINT_4326), geometry("01010000", None),
    ],
    f"struct:{DBZ}data.geometry.Geography": [
        geometry(POINT, None), geometry(POINT, 4326, ewkb=POINT_4326), geometry("01010000", None),
    ],
}  # fmt: skip
NAMED_TEXTS = {
    "time.ZonedTimestamp": "timestamptz", "time.ZonedTime": "string", "time.IsoDate": "date", "time.IsoTime": "time",
    "time.IsoTimestamp": "timestamp", "time.Interval": "string", "data.Uuid": "uuid", "data.Json": "string",
    "data.Xml": "string", "data.Enum": "string", "data.EnumSet": "string", "data.Ltree": "string",
    "data.Tsvector": "string",
}  # fmt: skip
for name in NAMED_TEXTS:
    WITH_SCHEMA[f"string:{DBZ}{name}"] = TEXTS[:14] + texts(
        "1e400", "2024-02-29T12:00:00Z", "2023-05-18T07:14:21.1234567Z", "2023-05-18T07:14:21.1234567891Z",
        "+9999999-01-01", "07:51:30.1234567", "07:51:30.888", "2024-02-29", "2023-11-14T22:13:20.123456Z", "f24f9b64-81fa-49d1-b74e-8c09a6e31c56",
        '{"a": [1, null]}', "<a b='1'/>", "P1Y2M3DT4H5M6.7S", "a,b",
    )  # fmt: skip

# The schema where its name alone does not say it.
SCHEMAS = {
    f"array:{DBZ}data.DoubleVector": {"type": "array", "name": f"{DBZ}data.DoubleVector", "element": "float64"},
    f"array:{DBZ}data.FloatVector": {"type": "array", "name": f"{DBZ}data.FloatVector", "element": "float32"},
    f"struct:{DBZ}data.SparseDoubleVector": {
        "type": "struct", "name": f"{DBZ}data.SparseDoubleVector",
        "fields": {"dimensions": "int16", "vector": "map<int16,float64>"},
    },
    f"struct:{DBZ}data.VariableScaleDecimal": {
        "type": "struct", "name": f"{DBZ}data.VariableScaleDecimal", "fields": {"scale": "int32", "value": "bytes"},
    },
    **{
        f"struct:{DBZ}time.{name}": {
            "type": "struct", "name": f"{DBZ}time.{name}",
            "fields": {**{part: f"{width}?" for part, width in parts.items()}, "specialValue": "string?"},
        } for name, (_, parts) in STRUCTURED.items()
    },
    f"struct:{DBZ}data.geometry.Point": {
        "type": "struct", "name": f"{DBZ}data.geometry.Point",
        "fields": {"x": "float64", "y": "float64", "wkb": "bytes?", "srid": "int32?"},
    },
    f"struct:{DBZ}data.geometry.Geometry": {
        "type": "struct", "name": f"{DBZ}data.geometry.Geometry", "fields": {"wkb": "bytes", "srid": "int32?"},
    },
    f"struct:{DBZ}data.geometry.Geography": {
        "type": "struct", "name": f"{DBZ}data.geometry.Geography", "fields": {"wkb": "bytes", "srid": "int32?"},
    },
}  # fmt: skip

# What a column becomes that is made for a source; the code when there is none.
NEW = {
    "boolean": "boolean", "int8": "int", "int16": "int", "int32": "int", "int64": "long", "float32": "float",
    "float64": "double", "string": "string", "bytes": "binary", "decimal(2)": "decimal(38, 2)",
    "decimal(0)": "decimal(38, 0)", "decimal(-3)": "decimal(38, 0)", "decimal(9,2)": "decimal(9, 2)",
    "decimal(40,2)": "string", "string:uuid": "uuid",
    "decimal(10)": "decimal(38, 10)", "date": "date", "time": "time", "timestamp": "timestamptz",
    f"int32:{DBZ}time.Date": "date", f"int32:{DBZ}time.Time": "time", f"int64:{DBZ}time.MicroTime": "time",
    f"int64:{DBZ}time.NanoTime": "time", f"int64:{DBZ}time.Timestamp": "timestamp",
    f"int64:{DBZ}time.MicroTimestamp": "timestamp", f"int64:{DBZ}time.NanoTimestamp": "timestamp",
    "int64:timestamp-micros": "timestamptz", "int64:timestamp-nanos": "timestamptz",
    f"bytes:{DBZ}data.Bits": "binary", f"int32:{DBZ}time.Year": "int", "array<int32?>": "list<int>",
    "array<string?>": "list<string>", "map<string,int32?>": "map<string, int>", "map<int32,int32?>": "map<int, int>",
    "struct<x int32?, y string?>": "struct<x int, y string>", "struct<>": "string",
    f"int64:{DBZ}time.MicroDuration": "long", f"int64:{DBZ}time.NanoDuration": "long",
    f"array:{DBZ}data.DoubleVector": "list<double required>", f"array:{DBZ}data.FloatVector": "list<float required>",
    f"struct:{DBZ}data.SparseDoubleVector":
        "struct<dimensions int required, vector map<int, double required> required>",
    f"struct:{DBZ}data.VariableScaleDecimal": "string",
    f"struct:{DBZ}time.StructuredDate": "struct<year int, month int, day int, specialValue string>",
    f"struct:{DBZ}time.StructuredTime":
        "struct<hour int, minute int, second int, picoseconds long, specialValue string>",
    f"struct:{DBZ}time.StructuredTimestamp":
        "struct<year int, month int, day int, hour int, minute int, second int, picoseconds long, specialValue string>",
    f"struct:{DBZ}time.StructuredZonedTimestamp":
        "struct<year int, month int, day int, hour int, minute int, second int, picoseconds long, offsetSeconds int, "
        "specialValue string>",
    f"struct:{DBZ}data.geometry.Point": "struct<x double required, y double required, wkb binary, srid int>",
    f"struct:{DBZ}data.geometry.Geometry": "struct<wkb binary required, srid int>",
    f"struct:{DBZ}data.geometry.Geography": "struct<wkb binary required, srid int>",
    **{f"string:{DBZ}{name}": column for name, column in NAMED_TEXTS.items()},
}  # fmt: skip

# The same without a schema, by the first value.
NEW_WITHOUT_SCHEMA = {
    "boolean": "boolean", "int8": "long", "int16": "long", "int32": "long", "int64": "long", "float32": "double",
    "float64": "double", "string": "string", "bytes": "binary", "buffer": "binary", "decimal": "decimal(1, 0)",
    "java.util.Date": "timestamptz", "java.time.LocalDate": "date", "java.time.LocalTime": "time",
    "java.time.LocalDateTime": "timestamp", "java.time.OffsetDateTime": "timestamptz",
    "java.time.ZonedDateTime": "timestamptz", "java.time.Instant": "timestamptz", "java.util.UUID": "uuid",
    "list": "list<long>", "map": "struct<x long, z long>",
}  # fmt: skip

# Java classes without a schema, as a case file tags them.
WITHOUT_SCHEMA = {
    "boolean": [(True, Bool(True)), (False, Bool(False))],
    "int8": [({"$int8": value}, Int(value)) for value in (0, I8 - 1, -I8)],
    "int16": [({"$int16": value}, Int(value)) for value in (0, I16 - 1, -I16)],
    "int32": [({"$int32": value}, Int(value)) for value in (0, I32 - 1, -I32)],
    "int64": ints(0, -1, 3000000000, I64 - 1, -I64),
    "float32": [
        ({"$float32": shown(value, 64)}, Float(single(value), 32)) for value in (1.0, -2.5, 0.1, math.nan, math.inf)
    ],
    "float64": [
        ({"$float64": shown(value, 64)}, Float(value, 64)) for value in (1.0, 2.5, 0.1, 1e20, 1.9, -0.0, math.nan)
    ],
    "string": [
        (value, Text(value, True))
        for value in (
            "", "true", "7", "12.5", "abc", "2024-02-29", "07:51:30", "2023-05-18T07:14:21-08:00",
            "f24f9b64-81fa-49d1-b74e-8c09a6e31c56", "AQIDBA==", "AQIDBA", "aGVs bG8=", "-_8=", "1e400", "12.345", "0.1",
            "9223372036854775808", "2024-02-29T12:00:00Z", "2023-05-18T07:14:21.1234567891Z", "+9999999-01-01", "07:51:30.1234567",
        )
    ],
    "bytes": [({"$bytes": "0x" + value.hex()}, Bytes(value)) for value in (b"\x01\x02\x03\x04", bytes(16), b"")],
    "buffer": [({"$buffer": "0x" + value.hex()}, Bytes(value)) for value in (b"\x01\x02\x03\x04", bytes(16), b"")],
    "decimal": [
        ({"$decimal": value}, Number(Decimal(value)))
        for value in ("0", "12.34", "-7", "7.00", "1.005", "1E+20", "0.001", "99999999999999999999999999999999999999")
    ],
    "java.util.Date": [
        ({"$ms": raw}, Moment(raw * 1_000_000, raw, True, True)) for raw in (0, -1, 1700000000123, 1709164800000)
    ],
    "java.time.LocalDate": java_days(
        "2024-02-29", "1970-01-01", "1969-12-31", "0001-01-01", "9999-12-31", "-0044-03-15", "+12024-01-01", "+999999-12-31",
    ),
    "java.time.LocalTime": java_clocks(
        "07:51:30.888", "00:00", "07:51", "23:59:59.999999", "23:59:59.999999999", "00:00:00.000001",
    ),
    "java.time.LocalDateTime": java_moments(
        "$LocalDateTime", "2023-11-14T22:13:20.123", "1970-01-01T00:00", "2024-02-29T00:00",
        "1969-12-31T23:59:59.999999", "2023-11-14T22:13:20.123456789", "-0044-03-15T12:00", "+12024-01-01T00:00",
        "+999999999-12-31T00:00",
    ),
    "java.time.OffsetDateTime": java_moments(
        "$OffsetDateTime", "2023-05-18T07:14:21.260-08:00", "1970-01-01T00:00Z", "2024-02-29T01:00+01:00",
        "2024-02-29T00:00+01:00", "1969-12-31T23:59:59.999999Z", "2023-11-14T22:13:20.123456789+05:30",
        "1890-01-01T00:53:28+00:53:28", "+999999999-12-31T00:00Z",
    ),
    "java.time.ZonedDateTime": java_moments(
        "$ZonedDateTime", "2023-11-14T23:13:20.123+01:00[Europe/Berlin]", "1970-01-01T00:00Z",
        "2023-10-29T02:30+02:00[Europe/Berlin]", "2023-10-29T02:30+01:00[Europe/Berlin]",
        "2024-02-29T00:00Z[UTC]", "2024-02-29T05:30+05:30[Asia/Kolkata]",
        "1969-12-31T18:59:59.999999-05:00[America/New_York]", "2023-11-14T22:13:20.123456789Z[UTC]",
        "+999999999-12-31T00:00Z",
    ),
    "java.time.Instant": java_moments(
        "$Instant", "2023-11-14T22:13:20.123Z", "1970-01-01T00:00:00Z", "2024-02-29T00:00:00Z",
        "1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999Z", "2023-11-14T22:13:20.123456789Z",
        "1970-01-01T00:00:00.000000001Z", "+12024-01-01T00:00:00Z", "+1000000000-12-31T00:00:00Z",
    ),
    "java.util.UUID": [
        ({"$UUID": value}, Uid(value)) for value in (
            "f24f9b64-81fa-49d1-b74e-8c09a6e31c56", "00000000-0000-0000-0000-000000000000",
            "80000000-0000-0001-ffff-ffffffffffff",
        )
    ],
    "list": [
        ([1, -2], Items((Int(1), Int(-2)))), ([], Items(())), (["7", 8], Items((Text("7"), Int(8)))),
        (["7", "seven"], Items((Text("7"), Text("seven")))), ([[1], 2], Items((Items((Int(1),)), Int(2)))),
    ],
    "map": [
        ({"x": 1, "z": 2}, Entries(((Text("x"), Int(1)), (Text("z"), Int(2))), False)),
        ({"x": "one"}, Entries(((Text("x"), Text("one")),), False)), ({}, Entries((), False)),
    ],
}  # fmt: skip


def sample(notation, value, target: str) -> list:
    try:
        return [notation, convert(value, target)]
    except Refused as refused:
        expected = {"$error": refused.code}
        if refused.column != "v":
            expected["column"] = refused.column
        return [notation, expected]


def optional(source: str):
    schema = SCHEMAS.get(source)
    return source + "?" if schema is None else {**schema, "optional": True}


def cell(source: str, samples: list, target: str, typed: bool) -> dict:
    case: dict = {"name": f"{source} into {target}"}
    if typed:
        case["source"] = optional(source)
        case["cell"] = [source, target]
    else:
        case["cell"] = [f"any {source}", target]
    case["target"] = target
    if target.endswith("_ns"):
        case["table"] = {"columns": {"v": target}, "format-version": 3}
    case["samples"] = [sample(notation, value, target) for notation, value in samples]
    if typed:
        case["samples"].append([None, None])
    return case


def new_column(source: str, samples: list, column, typed: bool) -> dict:
    """No table is there: the first record makes one."""
    case: dict = {"name": f"{source} into a new column", "cell": [source if typed else f"any {source}", "new"]}
    if typed:
        case["source"] = optional(source)
    if isinstance(column, Refused):
        case["samples"] = [[notation, {"$error": column.code}] for notation, _ in samples]
        case["expect"] = {"absent": ["db.t"]}
        return case
    case["column"] = column
    case["samples"] = [sample(notation, value, column) for notation, value in samples]
    return case


def slug(source: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", source.replace("io.debezium.", "debezium-").replace("(-", "(minus")).strip("-")


def dump(case: dict) -> str:
    """One line for each key of a case, one for each sample."""
    lines = []
    for key, value in case.items():
        if key == "samples":
            rows = ",\n".join("      " + json.dumps(row, ensure_ascii=False) for row in value)
            lines.append(f'    "samples": [\n{rows}\n    ]')
        else:
            lines.append(f"    {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}")
    return "  {\n" + ",\n".join(lines) + "\n  }"


def write(path: Path, about: str, cases: list[dict]) -> int:
    body = ",\n".join(dump(case) for case in cases)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{\n  "about": {json.dumps(about)},\n  "cases": [\n{body}\n  ]\n}}\n', "utf-8")
    return len(cases)


def main() -> None:
    folder = HERE / "types"
    for old in folder.glob("*/*.json"):
        old.unlink()
    count = 0
    for typed, sources in ((True, WITH_SCHEMA), (False, WITHOUT_SCHEMA)):
        for source, samples in sources.items():
            where = folder / ("schema" if typed else "schemaless") / f"{slug(source)}.json"
            about = f"Written by generate.py: {source}{'' if typed else ' without a schema'} into each column type."
            column = (NEW if typed else NEW_WITHOUT_SCHEMA)[source]
            cases = [cell(source, samples, target, typed) for target in TARGETS]
            if column is not None:
                cases.append(new_column(source, samples, column, typed))
            count += write(where, about, cases)
    print(f"{count} cases")


if __name__ == "__main__":
    main()
