"""Real data with nulls, timestamps and text: equal to its CSV files in every way we can ask."""

from __future__ import annotations

import pytest

from bed import data
from bed.catalogs import SqlCatalog
from bed.read import TableView, read_with_java
from bed.sink import ENVELOPE, running, sink

PARTITIONS = {"flights": "carrier", "weather": "day(time_hour)"}


@pytest.fixture(scope="module")
def landed(worker, broker, scratch) -> dict[str, TableView]:
    """Sends both files through two sinks at once, and waits for their tables."""
    catalog = SqlCatalog(scratch / "nyc")
    views: dict[str, TableView] = {}
    for name, by in PARTITIONS.items():
        topic = f"nyc_{name}"
        broker.create_topic(topic, 2)
        rows = data.enveloped(name)
        broker.produce(topic, ((index % 2, None, row) for index, row in enumerate(rows)))
        config = sink(
            catalog,
            topic,
            f"nyc.{name}",
            iceberg__tables__default_partition_by=by,
            iceberg__control__commit__interval_ms="15000",
            **ENVELOPE,
        )
        worker.create(topic, config)
        views[name] = TableView(catalog, f"nyc.{name}")
    counts = {"flights": 336776, "weather": 26115}
    for name, view in views.items():
        worker.wait_running(f"nyc_{name}")
        view.wait_rows(counts[name], 240, 2)
        worker.delete(f"nyc_{name}")
    return views


def summary(name: str) -> str:
    """SQL that gives count, nulls and sum of each column."""
    asked = ["count(*)"]
    for column, kind in data.COLUMNS[name].items():
        asked.append(f"count(*) FILTER ({column} IS NULL)")
        if kind == "string":
            asked.append(f"sum(length({column})), count(DISTINCT {column})")
        elif kind == "timestamp":
            asked.append(f"sum(epoch_ms({column})), min({column})::VARCHAR, max({column})::VARCHAR")
        else:
            # Decimal sums, since the order of rows must not matter.
            asked.append(f"sum({column}::DECIMAL(18, 6)), min({column}), max({column})")
    return ", ".join(asked)


# Promise: 336,776 flights and 26,115 hours of weather equal their CSV files: counts, nulls, sums
# and extremes of each column
@pytest.mark.parametrize("name", PARTITIONS)
def test_each_column_equals_the_csv(landed, name):
    view = landed[name]
    asked = f"SELECT {summary(name)} FROM "
    from_csv = view.connection.execute(asked + data.csv_as_sql(name)).fetchall()
    assert view.query(asked + "{t}") == from_csv


# Promise: the flights of each carrier and month equal the CSV's
@pytest.mark.parametrize("name", PARTITIONS)
def test_each_group_equals_the_csv(landed, name):
    view = landed[name]
    group = "carrier, month" if name == "flights" else "origin, month"
    asked = f"SELECT {group}, {summary(name)} FROM "
    tail = f" GROUP BY {group} ORDER BY {group}"
    from_csv = view.connection.execute(asked + data.csv_as_sql(name) + tail).fetchall()
    assert len(from_csv) > 30
    assert view.query(asked + "{t}" + tail) == from_csv


# Promise: no row of the flights and the weather differs from its CSV line
@pytest.mark.parametrize("name", PARTITIONS)
def test_no_row_differs_from_the_csv(landed, name):
    view = landed[name]
    columns = ", ".join(data.COLUMNS[name])
    csv, table = f"SELECT {columns} FROM {data.csv_as_sql(name)}", f"SELECT {columns} FROM {{t}}"
    for left, right in ((csv, table), (table, csv)):
        assert view.query(f"SELECT count(*) FROM ({left} EXCEPT ALL {right})") == [(0,)]


# Promise: tables are partitioned as configured, and a filter reads only the partitions it names
def test_partitions_are_those_of_the_configuration(landed):
    fields = {
        name: [
            (field["name"], field["transform"])
            for field in view.metadata()["partition-specs"][-1]["fields"]
        ]
        for name, view in landed.items()
    }
    assert fields == {
        "flights": [("carrier", "identity")],
        "weather": [("time_hour_day", "day")],
    }
    by_carrier = read_with_java(
        landed["flights"].location(), "files", {"type": "eq", "term": "carrier", "value": "HA"}
    )
    assert {file["partition"] for file in by_carrier} == {"carrier=HA"}
    assert sum(int(file["rows"]) for file in by_carrier) == 342
