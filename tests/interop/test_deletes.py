"""What other engines make of deletion vectors and position delete files, in every snapshot.

The tables are written by `rust/engine/src/commit/tests/deletes.rs`: random changes of keys that move
between partitions, found through a primary-key index. They are not made by a worker yet.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from bed.artifacts import ROOT, java, libraries
from bed.read import Question, ask_java, connect_duckdb, local

TEST = "commit::tests::deletes::tables_for_other_readers"
GOLDEN = ROOT / "tests" / "wire" / "vectors.puffin"


@pytest.fixture(scope="module")
def tables(scratch: Path) -> dict[str, list[dict]]:
    """The metadata file and the rows after each commit, by the name of the table."""
    folder = scratch / "deletes"
    folder.mkdir()
    profile = os.environ.get("FRAZIL_CARGO_PROFILE", "release")
    command = ["cargo", "test", "--workspace", "--lib", "--profile", profile, "--", "--exact", TEST]
    environment = os.environ | {"FRAZIL_TABLES_DIR": str(folder)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    made = json.loads((folder / "tables.json").read_text())
    assert set(made) == {"positions", "vectors", "upgraded"}
    for steps in made.values():
        assert len(steps) >= 7 and any(step["rows"] for step in steps)
    return made


def steps_of(tables: dict[str, list[dict]]) -> list[tuple[str, str, list[tuple]]]:
    """Every snapshot of every table: a name for it, its metadata file, its rows."""
    return [
        (f"{name} {number}", step["metadata"], [tuple(row) for row in step["rows"]])
        for name, steps in tables.items()
        for number, step in enumerate(steps)
    ]


# Promise: DuckDB reads every snapshot of a table with deletion vectors, with position deletes, and of one that was upgraded between them, with and without a filter
def test_duckdb_reads_every_snapshot(tables):
    connection = connect_duckdb()
    for name, metadata, rows in steps_of(tables):
        scan = f"iceberg_scan('{local(metadata)}')"
        found = connection.execute(f"SELECT id, part, v FROM {scan} ORDER BY id").fetchall()
        assert found == rows, name
        for part in range(3):
            query = f"SELECT id FROM {scan} WHERE part = {part} AND v >= 200 ORDER BY id"
            wanted = [(id,) for id, of, v in rows if of == part and v >= 200]
            assert connection.execute(query).fetchall() == wanted, name


# Promise: Iceberg's Java library reads every snapshot of a table with deletion vectors, with position deletes, and of one that was upgraded between them
def test_java_reads_every_snapshot(tables):
    steps = steps_of(tables)
    answers = ask_java([Question(local(metadata), "rows") for _, metadata, _ in steps])
    for (name, _, rows), found in zip(steps, answers, strict=True):
        read = sorted((int(row["id"]), int(row["part"]), int(row["v"])) for row in found)
        assert read == rows, name


# Promise: Iceberg's Java library plans at most one delete file for each data file
# Case: 21
def test_java_plans_one_delete_for_a_file(tables):
    steps = steps_of(tables)
    answers = ask_java([Question(local(metadata), "files") for _, metadata, _ in steps])
    for (name, _, _), files in zip(steps, answers, strict=True):
        counts = [int(file["deletes"]) for file in files]
        assert max(counts, default=0) <= 1, name
    assert any(int(file["deletes"]) for file in answers[-1]), "there are no deletes to plan"


# Promise: pyiceberg reads every snapshot of a table with deletion vectors, with position deletes, and of one that was upgraded between them
def test_pyiceberg_reads_every_snapshot(tables):
    for name, metadata, rows in steps_of(tables):
        read = StaticTable.from_metadata(metadata).scan().to_arrow().to_pylist()
        assert sorted((row["id"], row["part"], row["v"]) for row in read) == rows, name


# Promise: the deletion vectors that ours are compared with are those that Iceberg's Java library writes
# Case: 23
def test_the_golden_vectors_are_javas(tmp_path):
    library = libraries("reader")
    source = ROOT / "tests" / "bed" / "java" / "vectors" / "GoldenVectors.java"
    command = [java(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += ["-cp", f"{library}/*", str(source), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert Path(done.stdout.strip()).read_bytes() == GOLDEN.read_bytes()
