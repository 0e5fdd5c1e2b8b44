"""A catalog that stores no table properties: the offsets are in the summaries of the snapshots."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Iterator

import pytest
from pyiceberg.catalog import load_catalog

from bed import data
from bed.artifacts import frazil_cli
from bed.catalogs import RestCatalog
from bed.connect import Worker
from bed.process import wait_until
from bed.read import TableView
from bed.sink import sink, verify


def state_keys(view: TableView) -> list[str]:
    """Returns the table's properties that hold offsets or resets."""
    keys = view.metadata()["properties"]
    return [key for key in keys if key.startswith(("frazil.w.", "frazil.a."))]


@pytest.fixture(scope="module")
def stubborn(scratch, logs) -> Iterator[RestCatalog]:
    """The reference catalog, whose opinion of properties a test may change."""
    started = RestCatalog(scratch / "rest-stubborn", logs)
    try:
        yield started.start()
    finally:
        started.stop()


def state(config: dict[str, str], folder: Path, *words: str) -> str:
    """Runs `frazil state`, which has to find nothing wrong, and returns what it says."""
    file = folder / f"{config['topics']}.json"
    file.write_text(json.dumps({"name": config["topics"], "config": config}))
    command = [str(frazil_cli()), "state", words[0], "--config", str(file), *words[1:]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def stop(worker: Worker, broker, name: str) -> None:
    worker.insist("PUT", f"/connectors/{name}/stop")
    wait_until(f"{name} to stop", lambda: not worker.status(name)["tasks"], 60, 0.25)
    wait_until("an empty group", lambda: not broker.members(f"connect-{name}"), 60, 0.25)


def resume(worker: Worker, name: str) -> None:
    worker.insist("PUT", f"/connectors/{name}/resume")
    worker.wait_running(name)


# Promise: on a catalog that refuses table properties, forbids them or throws them away, every row is
# written once over restarts, expired snapshots and an offset reset
@pytest.mark.parametrize("mode", ["refuse", "forbid", "drop"])
def test_offsets_are_kept_without_properties(worker, broker, stubborn, name, scratch, mode):
    stubborn.properties(mode)
    table = f"{name}.orders"
    config = sink(stubborn, name, table, iceberg__tables__metadata_columns="_topic,_partition,_offset")
    view = TableView(stubborn, table)
    broker.create_topic(name)
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        broker.produce_json(name, data.orders(count, sent))
        sent += count

    worker.create(name, config)
    try:
        worker.wait_running(name)
        for _ in range(2):
            send(100)
            view.wait_rows(sent, 90)
        stop(worker, broker, name)
        assert not state_keys(view)
        assert "the summary of that snapshot" in state(config, scratch, "show")
        # Another engine writes, and expires every snapshot that no branch and no tag needs.
        foreign = load_catalog("foreign", type="rest", uri=stubborn.uri).load_table(table)
        foreign.delete("_offset == 0")
        foreign.delete("_offset == 1")
        kept = {ref.snapshot_id for ref in foreign.metadata.refs.values()}
        old = [s.snapshot_id for s in foreign.snapshots() if s.snapshot_id not in kept]
        foreign.maintenance.expire_snapshots().by_ids(old).commit()
        # The group stands at the beginning, so that the table alone says what is written.
        group = f"connect-{name}"
        broker.admin.delete_consumer_groups([group])[group].result(30)
        send(100)
        resume(worker, name)
        view.wait_rows(sent - 2, 90)
        asked = "SELECT count(*), count(DISTINCT _offset), min(_offset), max(_offset) FROM {t}"
        assert view.query(asked) == [(sent - 2, sent - 2, 2, sent - 1)]
        # A reset is obeyed, and made once.
        stop(worker, broker, name)
        body = {
            "offsets": [
                {
                    "partition": {"kafka_topic": name, "kafka_partition": 0},
                    "offset": {"kafka_offset": sent - 10},
                }
            ]
        }
        worker.insist("PATCH", f"/connectors/{name}/offsets", body)
        resume(worker, name)
        view.wait_rows(sent + 8, 90)
        assert view.query(asked) == [(sent + 8, sent - 2, 2, sent - 1)]
        broker.wait_group_offsets(group, {(name, 0): sent}, 60)
        stop(worker, broker, name)
        assert "nothing to repair" in state(config, scratch, "repair")
        assert "epoch 1" in state(config, scratch, "show")
        assert not state_keys(view)
        said = verify(stubborn, table, {(name, 0): sent}).stdout
        # Those that were asked for again, and what the other engine deleted.
        assert "10 rows twice" in said and "2 offsets in no row" in said, said
    finally:
        stubborn.properties("store")
        worker.delete(name)
