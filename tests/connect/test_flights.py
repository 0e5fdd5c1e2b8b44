"""Real data with nulls, timestamps and text: equal to its CSV files in every way we can ask."""

from __future__ import annotations

import pytest

from bed import data
from bed.catalogs import SqlCatalog
from bed.read import TableView, read_with_java
from bed.sink import configuration

# Each table, the CSV behind it and its partition field. As the shipped configurations have them.
TABLES = {
    "flights_by_day": ("flights", ("time_hour_day", "day")),
    "flights_by_carrier": ("flights", ("carrier", "identity")),
    "weather": ("weather", ("time_hour_day", "day")),
}
COUNTS = {"flights": 336776, "weather": 26115}
FILES = ("flights.json", "weather.json")


@pytest.fixture(scope="module")
def landed(worker, broker, scratch) -> dict[str, TableView]:
    """Sends both files through the shipped configurations, and waits for their three tables."""
    catalog = SqlCatalog(scratch / "nyc")
    for file, topic in zip(FILES, COUNTS):
        broker.create_topic(topic, 2)
        rows = data.enveloped(topic)
        broker.produce(topic, ((index % 2, None, row) for index, row in enumerate(rows)))
        worker.create(*configuration(file, catalog))
    views = {table: TableView(catalog, f"demo.{table}") for table in TABLES}
    for topic in COUNTS:
        worker.wait_running(topic, 2)
    for table, view in views.items():
        view.wait_rows(COUNTS[TABLES[table][0]], 240, 2)
    for topic in COUNTS:
        worker.delete(topic)
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
@pytest.mark.parametrize("table", TABLES)
def test_each_column_equals_the_csv(landed, table):
    name, view = TABLES[table][0], landed[table]
    asked = f"SELECT {summary(name)} FROM "
    from_csv = view.connection.execute(asked + data.csv_as_sql(name)).fetchall()
    assert view.query(asked + "{t}") == from_csv


# Promise: the flights of each carrier and month equal the CSV's
@pytest.mark.parametrize("table", TABLES)
def test_each_group_equals_the_csv(landed, table):
    name, view = TABLES[table][0], landed[table]
    group = "carrier, month" if name == "flights" else "origin, month"
    asked = f"SELECT {group}, {summary(name)} FROM "
    tail = f" GROUP BY {group} ORDER BY {group}"
    from_csv = view.connection.execute(asked + data.csv_as_sql(name) + tail).fetchall()
    assert len(from_csv) > 30
    assert view.query(asked + "{t}" + tail) == from_csv


# Promise: no row of the flights and the weather differs from its CSV line
@pytest.mark.parametrize("table", TABLES)
def test_no_row_differs_from_the_csv(landed, table):
    name, view = TABLES[table][0], landed[table]
    columns = ", ".join(data.COLUMNS[name])
    sent, read = f"SELECT {columns} FROM {data.csv_as_sql(name)}", f"SELECT {columns} FROM {{t}}"
    for left, right in ((sent, read), (read, sent)):
        assert view.query(f"SELECT count(*) FROM ({left} EXCEPT ALL {right})") == [(0,)]


# Promise: tables are partitioned as configured, and a filter reads only the partitions it names
def test_partitions_are_those_of_the_configuration(landed):
    for table, (_, (field, transform)) in TABLES.items():
        (found,) = landed[table].metadata()["partition-specs"][-1]["fields"]
        assert (found["name"], found["transform"]) == (field, transform)
    by_carrier = read_with_java(
        landed["flights_by_carrier"].location(), "files", {"type": "eq", "term": "carrier", "value": "HA"}
    )
    assert {file["partition"] for file in by_carrier} == {"carrier=HA"}
    assert sum(int(file["rows"]) for file in by_carrier) == 342
