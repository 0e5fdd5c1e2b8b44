"""Writes the table of docs/peer-comparison.md from the results of `tests/peer/test_peer.py`.

    build/venv/bin/python tests/peer/table.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build" / "peer" / "results.jsonl"
PAGE = ROOT / "docs" / "peer-comparison.md"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"

NAMES = {
    "idle_tail": "idle tail",
    "commit_branch_switch": "commit branch switched",
    "table_replaced": "table replaced",
    "control_topic_recreated": "control topic re-created",
    "expired_carrier": "carrier snapshot expired",
    "unknown_commit": "unknown commit",
    "busy_table": "busy table",
    "both_in_one_cluster": "both in one cluster",
}


def cell(result: dict) -> str:
    """Says in a few words what a sink did."""
    lost = result["sent"] - result["distinct"]
    doubled = result["rows"] - result["distinct"]
    said = []
    if lost:
        said.append(f"**{lost} of {result['sent']} rows lost**")
    if doubled:
        said.append(f"**{doubled} rows doubled**")
    if not lost and not doubled:
        said.append("exactly once")
    stall = result["stall"]
    if stall is not None:
        said.append(f"all rows after {stall:.0f} s")
    elif not lost:
        said.append(f"**stopped** until restarted by hand (waited {result['waited']:.0f} s)")
    for note in result["notes"]:
        if "FAILED" in note or note.startswith(("bursts", "the branch")):
            said.append(note.partition(", FAILED: ")[2] and "task FAILED" or note)
    return "; ".join(dict.fromkeys(said))


def main() -> int:
    newest: dict[tuple[str, str], dict] = {}
    for line in RESULTS.read_text().splitlines():
        result = json.loads(line)
        newest[result["scenario"], result["sink"]] = result
    sinks = sorted({sink for _, sink in newest})
    lines = ["| scenario | " + " | ".join(sinks) + " |", "|---" * (len(sinks) + 1) + "|"]
    for scenario, name in NAMES.items():
        cells = [newest.get((scenario, sink)) for sink in sinks]
        shown = ["not run" if found is None else cell(found) for found in cells]
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(head + BEGIN + "\n" + "\n".join(lines) + "\n" + END + tail)
    return 0


if __name__ == "__main__":
    sys.exit(main())
