#!/usr/bin/env python3
"""Writes types/*.json: every source type on every column type.

What is expected is worked out here, from the rules of docs/types.md and with nothing but Python's
own `decimal`, `fractions`, `datetime` and `base64`: no code of the sink is used and none of its output.
Run it after changing a table below: `python3 tests/conformance/generate.py`.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, getcontext
from fractions import Fraction
from pathlib import Path

HERE = Path(__file__).resolve().parent
SECOND = 1_000_000_000
DAY = 86_400 * SECOND
EPOCH = date(1970, 1, 1)
getcontext().prec = 400


class Refused(Exception):
    """The sink must refuse the value, with this code and at this column."""

    def __init__(self, code: str, column: str = "v") -> None:
        super().__init__(code)
        self.code = code
        self.column = column


RANGE = "VALUE_OUT_OF_RANGE"
LOSS = "VALUE_PRECISION_LOSS"
NOT = "VALUE_NOT_CONVERTIBLE"
FORM = "VALUE_MALFORMED"
UNIT = "VALUE_UNIT_UNKNOWN"
LENGTH = "VALUE_WRONG_LENGTH"


# ---- what a value means, whatever wrote it -------------------------------------------------------


@dataclass(frozen=True)
class Bool:
    value: bool


@dataclass(frozen=True)
class Int:
    value: int


@dataclass(frozen=True)
class Float:
    value: float
    bits: int  # 32 or 64


@dataclass(frozen=True)
class Text:
    value: str


@dataclass(frozen=True)
class Bytes:
    value: bytes


@dataclass(frozen=True)
class Number:
    value: Decimal


@dataclass(frozen=True)
class Day:
    days: int


@dataclass(frozen=True)
class Clock:
    nanos: int
    raw: int


@dataclass(frozen=True)
class Moment:
    nanos: int
    raw: int
    zoned: bool
    maybe_day: bool = False


@dataclass(frozen=True)
class Items:
    values: tuple


@dataclass(frozen=True)
class Entries:
    """A map or a struct; `record` if its names are fields."""

    values: tuple  # of (key, value)
    struct: bool


# ---- the rules -----------------------------------------------------------------------------------


def single(value: float) -> float:
    """Rounds to the nearest 32-bit float."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def shortest(value: float, bits: int) -> Decimal:
    """The shortest decimal text that reads back as the same float."""
    if bits == 64:
        return Decimal(repr(value))
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if single(float(text)) == value:
            return Decimal(text)
    raise AssertionError(value)


def whole(value: Fraction) -> int:
    if value.denominator != 1:
        raise Refused(LOSS)
    return int(value)


def within(value: int, bits: int) -> int:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise Refused(RANGE)
    return value


def integer(value, bits: int) -> int:
    match value:
        case Int(number):
            return within(number, bits)
        case Float(number, _):
            if not math.isfinite(number):
                raise Refused(NOT)
            return within(whole(Fraction(number)), bits)
        case Number(number):
            return within(whole(Fraction(number)), bits)
        case Text(text):
            if not re.fullmatch(r"[+-]?[0-9]+", text):
                raise Refused(FORM)
            return within(int(text), bits)
        case Day(days):
            return within(days, bits)
        case Clock(_, raw) | Moment(_, raw):
            return within(raw, bits)
    raise Refused(NOT)


DECIMAL_TEXT = r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?"


def floating(value, bits: int):
    def fit(number: Decimal) -> float:
        nearest = float(number)
        nearest = single(nearest) if bits == 32 else nearest
        if math.isinf(nearest):
            raise Refused(RANGE)
        if shortest(nearest, bits) != number:
            raise Refused(LOSS)
        return nearest

    match value:
        case Int(number):
            nearest = float(number)
            nearest = single(nearest) if bits == 32 else nearest
            if Fraction(nearest) != number:
                raise Refused(LOSS)
            return shown(nearest, bits)
        case Float(number, of):
            if bits >= of or not math.isfinite(number) or single(number) == number:
                return shown(number, bits)
            if math.isinf(single(number)):
                raise Refused(RANGE)
            return shown(fit(shortest(number, 64)), bits)
        case Number(number):
            return shown(fit(number), bits)
        case Text(text):
            if text in ("NaN", "Infinity", "-Infinity"):
                return text
            if not re.fullmatch(DECIMAL_TEXT, text):
                raise Refused(FORM)
            return shown(fit(Decimal(text)), bits)
    raise Refused(NOT)


