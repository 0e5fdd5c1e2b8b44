"""Small files are merged in the process that commits the table, beside its commits."""

from __future__ import annotations

import json
import subprocess

import pytest

from bed.artifacts import frazil_cli
from bed.exactly import Flow, pause_for
from bed.read import TableView, read_with_java

OFTEN = {
    "iceberg__maintenance__enabled": "true",
    "iceberg__maintenance__interval_ms": "3000",
}


def compactions(view: TableView) -> list[dict]:
    said = (snapshot["summary"] for snapshot in view.snapshots())
    return [summary for summary in said if "frazil.maintenance" in summary]


def data_files(view: TableView) -> int:
    return len(read_with_java(view.location(), "files"))


def check_rows(run: Flow) -> None:
    """Exactly once, as DuckDB, Iceberg's Java library and `frazil verify` see it."""
    run.check()
    ids = sorted(int(row["id"]) for row in read_with_java(run.view.location(), "rows"))
    assert ids == list(range(run.sent))


# Promise: a topic that is committed every second becomes few data files with maintenance on: they are merged
# beside the commits, each record is there once, and the offsets in the table stay what they are
# Complaint: 25
@pytest.mark.parametrize("version", [2, 3])
def test_small_files_are_merged_beside_the_writer(worker, broker, sql, name, version):
    settings = {"iceberg__tables__auto_create_props__format_version": str(version)}
    run = Flow(worker, broker, sql, name, partitions=2, tasks=1, **OFTEN, **settings)
    with run.running(first=100):
        run.feed(count=100, pause=0.5)
        pause_for(30)
        check_rows(run)
        made = compactions(run.view)
        commits = len(run.view.snapshots()) - len(made)
        assert made and all(summary["operation"] == "replace" for summary in made), made
        assert all("frazil.wid" not in summary for summary in made)
        files = data_files(run.view)
        assert commits >= 20 and files <= commits // 2, f"{files} files of {commits} commits"
        # The offsets count on as before.
        run.send(100)
        check_rows(run)


# Promise: `frazil maintain` merges the small files of a table while its connector writes, and tells as JSON
# what it did, or with `--dry-run` would do
def test_maintain_is_a_command(worker, broker, sql, name, tmp_path):
    run = Flow(worker, broker, sql, name, partitions=2, tasks=1)
    path = tmp_path / "connector.json"
    path.write_text(json.dumps({"name": name, "config": run.config}))

    def maintain(*more: str) -> dict:
        command = [str(frazil_cli()), "maintain", "--config", str(path), "--json", *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (table,) = json.loads(done.stdout)["tables"]
        assert table["table"] == run.tables[0]
        return table

    with run.running(first=100):
        for _ in range(6):
            run.send(100)
            run.settle()
        before = data_files(run.view)
        (planned,) = maintain("--dry-run")["groups"]
        assert planned["outcome"] == "planned" and planned["files"] == before >= 6
        assert data_files(run.view) == before
        (done,) = maintain()["groups"]
        assert done["outcome"] == "done" and done["new_files"] == 1, done
        assert data_files(run.view) == 1
        assert maintain()["groups"] == []
        run.send(100)
        check_rows(run)
