"""`./x bench`: no sink, Apache Iceberg's and Frazil in the same worker, in alternating rounds."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bed.artifacts import LOGS, ROOT, plugin_jar
from bed.kafka import BROKER_VERSION
from bed.peer import PEER_VERSION
from bed.process import BedError

from .measure import machine
from .report import Result, json_line, keep, kept, summarize, verdicts, write
from .rounds import Runner
from .scenarios import SCENARIOS, Scenario
from .sitting import WORKER_VERSION, Sitting

NAMES = [scenario.name for scenario in SCENARIOS]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./x bench", description=__doc__)
    parser.add_argument("scenario", nargs="*", help=f"one of {', '.join(NAMES)}; without any, all")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (5)")
    parser.add_argument("--warm-up", type=int, default=4, help="rounds before them (4)")
    parser.add_argument("--records", type=int, help="records of each round, for all scenarios")
    parser.add_argument("--interval", type=int, default=10_000, help="commit interval in ms (10000)")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON a scenario")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    options = parser.parse_args()
    unknown = [name for name in options.scenario if name not in NAMES]
    if unknown:
        parser.error(f"no scenario {', '.join(unknown)}: there are {', '.join(NAMES)}")
    if options.rounds < 1 or options.warm_up < 1:
        parser.error("at least one round counts, behind at least one that warms up")
    return options


def about() -> dict:
    """Says on what and of what the results are."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    versions = (
        f"Kafka Connect {WORKER_VERSION}, broker {BROKER_VERSION}, iceberg-kafka-connect {PEER_VERSION},"
        f" {plugin_jar().stem} ({commit.stdout.strip()})"
    )
    return {**machine(), "versions": versions}


class Steps:
    """Says what was done and when; on standard error, so that results stand alone."""

    def __init__(self) -> None:
        self.started = time.monotonic()

    def __call__(self, what: str) -> None:
        print(f"[{time.monotonic() - self.started:6.1f} s] {what}", file=sys.stderr, flush=True)


def one(sitting: Sitting, scenario: Scenario, options: argparse.Namespace, known: dict, say: Steps) -> Result:
    """Runs a scenario. One that cannot run is a result too, and a failure of the whole run."""
    try:
        runner = Runner(sitting, scenario, options.interval, say)
        topic, rounds = runner.run(options.rounds, options.warm_up)
    except BedError as error:
        say(f"{scenario.name}: NOT MEASURED: {error}")
        return {"scenario": scenario.name, "error": str(error)}
    result = summarize(scenario, topic, rounds, {**known, "interval_ms": options.interval, "warm_up": options.warm_up})
    for line in verdicts(result):
        say(line)
    if result["noisy"]:
        say(f"{scenario.name}: noisy, see `spread` and `others` in docs/benchmarks.md")
    return result


def main() -> int:
    options = arguments()
    wanted = [s for s in SCENARIOS if not options.scenario or s.name in options.scenario]
    folder = Path(tempfile.mkdtemp(prefix="frazil-bench-"))
    logs = LOGS / "bench"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    say = Steps()
    known = about()
    say(f"{known['cpu']}, {known['memory']}; {known['versions']}")
    results: list[Result] = []
    sitting = Sitting(folder, logs, options.records)
    try:
        sitting.start()
        for scenario in wanted:
            result = one(sitting, scenario, options, known, say)
            results.append(result)
            keep(result)
    finally:
        sitting.stop()
        shutil.rmtree(folder, ignore_errors=True)
    if options.write:
        write(kept())
    if options.json:
        for result in results:
            print(json_line(result), flush=True)
    failed = [result["scenario"] for result in results if "error" in result]
    if failed:
        print(f"not measured: {', '.join(failed)} (logs: {logs})", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