def shown(number: float, bits: int):
    """As a case file writes a float: JSON has no NaN, no infinity and no sign of zero."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 and math.copysign(1, number) < 0:
        return "-0.0"
    return float(shortest(number, bits))


def decimal(value, precision: int, scale: int) -> str:
    match value:
        case Int(number):
            exact = Decimal(number)
        case Float(number, bits):
            if not math.isfinite(number):
                raise Refused(NOT)
            exact = shortest(number, bits)
        case Number(number):
            exact = number
        case Text(text):
            if not re.fullmatch(DECIMAL_TEXT, text):
                raise Refused(FORM)
            exact = Decimal(text)
        case _:
            raise Refused(NOT)
    unscaled = Fraction(exact) * 10**scale
    if unscaled.denominator != 1:
        raise Refused(LOSS)
    if abs(unscaled) >= 10**precision:
        raise Refused(RANGE)
    return plain(int(unscaled), scale)


def plain(unscaled: int, scale: int) -> str:
    """All digits, none in an exponent."""
    sign, digits = "-" if unscaled < 0 else "", str(abs(unscaled))
    if scale <= 0:
        return sign + digits + "0" * (-scale if unscaled else 0)
    digits = digits.rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"


def iso_day(days: int) -> str:
    return (EPOCH + timedelta(days=days)).isoformat()


def iso_clock(nanos: int) -> str:
    seconds, fraction = divmod(nanos, SECOND)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if fraction:
        digits = f"{fraction:09}"
        while digits.endswith("000"):
            digits = digits[:-3]
        text += "." + digits
    return text


def iso_moment(nanos: int, zoned: bool) -> str:
    days, rest = divmod(nanos, DAY)
    return f"{iso_day(days)}T{iso_clock(rest)}{'Z' if zoned else ''}"


def units(nanos: int, unit: int) -> int:
    if nanos % unit:
        raise Refused(LOSS)
    within(nanos // unit, 64)
    return nanos


def day(value) -> str:
    match value:
        case Day(days):
            return iso_day(days)
        case Text(text):
            return iso_day(read_day(text))
        case Moment(nanos, _, _, maybe_day):
            if nanos % DAY and not maybe_day:
                raise Refused(LOSS)
            return iso_day(nanos // DAY)
        case Int() | Float() | Number():
            raise Refused(UNIT)
    raise Refused(NOT)


def clock(value) -> str:
    match value:
        case Clock(nanos, _):
            if not 0 <= nanos < DAY:
                raise Refused(RANGE)
        case Text(text):
            nanos = read_clock(text)
        case Int() | Float() | Number():
            raise Refused(UNIT)
        case _:
            raise Refused(NOT)
    return iso_clock(units(nanos, 1000))


def moment(value, zoned: bool, unit: int) -> str:
    match value:
        case Moment(nanos):
            pass
        case Day(days):
            nanos = days * DAY
        case Text(text):
            nanos = read_moment(text)
        case Int() | Float() | Number():
            raise Refused(UNIT)
        case _:
            raise Refused(NOT)
    return iso_moment(units(nanos, unit), zoned)


def read_day(text: str) -> int:
    if not re.fullmatch(r"\d{4}-\d\d-\d\dZ?", text, re.ASCII):
        raise Refused(FORM)
    try:
        return (date.fromisoformat(text.rstrip("Z")) - EPOCH).days
    except ValueError:
        raise Refused(FORM) from None


def read_clock(text: str, offset: str = "Z?") -> int:
    found = re.fullmatch(rf"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d+))?)?{offset}", text, re.ASCII)
    if not found:
        raise Refused(FORM)
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    if hour > 23 or minute > 59 or second > 59:
        raise Refused(FORM)
    fraction = Fraction(int(found[4] or 0), 10 ** len(found[4] or "")) * SECOND
    if fraction.denominator != 1:
        raise Refused(LOSS)
    return (hour * 3600 + minute * 60 + second) * SECOND + int(fraction)


def read_moment(text: str) -> int:
    found = re.fullmatch(r"(.{10})[T ]([0-9:.]+)(|Z|[+-]\d\d(?::?\d\d)?)", text, re.ASCII)
    if not found or found[1].endswith("Z"):
        raise Refused(FORM)
    nanos = read_day(found[1]) * DAY + read_clock(found[2], "")
    if found[3] in ("", "Z"):
        return nanos
    digits = found[3][1:].replace(":", "").ljust(4, "0")
    offset = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return nanos - (offset if found[3][0] == "+" else -offset) * SECOND


def text_of(value) -> str:
    match value:
        case Bool(truth):
            return "true" if truth else "false"
        case Int(number):
            return str(number)
        case Float(number, bits):
            if math.isnan(number) or math.isinf(number):
                return str(shown(number, bits))
            exact = shortest(number, bits)
            if number and not 1e-5 <= abs(number) < 1e16:  # beyond that an exponent, as in 1e300
                digits = str(exact.normalize().as_tuple().digits[0])
                rest = "".join(map(str, exact.normalize().as_tuple().digits[1:]))
                return f"{'-' if number < 0 else ''}{digits}{'.' + rest if rest else ''}e{exact.adjusted()}"
            text = format(exact, "f")
            return text if "." in text else text + ".0"
        case Text(text):
            return text
        case Bytes(content):
            return base64.b64encode(content).decode()
        case Number(number):
            return format(number, "f")
        case Day(days):
            return iso_day(days)
        case Clock(nanos, _):
            if not 0 <= nanos < DAY:
                raise Refused(RANGE)
            return iso_clock(nanos)
        case Moment(nanos, _, zoned):
            return iso_moment(nanos, zoned)
    return json_of(value)


def json_of(value) -> str:
    match value:
        case None:
            return "null"
        case Items(values):
            return "[" + ",".join(json_of(item) for item in values) + "]"
        case Entries(values):
            return "{" + ",".join(f"{json_of(Text(text_of(k)))}:{json_of(v)}" for k, v in values) + "}"
        case Bool() | Int() | Number():
            return text_of(value)
        case Float(number) if math.isfinite(number):
            return text_of(value)
    return json.dumps(text_of(value), ensure_ascii=False)


def uuid(value) -> str:
    match value:
        case Bytes(content):
            if len(content) != 16:
                raise Refused(LENGTH)
            text = content.hex()
            return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
        case Text(text):
            form = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
            if not re.fullmatch(form, text):
                raise Refused(FORM)
            return text.lower()
    raise Refused(NOT)


def octets(value, length: int | None) -> str:
    if not isinstance(value, Bytes):
        raise Refused(NOT)
    if length is not None and len(value.value) != length:
        raise Refused(LENGTH)
    return "0x" + value.value.hex()


def convert(value, target: str):
    """Returns what a column of type `target` holds for `value`, as a case file writes it."""
    if value is None:
        return None
    if found := re.fullmatch(r"decimal\((\d+), (\d+)\)", target):
        return decimal(value, int(found[1]), int(found[2]))
    if found := re.fullmatch(r"fixed\[(\d+)\]", target):
        return octets(value, int(found[1]))
    match target:
        case "boolean":
            match value:
                case Bool(truth):
                    return truth
                case Text(text) if text.lower() in ("true", "false"):
                    return text.lower() == "true"
                case Text():
                    raise Refused(FORM)
            raise Refused(NOT)
        case "int":
            return integer(value, 32)
        case "long":
            return integer(value, 64)
        case "float":
            return floating(value, 32)
        case "double":
            return floating(value, 64)
        case "string":
            return text_of(value)
        case "uuid":
            return uuid(value)
        case "binary":
            return octets(value, None)
        case "date":
            return day(value)
        case "time":
            return clock(value)
        case "timestamp" | "timestamptz":
            return moment(value, target == "timestamptz", 1000)
        case "timestamp_ns" | "timestamptz_ns":
            return moment(value, target == "timestamptz_ns", 1)
    if target.startswith("list<"):
        if not isinstance(value, Items):
            raise Refused(NOT)
        return [inside(item, target[5:-1], "v.element") for item in value.values]
    if target.startswith("map<"):
        if not isinstance(value, Entries) or value.struct:
            raise Refused(NOT)
        of_key, of_value = target[4:-1].split(", ")
        return [[inside(k, of_key, "v.key"), inside(v, of_value, "v.value")] for k, v in value.values]
    if target.startswith("struct<"):
        if not isinstance(value, Entries) or not all(isinstance(key, Text) for key, _ in value.values):
            raise Refused(NOT)
        fields = dict(field.split(" ") for field in target[7:-1].split(", "))
        held = {key.value: item for key, item in value.values if key.value in fields}
        return {name: inside(item, fields[name], f"v.{name}") for name, item in held.items()}
    raise AssertionError(target)


def inside(value, target: str, column: str):
    try:
        return convert(value, target)
    except Refused as refused:
        raise Refused(refused.code, column) from None


TARGETS = [
    "boolean", "int", "long", "float", "double", "decimal(9, 2)", "decimal(38, 0)", "string", "uuid",
    "binary", "fixed[4]", "date", "time", "timestamp", "timestamptz", "list<int>", "map<string, int>",
    "struct<x int, y string>",
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


def raw_moments(unit: int, *values: int):
    return [(raw, Moment(raw * unit, raw, False)) for raw in values]


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
    "date": days("1970-01-01", "2024-02-29", "1969-12-31", "0001-01-01", "9999-12-31"),
    "time": connect_clocks("00:00:00", "07:51:30.888", "23:59:59.999"),
    "timestamp": connect_moments(*MOMENTS),
    f"int32:{DBZ}time.Date": [(raw, Day(raw)) for raw in (0, 19782, -1, -719162)],
    f"int32:{DBZ}time.Time": raw_clocks(1_000_000, 0, 28290888, 86399999, -1, 86400000),
    f"int64:{DBZ}time.MicroTime": raw_clocks(1000, 0, 28290888123, 86399999999, -1, 86400000000),
    f"int64:{DBZ}time.NanoTime": raw_clocks(1, 0, 28290888123000, 28290888123456, -1),
    f"int64:{DBZ}time.Timestamp": raw_moments(1_000_000, 0, 1700000000123, -1, 1709164800000),
    f"int64:{DBZ}time.MicroTimestamp": raw_moments(1000, 0, 1700000000123456, -1, 1709164800000000),
    f"int64:{DBZ}time.NanoTimestamp": raw_moments(1, 0, 1700000000123456000, 1700000000123456789, -1000),
    f"string:{DBZ}time.ZonedTimestamp": texts(
        "2023-11-14T22:13:20.123456Z", "1969-12-31T23:59:59Z", "2023-11-14T22:13:20+02:00", "yesterday"
    ),
    f"string:{DBZ}time.IsoDate": texts("2024-02-29Z", "2024-02-29", "1969-12-31", "2024-02-30"),
    f"string:{DBZ}time.IsoTime": texts("07:51:30.888Z", "07:51:30", "25:00:00"),
    f"string:{DBZ}time.IsoTimestamp": texts("2023-11-14T22:13:20.123456", "1969-12-31T23:59:59", "2023-11-14"),
    f"string:{DBZ}data.Uuid": texts("f24f9b64-81fa-49d1-b74e-8c09a6e31c56", "f24f9b64"),
    f"string:{DBZ}data.Json": texts('{"a": [1, null]}', "[]"),
    f"string:{DBZ}data.Xml": texts("<a b='1'/>"),
    f"string:{DBZ}data.Enum": texts("small", "große"),
    f"string:{DBZ}data.EnumSet": texts("a,b", ""),
    f"string:{DBZ}data.Ltree": texts("top.science"),
    f"bytes:{DBZ}data.Bits": octet_strings(b"\x01\x02\x03\x04", b""),
    f"int32:{DBZ}time.Year": ints(2024, 1969),
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
}  # fmt: skip

# What a column becomes that is made for a source; the code when there is none.
NEW = {
    "boolean": "boolean", "int8": "int", "int16": "int", "int32": "int", "int64": "long", "float32": "float",
    "float64": "double", "string": "string", "bytes": "binary", "decimal(2)": "decimal(38, 2)",
    "decimal(0)": "decimal(38, 0)", "decimal(-3)": None,
    "decimal(10)": "decimal(38, 10)", "date": "date", "time": "time", "timestamp": "timestamptz",
    f"int32:{DBZ}time.Date": "date", f"int32:{DBZ}time.Time": "time", f"int64:{DBZ}time.MicroTime": "time",
    f"int64:{DBZ}time.NanoTime": "time", f"int64:{DBZ}time.Timestamp": "timestamp",
    f"int64:{DBZ}time.MicroTimestamp": "timestamp", f"int64:{DBZ}time.NanoTimestamp": "timestamp",
    f"string:{DBZ}time.ZonedTimestamp": "timestamptz", f"string:{DBZ}time.IsoDate": "date",
    f"string:{DBZ}time.IsoTime": "time", f"string:{DBZ}time.IsoTimestamp": "timestamp",
    f"string:{DBZ}data.Uuid": "uuid", f"string:{DBZ}data.Json": "string", f"string:{DBZ}data.Xml": "string",
    f"string:{DBZ}data.Enum": "string", f"string:{DBZ}data.EnumSet": "string", f"string:{DBZ}data.Ltree": "string",
    f"bytes:{DBZ}data.Bits": "binary", f"int32:{DBZ}time.Year": "int", "array<int32?>": "list<int>",
    "array<string?>": "list<string>", "map<string,int32?>": "map<string, int>", "map<int32,int32?>": "map<int, int>",
    "struct<x int32?, y string?>": "struct<x int, y string>",
}  # fmt: skip

# The same without a schema, by the first value.
NEW_WITHOUT_SCHEMA = {
    "boolean": "boolean", "int8": "long", "int16": "long", "int32": "long", "int64": "long", "float32": "double",
    "float64": "double", "string": "string", "bytes": "binary", "buffer": "binary", "decimal": "decimal(1, 0)",
    "java.util.Date": "timestamptz", "list": "list<long>", "map": "struct<x long, z long>",
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
    "string": texts(
        "", "true", "7", "12.5", "abc", "2024-02-29", "07:51:30", "2023-05-18T07:14:21-08:00",
        "f24f9b64-81fa-49d1-b74e-8c09a6e31c56",
    ),
    "bytes": [({"$bytes": "0x" + value.hex()}, Bytes(value)) for value in (b"\x01\x02\x03\x04", bytes(16), b"")],
    "buffer": [({"$buffer": "0x" + value.hex()}, Bytes(value)) for value in (b"\x01\x02\x03\x04", bytes(16), b"")],
    "decimal": [
        ({"$decimal": value}, Number(Decimal(value)))
        for value in ("0", "12.34", "-7", "7.00", "1.005", "1E+20", "0.001", "99999999999999999999999999999999999999")
    ],
    "java.util.Date": [
        ({"$ms": raw}, Moment(raw * 1_000_000, raw, True, True)) for raw in (0, -1, 1700000000123, 1709164800000)
    ],
    "list": [
        ([1, -2], Items((Int(1), Int(-2)))), ([], Items(())), (["7", 8], Items((Text("7"), Int(8)))),
        (["7", "seven"], Items((Text("7"), Text("seven")))),
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


def cell(source: str, samples: list, target: str, typed: bool) -> dict:
    case: dict = {"name": f"{source} into {target}"}
    if typed:
        case["source"] = source + "?"
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
        case["source"] = source + "?"
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
