"""Tables that others have written are continued: pyiceberg's, and files that have no field ids."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from bed.peer import lay_peer, peer_sink
from bed.read import TableView, local, pyiceberg_table, read_with_java
from bed.sink import running, sink

UTC = datetime.timezone.utc


def moment(number: int) -> datetime.datetime:
    return datetime.datetime(2026, 11, 1, tzinfo=UTC) + datetime.timedelta(hours=number)


def own_files(table) -> list[dict]:
    """Returns what the table says of the data files of ours."""
    files = table.inspect.files().to_pylist()
    return [file for file in files if Path(file["file_path"]).name.startswith("frazil-")]


def titles(view: TableView) -> dict[str, dict[int, str]]:
    """Returns the titles by id, as three readers see them."""
    rows = pyiceberg_table(view).scan().to_arrow().to_pylist()
    return {
        "pyiceberg": {row["id"]: row["title"] for row in rows},
        "java": {int(row["id"]): row["title"] for row in read_with_java(view.location(), "rows")},
    }


# Promise: a table that pyiceberg made and evolved (columns renamed, dropped and added, another
# partition spec, a sort order, an identifier, properties) is continued as it is now
def test_a_table_that_pyiceberg_made_and_evolved_is_continued(worker, broker, rest, name):
    catalog = load_catalog("existing", type="rest", uri=rest.uri)
    catalog.create_namespace(name)
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "name", StringType(), required=False),
        NestedField(3, "old", StringType(), required=False),
        NestedField(4, "ts", TimestamptzType(), required=False),
        identifier_field_ids=[1],
    )
    data_path = f"{rest.warehouse}/elsewhere/{name}"
    table = catalog.create_table(
        f"{name}.t",
        schema,
        partition_spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name")),
        sort_order=SortOrder(SortField(1, IdentityTransform())),
        properties={
            "write.parquet.compression-codec": "gzip",
            "write.data.path": data_path,
            "write.metadata.metrics.default": "counts",
        },
    )
    arrow = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("name", pa.string()),
            ("old", pa.string()),
            ("ts", pa.timestamp("us", tz="UTC")),
        ]
    )
    rows = [
        {"id": n, "name": f"n{n % 3}", "old": "gone", "ts": moment(n)} for n in range(6)
    ]
    table.append(pa.Table.from_pylist(rows, schema=arrow))
    with table.update_spec() as spec:
        spec.remove_field("name")
        spec.add_field("ts", DayTransform(), "ts_day")
    with table.update_schema() as change:
        change.rename_column("name", "title")
        change.delete_column("old")
        change.add_column("n", LongType())
    before = table.refresh().metadata

    broker.create_topic(name)
    # Of two days, the later ones first: the files have to be sorted.
    sent = [
        {"id": n, "title": f"t{n}", "n": n * 2, "old": "no column", "ts": moment(n % 48).isoformat()}
        for n in reversed(range(100, 160))
    ]
    broker.produce_json(name, sent)
    view = TableView(rest, f"{name}.t")
    config = sink(rest, name, f"{name}.t", iceberg__control__commit__interval_ms="3000")
    with running(worker, name, config):
        view.wait_rows(66, 90)

    expected = {n: f"n{n % 3}" for n in range(6)} | {n: f"t{n}" for n in range(100, 160)}
    assert titles(view) == {"pyiceberg": expected, "java": expected}
    assert view.query("SELECT count(*), sum(n) FROM {t} WHERE id >= 100") == [
        (60, sum(n * 2 for n in range(100, 160)))
    ]
    table = table.refresh()
    assert table.schema() == before.schema_by_id(before.current_schema_id)
    assert table.spec() == before.specs()[before.default_spec_id]
    assert table.metadata.format_version == before.format_version
    assert {k: v for k, v in table.properties.items() if k.startswith("write.")} == {
        k: v for k, v in before.properties.items() if k.startswith("write.")
    }
    ours = own_files(table)
    assert ours
    for file in ours:
        assert file["file_path"].startswith(data_path)
        assert set(file["partition"]) >= {"ts_day"} and file["partition"]["ts_day"] is not None
        assert file["sort_order_id"] == table.sort_order().order_id
        assert not file["lower_bounds"], "metrics are `counts`"
        parquet = pq.ParquetFile(local(file["file_path"]))
        assert parquet.metadata.row_group(0).column(0).compression == "GZIP"
        ids = parquet.read().column("id").to_pylist()
        assert ids == sorted(ids), "the table's own sort order"
        fields = parquet.schema_arrow
        assert fields.field("title").metadata[b"PARQUET:field_id"] == b"2"


# Promise: a table of files without field ids, which are read through a name mapping, is continued
def test_a_table_with_a_name_mapping_is_continued(worker, broker, rest, name, scratch):
    catalog = load_catalog("existing", type="rest", uri=rest.uri)
    catalog.create_namespace(name)
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "title", StringType(), required=False),
    )
    table = catalog.create_table(f"{name}.t", schema)
    folder = Path(local(table.location())) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    plain = folder / "plain.parquet"
    # Written by name alone, in another order than the table has.
    pq.write_table(pa.table({"title": ["n0", "n1"], "id": pa.array([0, 1], pa.int64())}), plain)
    table.add_files([f"file://{plain}"])
    mapping = table.refresh().properties["schema.name-mapping.default"]
    broker.create_topic(name)
    broker.produce_json(name, ({"id": n, "title": f"t{n}"} for n in range(2, 10)))
    view = TableView(rest, f"{name}.t")
    with running(worker, name, sink(rest, name, f"{name}.t")):
        view.wait_rows(10, 90)
    expected = {n: f"n{n}" for n in range(2)} | {n: f"t{n}" for n in range(2, 10)}
    # Iceberg Java's generic reader knows no name mappings: it takes such a file by position.
    found = pyiceberg_table(view).scan().to_arrow().to_pylist()
    assert {row["id"]: row["title"] for row in found} == expected
    table = table.refresh()
    assert table.properties["schema.name-mapping.default"] == mapping
    for file in own_files(table):
        fields = pq.ParquetFile(local(file["file_path"])).schema_arrow
        assert fields.field("id").metadata[b"PARQUET:field_id"] == b"1"


# Promise: a table of format version 1, and one whose files are to be ORC, are refused with the
# reason and what to do
@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"format-version": "1"}, "TABLE_FORMAT_V1"),
        ({"write.format.default": "orc"}, "TABLE_PROPERTY_UNSUPPORTED"),
    ],
)
def test_a_table_that_cannot_be_continued_is_refused(worker, broker, rest, name, properties, code):
    catalog = load_catalog("existing", type="rest", uri=rest.uri)
    catalog.create_namespace(name)
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    catalog.create_table(f"{name}.t", schema, properties=properties)
    broker.create_topic(name)
    broker.produce_json(name, [{"id": 1}])
    config = sink(rest, name, f"{name}.t")
    if code == "TABLE_FORMAT_V1":
        messages = worker.validate(config | {"name": name})
        assert any(code in text for found in messages.values() for text in found), messages
        return
    worker.create(name, config)
    try:
        trace = worker.wait_failed(name)
    finally:
        worker.delete(name)
    assert code in trace and "write.format.default" in trace, trace
    assert TableView(rest, f"{name}.t").rows() == 0


# Shows: a table that the Apache sink made is continued: its partitioning, columns and rows stay
@pytest.mark.peer
def test_a_table_of_the_apache_sink_is_continued(make_worker, broker, rest, name):
    both = make_worker(heap="1500m", settings={"offset.flush.interval.ms": "2000"})
    lay_peer(both.plugins)
    both.start()
    control = f"control-{name}"
    broker.create_topic(name)
    broker.create_topic(control)
    record = {"kind": "a", "nested": {"x": 1}}
    broker.produce_json(name, (record | {"id": n} for n in range(20)))
    view = TableView(rest, f"{name}.t")
    config = peer_sink(rest, name, f"{name}.t", control, 2000, 1)
    config["iceberg.tables.default-partition-by"] = "bucket(id, 4)"
    with running(both, f"{name}-peer", config):
        view.wait_rows(20, 120)
    before = view.metadata()
    broker.produce_json(name, (record | {"id": n, "more": "m"} for n in range(20, 50)))
    # A connector of its own group begins where the topic begins; the peer's records are skipped as a
    # user would: by the offset.
    ours = sink(rest, name, f"{name}.t", iceberg__tables__evolve_schema_enabled="true")
    stopped = {"name": name, "config": ours | {"name": name}, "initial_state": "STOPPED"}
    both.insist("POST", "/connectors", stopped)
    offsets = {"partition": {"kafka_topic": name, "kafka_partition": 0}, "offset": {"kafka_offset": 20}}
    both.insist("PATCH", f"/connectors/{name}/offsets", {"offsets": [offsets]})
    both.insist("PUT", f"/connectors/{name}/resume")
    try:
        view.wait_rows(50, 120)
    finally:
        both.delete(name)
    assert view.query("SELECT count(DISTINCT id), count(more), sum(nested.x) FROM {t}") == [
        (50, 30, 50)
    ]
    after = view.metadata()
    assert after["default-spec-id"] == before["default-spec-id"]
    assert after["partition-specs"] == before["partition-specs"]
    rows = read_with_java(view.location(), "rows", {"type": "eq", "term": "id", "value": 33})
    assert [row["id"] for row in rows] == ["33"]
