"""A worker that dies at each step where the protocol can be cut."""

from __future__ import annotations

import pytest

from bed.process import wait_until
from bed.proxy import Hold

long = pytest.mark.long

# Where the worker dies, and whether what was sent before is in the table then.
CUTS = [
    pytest.param("session.after-append", False, id="1-while-buffering", marks=long),
    pytest.param("seal.after-data-files", False, id="3-before-the-manifest"),
    pytest.param("seal.after-manifest", False, id="4-before-the-segment", marks=long),
    pytest.param("task.after-seal", False, id="3-before-the-files-end", marks=long),
    pytest.param("seal.after-submit", None, id="5-after-the-segment", marks=long),
    pytest.param("commit.after-load", False, id="5-after-the-load", marks=long),
    pytest.param("commit.after-manifest-list", False, id="5-after-the-list", marks=long),
    pytest.param("catalog.before-commit", False, id="5-before-the-commit", marks=long),
    pytest.param("catalog.after-commit", True, id="7-after-the-commit"),
    pytest.param("task.before-pre-commit-answer", None, id="8-in-pre-commit", marks=long),
    pytest.param("session.after-result", True, id="8-before-the-offset", marks=long),
]


# Promise: a worker that dies with rows in memory, between data files and manifest, before or after
# the commit, or before Connect's offsets are committed, loses and doubles nothing
# Injection: 1, 3, 4, 5, 7, 8
@pytest.mark.parametrize(("point", "landed"), CUTS)
def test_a_worker_dies_at_a_step(flow, points, point, landed):
    with flow().running() as run:
        run.wait_lag()
        before = run.sent
        points.arm(**{point.replace(".", "__").replace("-", "_"): "kill"})
        run.send(800)
        run.worker.process.wait_ended()
        points.wait_cut(point)
        points.disarm()
        if landed is not None:
            # Two tasks, whose segments are in one commit or in two.
            rows = run.view.rows()
            assert (rows > before) == landed, f"{rows} rows, {before} before"
        run.send(400)
        run.revive()
        run.send(400)
        run.check()


# Injection: 2
@pytest.mark.long
def test_a_worker_dies_in_the_middle_of_an_upload(flow, points):
    """A file of several parts. No reader sees a part of it, and what is left is no data file."""
    # Long enough for a file of 8 MiB, also where others want the cores.
    run = flow(partitions=2, tasks=1, iceberg__control__commit__interval_ms="90000")
    with run.running(first=0):
        points.arm(upload__before_part="kill*1")
        run.send_noise(4000)
        run.worker.process.wait_ended(90)
        points.disarm()
        assert run.view.rows() == 0
        run.revive()
        run.check(timeout=240)
        data = [row[0] for row in run.view.query("SELECT DISTINCT filename FROM {t}")]
        assert data and all(path.endswith(".parquet") for path in data)


# Injection: 6
@pytest.mark.long
@pytest.mark.parametrize(
    "applied", [pytest.param(False, id="6-not-applied-yet"), pytest.param(True, id="6-applied")]
)
def test_the_committer_dies_while_a_commit_is_on_its_way(flow, proxy, applied):
    """The next one finds out what became of it, although it may arrive even later."""
    with flow().running() as run:
        hold = Hold(before=not applied)
        proxy.on_commit(hold, count=1)
        run.send(800)
        hold.wait_held()
        run.kill()
        proxy.clear()
        run.send(400)
        run.revive()
        run.settle()
        statuses = hold.wait_answers()
        # One that arrives after the successor's commit is refused by the catalog.
        assert statuses == ([200] if applied else [409]), statuses
        run.send(400)
        run.check()


# Injection: 9
# Case: 39
@pytest.mark.long
def test_a_worker_dies_while_fifty_tables_are_committed(flow, points):
    """The tables stand at different offsets then; each goes on where it was."""
    run = flow(tables=50, tasks=2, partitions=4)
    with run.running(first=200):
        # All tables are committed at once; one waits before its commit, and a thread with it.
        points.arm(catalog__before_commit="wait:10000*1")
        run.send(400)
        wait_until(
            "some tables to be ahead",
            lambda: len({view.rows() for view in run.views}) > 1,
            60,
            0.05,
        )
        run.kill()
        rows = run.rows()
        assert len(set(rows)) > 1, "all tables stood at the same offset"
        points.disarm()
        run.send(200)
        run.revive()
        run.check(timeout=240)


