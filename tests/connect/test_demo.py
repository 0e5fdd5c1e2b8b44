"""The demonstration, as a person would start it once everything is built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bed.artifacts import ROOT

CASES = {
    "sql": (["--jar-only"], ["demo.orders: 10000 rows", "orders [5000, 5000]"]),
    "rest": (["--rest", "--zip"], ["demo.orders: 10000 rows", "orders [5000, 5000]"]),
}


def processes_in(folder: Path) -> list[str]:
    """Returns the command lines of processes that name a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue  # it has ended meanwhile
        if str(folder) in line:
            found.append(line)
    return found


# Promise: `./x demo` and `./x demo --rest` print rows, snapshots, files and offsets, by the lone JAR
# and by the zip, and leave nothing behind
@pytest.mark.parametrize("case", CASES)
def test_the_demo_shows_a_table_and_cleans_up(scratch, name, case):
    options, expected = CASES[case]
    folder = scratch / name
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "demo.py"), *options],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ["snapshots", "files", *expected]:
        assert part in done.stdout, done.stdout
    assert list(folder.iterdir()) == []
    assert processes_in(folder) == []
