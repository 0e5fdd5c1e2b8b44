"""`./x bench --sink`: Apache's `SinkWriter` and Frazil's task in turn, in one JVM without Kafka."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bed.artifacts import java, libraries, plugin_jar
from bed.catalogs import SqlCatalog
from bed.kafka import logging_options
from bed.peer import peer_libraries
from bed.process import BedError
from bed.read import TableView

from .report import ratio, spread
from .rounds import compare, newest
from .scenarios import native
from .sitting import WORKER_VERSION

# What comes in, and how many times less CPU than Apache's Frazil is to use.
GOALS = {"struct": 4.0, "json": 1.8, "json-raw": 5.0}
KEYS = {"json-raw": [f"{key}={value}" for key, value in native("json").items()]}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./x bench --sink", description=__doc__)
    parser.add_argument("input", nargs="*", help=f"one of {', '.join(GOALS)}; without any, all")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (5)")
    parser.add_argument("--records", type=int, default=500_000, help="records of each round (500000)")
    parser.add_argument("--batch", type=int, default=500, help="records of a put (500)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for Frazil")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON an input")
    options = parser.parse_args()
    for name in options.input:
        if name not in GOALS:
            parser.error(f"no input {name}: there are {', '.join(GOALS)}")
    return options


def run(name: str, options: argparse.Namespace, folder: Path) -> list[dict]:
    """Runs one JVM and returns what it said of each run."""
    (folder / "warehouse").mkdir(parents=True)
    kafka = libraries(f"kafka-{WORKER_VERSION}")
    sqlite = next(libraries("conformance").glob("sqlite-jdbc-*.jar"))
    classpath = f"{libraries('bench')}/classes:{plugin_jar()}:{peer_libraries()}/*:{sqlite}:{kafka}/*"
    command = [java(), "-Xmx2g", "-XX:+UseG1GC", *logging_options(folder, WORKER_VERSION), "-cp", classpath]
    command += ["io.frazil.bench.SinkBench", str(folder), name, str(options.records)]
    command += [str(options.rounds), str(options.batch), *KEYS.get(name, []), *options.set]
    found = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        said = []
        assert child.stdout is not None
        for line in child.stdout:
            said.append(line)
            if line.startswith("{"):
                found.append(json.loads(line))
                one = found[-1]
                spent = one["cpu_ns"] / options.records / 1000
                load = os.getloadavg()[0]
                print(
                    f"{name}: round {one['round']}, {one['side']}: {spent:.3f} us/record, load {load:.1f}",
                    file=sys.stderr,
                    flush=True,
                )
    if child.returncode != 0:
        causes = [line for line in said if line.startswith(("Exception in ", "Caused by: "))]
        raise BedError((causes or said)[-1].strip() if said else "the JVM said nothing")
    return found


def summarize(name: str, options: argparse.Namespace, runs: list[dict], folder: Path) -> dict:
    """Compares the tables of the last round and returns the figures of all but the first."""
    counted = [one for one in runs if one["round"] > 0]
    cpu = {
        side: [one["cpu_ns"] / options.records / 1000 for one in counted if one["side"] == side]
        for side in ("none", "peer", "frazil")
    }
    catalog = SqlCatalog(folder)
    tables = {side: f"bench.{side}_{options.rounds}" for side in ("peer", "frazil")}
    views = {side: TableView(catalog, table) for side, table in tables.items()}
    compare(tables, views, "event", options.records)
    sizes = {side: int(newest(view.metadata())["total-files-size"]) for side, view in views.items()}
    net = {
        side: [value - none for value, none in zip(cpu[side], cpu["none"], strict=True)]
        for side in ("peer", "frazil")
    }
    found = ratio(net["peer"], net["frazil"])
    return {
        "scenario": f"sink-{name}",
        "cpu_us_per_record": {side: round(statistics.median(values), 3) for side, values in cpu.items()},
        "cpu_us_per_record_net": {side: round(statistics.median(values), 3) for side, values in net.items()},
        "bytes_per_record": {side: round(size / options.records, 1) for side, size in sizes.items()},
        "ratio": {key: round(value, 2) for key, value in found.items()},
        "goal": f"peer/frazil >= {GOALS[name]}",
        "held": found["median"] >= GOALS[name],
        "spread": {side: round(spread(values), 3) for side, values in cpu.items()},
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    options = arguments()
    good = True
    lines = []
    for name in options.input or GOALS:
        folder = Path(tempfile.mkdtemp(prefix="frazil-bench-"))
        try:
            result = summarize(name, options, run(name, options, folder), folder)
        except BedError as error:
            good = False
            print(f"{name}: NOT MEASURED: {error}", file=sys.stderr, flush=True)
            result = {"scenario": f"sink-{name}", "error": str(error)}
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        lines.append(result)
        if "error" not in result:
            print(
                f"{name}: without making the records, us/record: {result['cpu_us_per_record_net']};"
                f" ratio {result['ratio']}, {result['goal']} {'held' if result['held'] else 'MISSED'}",
                file=sys.stderr,
                flush=True,
            )
    if options.json:
        for result in lines:
            print(json.dumps(result), flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
