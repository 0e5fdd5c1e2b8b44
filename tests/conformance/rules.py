"""What a column holds for a value, by the rules of docs/types.md.

With nothing but Python's own `decimal`, `fractions`, `datetime` and `base64`: no code of the sink is used
and none of its output.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal, getcontext
from fractions import Fraction

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
    bare: bool = False  # without a schema: JSON has nothing better for bytes


@dataclass(frozen=True)
class Bytes:
    value: bytes


@dataclass(frozen=True)
class Number:
    value: Decimal


@dataclass(frozen=True)
class Scaled(Number):
    """Debezium's VariableScaleDecimal: a number that comes as two fields."""

    fields: tuple = ()


@dataclass(frozen=True)
class Day:
    days: int


@dataclass(frozen=True)
class Clock:
    nanos: int | Fraction
    raw: int | None  # the number of the source; None if there is no whole one


@dataclass(frozen=True)
class Moment:
    nanos: int | Fraction
    raw: int | None
    zoned: bool
    maybe_day: bool = False


@dataclass(frozen=True)
class Geometry:
    """The fields as they come, and the well-known binary that they make."""

    fields: tuple
    wkb: bytes


@dataclass(frozen=True)
class Uid:
    """A `java.util.UUID`: neither text nor bytes."""

    value: str


@dataclass(frozen=True)
class Parts:
    """The fields as they come, and the day, time or moment that they make, or why they make none."""

    fields: tuple
    kind: type  # of what they make
    meaning: Day | Clock | Moment | None
    refused: str = ""  # the code if they make none


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
            if raw is None:
                raise Refused(LOSS)
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


CYCLE = 146_097  # days of 400 years, after which the calendar repeats


def iso_day(days: int) -> str:
    cycles = 0 if -719_162 <= days <= 2_932_896 else (days + 719_162) // CYCLE
    day = EPOCH + timedelta(days=days - cycles * CYCLE)
    year = day.year + 400 * cycles
    shown = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    return f"{shown}-{day.month:02}-{day.day:02}"


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


def units(nanos: int | Fraction, unit: int) -> int:
    if nanos % unit:
        raise Refused(LOSS)
    within(int(nanos) // unit, 64)
    return int(nanos)


def assembled(value: Parts, *kinds: type):
    """What the parts make, if a column of these kinds may take it."""
    if value.kind not in kinds:
        raise Refused(NOT)
    if value.meaning is None:
        raise Refused(value.refused)
    return value.meaning


def day(value) -> str:
    match value:
        case Parts():
            return day(assembled(value, Day, Moment))
        case Day(days):
            return iso_day(days)
        case Text(text):
            nanos = read_moment(text)
            if nanos % DAY:
                raise Refused(LOSS)
            return iso_day(within(nanos // DAY, 32))
        case Moment(nanos, _, _, maybe_day):
            if nanos % DAY and not maybe_day:
                raise Refused(LOSS)
            return iso_day(within(nanos // DAY, 32))
        case Int() | Float() | Number():
            raise Refused(UNIT)
    raise Refused(NOT)


def clock(value) -> str:
    match value:
        case Parts():
            return clock(assembled(value, Clock))
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
        case Parts():
            return moment(assembled(value, Day, Moment), zoned, unit)
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


DAY_TEXT = r"(\d{4}|[+-]\d{4,7})-(\d\d)-(\d\d)"


def read_day(text: str) -> int:
    found = re.fullmatch(DAY_TEXT + "Z?", text, re.ASCII)
    if not found:
        raise Refused(FORM)
    cycles = 0 if 1 <= int(found[1]) <= 9999 else int(found[1]) // 400 - 1
    try:
        return (date(int(found[1]) - 400 * cycles, int(found[2]), int(found[3])) - EPOCH).days + cycles * CYCLE
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
    if re.fullmatch(DAY_TEXT + "Z?", text, re.ASCII):
        return read_day(text) * DAY
    found = re.fullmatch(r"([^T ]+)[T ]([0-9:.]+)(|Z|[+-]\d\d(?::?\d\d)?)", text, re.ASCII)
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
            within(nanos // DAY, 32)
            return iso_moment(nanos, zoned)
        case Uid(text):
            return text
    return json_of(value)


def json_of(value) -> str:
    match value:
        case Geometry(fields) | Parts(fields):
            return json_of(Entries(fields, True))
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
        case Uid(text):
            return text
    raise Refused(NOT)


def octets(value, length: int | None) -> str:
    match value:
        case Bytes(content):
            pass
        case Geometry(_, content):
            pass
        case Text(text, True):
            if not re.fullmatch(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", text):
                raise Refused(FORM)
            content = base64.b64decode(text, validate=True)
            if base64.b64encode(content).decode() != text:
                raise Refused(FORM)
        case _:
            raise Refused(NOT)
    if length is not None and len(content) != length:
        raise Refused(LENGTH)
    return "0x" + content.hex()


def convert(value, target: str):
    """Returns what a column of type `target` holds for `value`, as a case file writes it."""
    if value is None:
        return None
    target = target.removesuffix(" required")
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
        of_key, of_value = target[4:-1].split(", ", 1)
        return [[inside(k, of_key, "v.key"), inside(v, of_value, "v.value")] for k, v in value.values]
    if target.startswith("struct<"):
        if isinstance(value, (Geometry, Parts, Scaled)):
            value = Entries(value.fields, True)
        if not isinstance(value, Entries) or not all(isinstance(key, Text) for key, _ in value.values):
            raise Refused(NOT)
        fields = dict(parts(target[7:-1]))
        held = {key.value: item for key, item in value.values if key.value in fields}
        return {name: inside(item, fields[name], f"v.{name}") for name, item in held.items()}
    raise AssertionError(target)


def parts(fields: str) -> list[tuple[str, str]]:
    """Splits the fields of a struct type at the commas that are not inside of another type."""
    found, depth, start = [], 0, 0
    for at, character in enumerate(fields + ","):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            name, kind = fields[start:at].strip().split(" ", 1)
            found.append((name, kind))
            start = at + 1
    return found


def inside(value, target: str, column: str):
    try:
        return convert(value, target)
    except Refused as refused:
        raise Refused(refused.code, column) from None
