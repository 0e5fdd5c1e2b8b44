#!/usr/bin/env python3
"""Writes cases with schemas and values at random: new tables, read back by Iceberg's Java library.

    python3 tests/conformance/generate_random.py --seed 7 --cases 500 FILE

What is expected is worked out by `rules`, as in generate.py; the same seed makes the same file. At least
nine of ten records have to land, else the file would say little.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import struct
import sys
import uuid
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Callable

from rules import (
    DAY, Bool, Bytes, Clock, Day, Entries, Float, Int, Items, Moment, Number, Refused, Text, convert, iso_clock,
    iso_day, iso_moment, plain, shown,
)  # fmt: skip

RECORDS = 6
DEPTH = 3
DBZ = "io.debezium."
# 0001-01-01 to 9999-12-31: the years that ISO texts of four digits have.
DAYS = (-719_162, 2_932_896)
LETTERS = "abz09 _-'\"\\/{}[]<>,:?\t\néß日本😀\u0000\u007f\ufeff"

Value = tuple[object, object]
"""What a case file writes, and what it means."""


@dataclass(frozen=True)
class Kind:
    """A schema without its `?`, the type of a new column for it, and values of it."""

    schema: str
    column: str
    make: Callable[[random.Random], Value]
    optional: bool = False

    @property
    def whole(self) -> str:
        return self.schema + ("?" if self.optional else "")

    @property
    def inner(self) -> str:
        """The type as a part of another."""
        return self.column + ("" if self.optional else " required")

    def value(self, rng: random.Random) -> Value:
        if self.optional and rng.random() < 0.15:
            return None, None
        return self.make(rng)


def integer(bits: int, column: str) -> Kind:
    def make(rng: random.Random) -> Value:
        # Small ones, and the ends of the range, more often than chance would have them.
        width = rng.choice((3, bits // 2, bits - 1))
        raw = rng.choice((rng.randrange(-(1 << width), 1 << width), -(1 << bits - 1), (1 << bits - 1) - 1))
        return raw, Int(raw)

    return Kind(f"int{bits}", column, make)


def floating(bits: int, column: str) -> Kind:
    def make(rng: random.Random) -> Value:
        raw = rng.getrandbits(bits).to_bytes(bits // 8, "little")
        number = struct.unpack("<f" if bits == 32 else "<d", raw)[0]
        number = rng.choice((number, number, float(rng.randrange(-1000, 1000)), 0.0, -0.0, math.nan, math.inf))
        return shown(number, bits), Float(number, bits)

    return Kind(f"float{bits}", column, make)


def some_text(rng: random.Random) -> str:
    return "".join(rng.choice(LETTERS) for _ in range(rng.randrange(12)))


def text(rng: random.Random) -> Value:
    made = some_text(rng)
    return made, Text(made)


def octets(rng: random.Random) -> Value:
    made = rng.randbytes(rng.randrange(20))
    return "0x" + made.hex(), Bytes(made)


def decimal(rng: random.Random) -> Kind:
    scale = rng.randrange(0, 12)
    precision = rng.randrange(max(scale, 1), 39)

    def make(rng: random.Random) -> Value:
        unscaled = rng.randrange(-(10**precision) + 1, 10**precision)
        return plain(unscaled, scale), Number(Decimal(unscaled).scaleb(-scale))

    return Kind(f"decimal({precision},{scale})", f"decimal({precision}, {scale})", make)


def day(rng: random.Random) -> Value:
    days = rng.randrange(DAYS[0], DAYS[1] + 1)
    return iso_day(days), Day(days)


def clock(rng: random.Random) -> Value:
    nanos = rng.randrange(86_400_000) * 1_000_000
    return iso_clock(nanos), Clock(nanos, nanos // 1_000_000)


def millis(rng: random.Random) -> int:
    return rng.randrange(DAYS[0] * 86_400_000, (DAYS[1] + 1) * 86_400_000)


def moment(rng: random.Random) -> Value:
    raw = millis(rng)
    return iso_moment(raw * 1_000_000, True), Moment(raw * 1_000_000, raw, True)


def raw(schema: str, column: str, meaning: Callable[[int], object], *ends: int) -> Kind:
    """A number whose name says what it counts."""

    def make(rng: random.Random) -> Value:
        number = rng.randrange(*ends)
        return number, meaning(number)

    return Kind(schema, column, make)


def clocks(schema: str, unit: int) -> Kind:
    # Now and then a moment that no clock shows.
    return raw(schema, "time", lambda n: Clock(n * unit, n), -DAY // unit // 200, DAY // unit)


def moments(schema: str, column: str, unit: int, zoned: bool, first: int, last: int) -> Kind:
    return raw(schema, column, lambda n: Moment(n * unit, n, zoned), first, last)


def zoned_text(rng: random.Random) -> Value:
    nanos = millis(rng) * 1_000_000 + rng.randrange(1000) * 1000
    made = iso_moment(nanos, True)
    return made, Text(made)


def uuid_text(rng: random.Random) -> Value:
    made = str(uuid.UUID(int=rng.getrandbits(128)))
    return made, Text(made)


MICROS = 1_000_000
LEAVES: list[Kind] = [
    Kind("boolean", "boolean", lambda rng: rng.choice([(True, Bool(True)), (False, Bool(False))])),
    integer(8, "int"), integer(16, "int"), integer(32, "int"), integer(64, "long"),
    floating(32, "float"), floating(64, "double"),
    Kind("string", "string", text), Kind("bytes", "binary", octets),
    Kind("date", "date", day), Kind("time", "time", clock), Kind("timestamp", "timestamptz", moment),
    raw(f"int32:{DBZ}time.Date", "date", Day, DAYS[0], DAYS[1]),
    clocks(f"int32:{DBZ}time.Time", 1_000_000), clocks(f"int64:{DBZ}time.MicroTime", 1000),
    moments(f"int64:{DBZ}time.Timestamp", "timestamp", 1_000_000, False, -(10**13), 10**14),
    moments(f"int64:{DBZ}time.MicroTimestamp", "timestamp", 1000, False, -(10**16), 10**17),
    moments("int64:timestamp-micros", "timestamptz", 1000, True, -(10**16), 10**17),
    Kind(f"string:{DBZ}time.ZonedTimestamp", "timestamptz", zoned_text),
    Kind(f"string:{DBZ}data.Uuid", "uuid", uuid_text), Kind(f"string:{DBZ}data.Json", "string", text),
    raw(f"int32:{DBZ}time.Year", "int", Int, -5000, 5000), Kind(f"bytes:{DBZ}data.Bits", "binary", octets),
]  # fmt: skip


def structure(fields: list[tuple[str, Kind]]) -> Kind:
    def make(rng: random.Random) -> Value:
        made = {name: kind.value(rng) for name, kind in fields}
        notation = {name: of for name, (of, _) in made.items()}
        return notation, Entries(tuple((Text(name), meant) for name, (_, meant) in made.items()), True)

    schema = ", ".join(f"{name} {kind.whole}" for name, kind in fields)
    column = ", ".join(f"{name} {kind.inner}" for name, kind in fields)
    return Kind(f"struct<{schema}>", f"struct<{column}>", make)


def several(item: Kind) -> Kind:
    def make(rng: random.Random) -> Value:
        made = [item.value(rng) for _ in range(rng.randrange(4))]
        return [of for of, _ in made], Items(tuple(meant for _, meant in made))

    return Kind(f"array<{item.whole}>", f"list<{item.inner}>", make)


def mapping(key: Kind, value: Kind) -> Kind:
    def make(rng: random.Random) -> Value:
        keys = {json.dumps(of): (of, meant) for of, meant in (key.value(rng) for _ in range(rng.randrange(4)))}
        made = [(of, value.value(rng)) for of in keys.values()]
        notation = [[of, held] for (of, _), (held, _) in made]
        return notation, Entries(tuple((meant, held) for (_, meant), (_, held) in made), False)

    return Kind(f"map<{key.whole},{value.whole}>", f"map<{key.column}, {value.inner}>", make)


def any_kind(rng: random.Random, depth: int) -> Kind:
    choice = rng.random()
    if depth == 0 or choice < 0.6:
        made = decimal(rng) if choice < 0.05 else rng.choice(LEAVES)
    elif choice < 0.73:
        made = several(any_kind(rng, depth - 1))
    elif choice < 0.86:
        key = rng.choice([kind for kind in LEAVES if kind.schema in ("string", "int32", "int64", "boolean")])
        made = mapping(key, any_kind(rng, depth - 1))
    else:
        fields = [(name, any_kind(rng, depth - 1)) for name in "abc"[: rng.randrange(1, 4)]]
        made = structure(fields)
    return Kind(made.schema, made.column, made.make, rng.random() < 0.5)


def record(kinds: dict[str, Kind], rng: random.Random) -> dict:
    """A record with the row it makes, or with the code of the first column that refuses it."""
    values = {name: kind.value(rng) for name, kind in kinds.items()}
    made: dict = {"value": {name: notation for name, (notation, _) in values.items()}}
    row = {}
    for name, (_, meaning) in values.items():
        try:
            row[name] = convert(meaning, kinds[name].column)
        except Refused as refused:
            return made | {"error": refused.code}
    return made | {"row": row}


def case(number: int, rng: random.Random) -> dict:
    kinds = {f"c{index}": any_kind(rng, DEPTH) for index in range(rng.randrange(1, 6))}
    fields = ", ".join(f"{name} {kind.whole}" for name, kind in kinds.items())
    return {
        "name": f"schema {number}",
        "schema": f"struct<{fields}>",
        "records": [record(kinds, rng) for _ in range(RECORDS)],
        "expect": {"columns": {name: kind.inner for name, kind in kinds.items()}},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--cases", type=int, required=True)
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    cases = [case(number, rng) for number in range(options.cases)]
    records = [record for case in cases for record in case["records"]]
    landed = sum("row" in record for record in records)
    if landed < 0.9 * len(records):
        print(f"only {landed} of {len(records)} records would land", file=sys.stderr)
        return 1
    about = f"Written by generate_random.py --seed {options.seed} --cases {options.cases}."
    options.file.parent.mkdir(parents=True, exist_ok=True)
    options.file.write_text(json.dumps({"about": about, "cases": cases}, ensure_ascii=True), "utf-8")
    print(f"{len(cases)} cases of seed {options.seed}: {landed} of {len(records)} records are to land")
    return 0


if __name__ == "__main__":
    sys.exit(main())
