"""Changes of rows whose files are compacted meanwhile."""

from __future__ import annotations

import random

import pytest
from checks import check_deletes
from records import Writer
from stage import FIELDS

from bed.debezium import JSON
from bed.exactly import pause_for
from bed.process import wait_until
from bed.read import TableView, read_with_java
from bed.sink import running, sink

WRITER = Writer(FIELDS, ("id",), schemas=True, name="maintained")
KEYS = 400
ROUNDS = 30


def changes(dice: random.Random, model: dict[int, str], number: int) -> list[tuple]:
    """Makes some changes, and lets the model follow them."""
    records = []
    for _ in range(40):
        key = dice.randrange(KEYS)
        row = {column: None for column, *_ in FIELDS} | {"id": key, "v": f"{number}"}
        is_delete = dice.random() < 0.2
        records.append((0, WRITER.key_bytes(row), None if is_delete else WRITER.row(row)))
        if is_delete:
            model.pop(key, None)
        else:
            model[key] = f"{number}"
    return records


# Promise: upserts and deletes go on beside compactions of their table: each key has its last row, as DuckDB
# and Iceberg's Java library see it, and the files stay few
# Case: 42
@pytest.mark.parametrize("version", [2, 3])
def test_changes_go_on_beside_compactions(worker, broker, sql, name, version):
    broker.create_topic(name)
    view = TableView(sql, f"{name}.t")
    config = sink(
        sql,
        name,
        f"{name}.t",
        iceberg__tables__default_mode="upsert",
        iceberg__tables__default_id_columns="id",
        iceberg__tables__auto_create_props__format_version=str(version),
        iceberg__maintenance__enabled="true",
        iceberg__maintenance__interval_ms="2000",
    )
    config |= {"key.converter": JSON, "value.converter": JSON}
    config |= {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
    dice, model = random.Random(version), {}

    def rows() -> dict[int, str]:
        if view.location() is None or not view.metadata().get("snapshots"):
            return {}
        found = view.query("SELECT id, v FROM {t}")
        assert len(dict(found)) == len(found), f"a key is there twice: {found}"
        return dict(found)

    with running(worker, name, config):
        for number in range(ROUNDS):
            broker.produce(name, changes(dice, model, number))
            pause_for(0.9)
        wait_until("the last rows", lambda: rows() == model, 60, 0.5)
        said = [snapshot["summary"] for snapshot in view.snapshots()]
        made = [summary for summary in said if "frazil.maintenance" in summary]
        assert len(made) >= 3, f"{len(made)} compactions"
        found = {int(row["id"]): row["v"] for row in read_with_java(view.location(), "rows")}
        assert found == model
        files = len(read_with_java(view.location(), "files"))
        assert files <= 15, f"{files} files after {ROUNDS} commits"
    check_deletes(view)
