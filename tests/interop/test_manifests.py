"""What other engines make of a table whose manifests were merged by its commits."""

from __future__ import annotations

import pytest

from bed import data
from bed.read import TableView, pyiceberg_table, read_with_java
from bed.sink import running, sink, verify

BURSTS, EACH = 12, 100


# Promise: a commit merges the manifests of earlier ones, and DuckDB, pyiceberg and Iceberg's Java
# library read every row through them, with and without a filter
@pytest.mark.parametrize("version", ["2", "3"])
def test_merged_manifests_are_read(worker, broker, sql, name, version):
    table = f"{name}.orders"
    config = sink(sql, name, table)
    config["iceberg.tables.metadata-columns"] = "_topic,_partition,_offset"
    config["iceberg.tables.auto-create-props.format-version"] = version
    config["iceberg.tables.auto-create-props.commit.manifest.min-count-to-merge"] = "4"
    config[f"iceberg.table.{table}.partition-by"] = "bucket(id, 4)"
    broker.create_topic(name)
    view, rows = TableView(sql, table), BURSTS * EACH
    with running(worker, name, config):
        for burst in range(BURSTS):
            broker.produce_json(name, data.orders(EACH, burst * EACH))
            view.wait_rows((burst + 1) * EACH, 30, pause=0.2)
    assert len(view.snapshots()) >= BURSTS
    opened = pyiceberg_table(view)
    manifests = opened.inspect.manifests().to_pylist()
    assert len(manifests) <= 9, [one["path"] for one in manifests]
    merged = [one for one in manifests if "-merged-" in one["path"]]
    assert merged and max(one["existing_data_files_count"] for one in merged) >= 16
    added = {entry["data_file"]["file_path"]: entry for entry in opened.inspect.entries().to_pylist()}
    snapshots = {one["snapshot-id"]: one["sequence-number"] for one in view.snapshots()}
    for entry in added.values():
        # Each file belongs to the snapshot that brought it, not to the one that merged it.
        assert snapshots[entry["snapshot_id"]] == entry["sequence_number"]
    assert len({entry["sequence_number"] for entry in added.values()}) >= BURSTS
    expected = [(number,) for number in range(rows)]
    assert view.query("SELECT id FROM {t} ORDER BY id") == expected
    assert sorted(opened.scan().to_arrow()["id"].to_pylist()) == list(range(rows))
    for number in (0, EACH - 1, EACH, rows // 2, rows - 1):
        assert view.query(f"SELECT count(*) FROM {{t}} WHERE id = {number}") == [(1,)]
        assert opened.scan(row_filter=f"id == {number}").to_arrow().num_rows == 1
    found = read_with_java(view.location(), "rows")
    assert sorted(int(row["id"]) for row in found) == list(range(rows))
    checked = verify(sql, table, {(name, 0): rows})
    assert checked.returncode == 0, checked.stdout + checked.stderr
