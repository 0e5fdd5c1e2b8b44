"""What a commit costs after ten thousand of them."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from pathlib import Path

import pytest
from measure import keep, parameter

from bed.proxy import Proxied

ROOT = Path(__file__).resolve().parents[2]
COMMITS = parameter("HISTORY_COMMITS", 10_000)
TEST = ["--test", "commit_cost", "--", "--ignored", "--nocapture"]


class Sizes:
    """Notes how many bytes each commit of rows brings to the catalog, and how many come back."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answered: list[int] = []

    def __call__(self, asked, forward):
        answer = forward(asked)
        if b'"add-snapshot"' in asked.body and answer.status == 200:
            self.asked.append(len(asked.body))
            self.answered.append(len(answer.body))
        return answer


def around(values: list[int], place: int) -> float:
    """Returns the median of the hundred values that begin at a place."""
    return statistics.median(values[place : place + 100])


# Promise (long): a commit costs the same after 10,000 commits as after 100: bytes to the catalog within
# 1 %, time within 30 %, and the manifest list stays below 300 entries
@pytest.mark.long
@pytest.mark.timeout(2400)
def test_a_commit_costs_the_same_after_ten_thousand(rest):
    catalog, sizes = Proxied(rest, rest.port), Sizes()
    catalog.proxy.on_commit(sizes)
    environment = {
        **os.environ,
        "FRAZIL_TEST_REST_URI": catalog.proxy.uri,
        "FRAZIL_TEST_COMMITS": str(COMMITS),
    }
    command = [os.environ.get("CARGO", "cargo"), "test", "--release", "--workspace", *TEST]
    run = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=2300, check=False
    )
    catalog.proxy.stop()
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    told = json.loads(next(line for line in run.stdout.splitlines() if line.startswith('{"')))
    assert told["commits"] == COMMITS == len(sizes.asked), len(sizes.asked)
    early, late = around(sizes.asked, 100), around(sizes.asked, COMMITS - 100)
    numbers = {
        **told,
        "bytes to the catalog, commits 100 to 200": early,
        "bytes to the catalog, last 100 commits": late,
        "bytes to the catalog, least and most": [min(sizes.asked), max(sizes.asked)],
        "bytes of the answer, commits 100 to 200": around(sizes.answered, 100),
        "bytes of the answer, last 100 commits": around(sizes.answered, COMMITS - 100),
    }
    keep("history", numbers)
    assert abs(late / early - 1) <= 0.01, numbers
    assert told["last tenth, median ms"] <= 1.3 * told["first tenth, median ms"], numbers
    assert told["manifests in a list, most"] <= 300, numbers
