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
from dataclasses import dataclass
from pathlib import Path

from bed.artifacts import BUILD, java, libraries, plugin_jar
from bed.catalogs import SqlCatalog
from bed.kafka import logging_options
from bed.peer import PEER_VERSION, peer_libraries
from bed.process import BedError
from bed.read import TableView

from . import report
from .measure import machine
from .report import SPREAD_MAX, ratio, spread, table
from .rounds import compare, newest
from .scenarios import native
from .sitting import WORKER_VERSION

RESULTS = BUILD / "bench" / "sink.jsonl"
BEGIN, END = "<!-- sink results -->", "<!-- end of sink results -->"
NONE, PEER, FRAZIL, PLAIN = "none", "peer", "frazil", "plain"
# Rounds before those that count: the compiler of the JVM is busy with both sinks for that long.
WARM_UP = 3
SIDES = (NONE, PEER, FRAZIL, PLAIN)


@dataclass(frozen=True)
class Input:
    """What comes in, and how many times less CPU than Apache's Frazil is to use."""

    text: str
    floor: float
    aim: float
    keys: tuple[str, ...] = ()


INPUTS = {
    "struct": Input("Connect structs", 4.0, 6.0),
    "json-raw": Input(
        "JSON bytes; Apache's writer gets what JsonConverter makes of them",
        5.0,
        7.0,
        tuple(f"{key}={value}" for key, value in native("json").items()),
    ),
    "json": Input("JSON, both behind JsonConverter", 1.8, 2.2),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./x bench --sink", description=__doc__)
    parser.add_argument("input", nargs="*", help=f"one of {', '.join(INPUTS)}; without any, all")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (5)")
    parser.add_argument("--records", type=int, default=500_000, help="records of each round (500000)")
    parser.add_argument("--batch", type=int, default=500, help="records of a put (500)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for Frazil")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON an input")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    options = parser.parse_args()
    for name in options.input:
        if name not in INPUTS:
            parser.error(f"no input {name}: there are {', '.join(INPUTS)}")
    if options.rounds < 1:
        parser.error("at least one round counts")
    if options.write and options.set:
        parser.error("the page is about what everyone gets: --write without --set")
    return options


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def last_round(options: argparse.Namespace) -> int:
    """Returns the number of the last round; the first is 0."""
    return WARM_UP + options.rounds - 1


def run(name: str, options: argparse.Namespace, folder: Path) -> list[dict]:
    """Runs one JVM and returns what it said of each run."""
    (folder / "warehouse").mkdir(parents=True)
    kafka = libraries(f"kafka-{WORKER_VERSION}")
    sqlite = next(libraries("conformance").glob("sqlite-jdbc-*.jar"))
    classpath = f"{libraries('bench')}/classes:{plugin_jar()}:{peer_libraries()}/*:{sqlite}:{kafka}/*"
    command = [java(), "-Xmx2g", "-XX:+UseG1GC", *logging_options(folder, WORKER_VERSION), "-cp", classpath]
    command += ["io.frazil.bench.SinkBench", str(folder), name, str(options.records)]
    command += [str(last_round(options)), str(options.batch), *INPUTS[name].keys, *options.set]
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
                say(f"{name}: round {one['round']}, {one['side']}: {spent:.3f} us/record, load {load:.1f}")
    if child.returncode != 0:
        causes = [line for line in said if line.startswith(("Exception in ", "Caused by: "))]
        raise BedError((causes or said)[-1].strip() if said else "the JVM said nothing")
    return found


def figures(name: str, records: int, runs: list[dict]) -> dict:
    """Returns what the rounds come to behind those in which the JVM warms up."""
    counted = [one for one in runs if one["round"] >= WARM_UP]
    cpu = {
        side: [one["cpu_ns"] / records / 1000 for one in counted if one["side"] == side] for side in SIDES
    }
    net = {
        side: [value - none for value, none in zip(cpu[side], cpu[NONE], strict=True)]
        for side in (PEER, FRAZIL, PLAIN)
    }
    found = {f"peer/{side}": ratio(net[PEER], net[side]) for side in (FRAZIL, PLAIN)}
    reached = found["peer/frazil"]["median"]
    apart = {side: spread(values) for side, values in cpu.items()}
    return {
        "scenario": f"sink-{name}",
        "cpu_us_per_record": {side: round(statistics.median(values), 3) for side, values in cpu.items()},
        "cpu_us_per_record_net": {side: round(statistics.median(values), 3) for side, values in net.items()},
        "ratios": {over: {key: round(value, 2) for key, value in one.items()} for over, one in found.items()},
        "goals": {
            f"peer/frazil >= {goal}": reached >= goal for goal in (INPUTS[name].floor, INPUTS[name].aim)
        },
        "held": reached >= INPUTS[name].floor,
        "aim": reached >= INPUTS[name].aim,
        "spread": {side: round(value, 3) for side, value in apart.items()},
        "noisy": max(apart.values()) > SPREAD_MAX,
        "rounds": len(cpu[NONE]),
        "records": records,
    }


def summarize(name: str, options: argparse.Namespace, runs: list[dict], folder: Path) -> dict:
    """Compares the tables of the last round and returns the figures."""
    catalog = SqlCatalog(folder)
    tables = {side: f"bench.{side}_{last_round(options)}" for side in (PEER, FRAZIL, PLAIN)}
    views = {side: TableView(catalog, name) for side, name in tables.items()}
    compare(tables, views, "event", options.records)
    sizes = {side: int(newest(view.metadata())["total-files-size"]) for side, view in views.items()}
    return {
        **figures(name, options.records, runs),
        "bytes_per_record": {side: round(size / options.records, 1) for side, size in sizes.items()},
        "load": round(os.getloadavg()[0], 1),
        **machine(),
        "versions": f"iceberg-kafka-connect {PEER_VERSION}, {plugin_jar().stem}",
    }


def verdict(result: dict) -> str:
    """Says whether floor and aim are reached."""
    if not result["held"]:
        return "floor **missed**"
    return "aim held" if result["aim"] else "floor held, aim missed"


def shown(results: list[dict]) -> str:
    """Returns the table of the results."""
    rows = []
    for result in results:
        name = result["scenario"].removeprefix("sink-")
        wanted = INPUTS[name]
        net, size = result["cpu_us_per_record_net"], result["bytes_per_record"]

        def over(side: str, found: dict = result["ratios"]) -> str:
            one = found[f"peer/{side}"]
            return f"**{one['median']:.2f}** ({one['least']:.2f}-{one['most']:.2f})"

        rows.append(
            [
                f"`{name}`",
                " / ".join(f"{net[side]:.2f}" for side in (PEER, FRAZIL, PLAIN)),
                over(FRAZIL),
                over(PLAIN),
                f"{wanted.floor:g}, {wanted.aim:g}",
                verdict(result),
                " / ".join(f"{size[side]:.1f}" for side in (PEER, FRAZIL, PLAIN)),
                f"{max(result['spread'].values()):.0%}{', noisy' if result['noisy'] else ''}",
                f"{result['load']:.1f}",
            ]
        )
    head = ["input", "CPU µs a record", "peer ÷ Frazil", "peer ÷ without deltas", "floor, aim", "is"]
    return table([*head, "bytes a record", "spread", "load"], rows)


def text(results: list[dict]) -> str:
    """Returns what the page has of the results."""
    ran = sorted(
        {
            f"- {r['date']}: {r['rounds']} rounds of {r['records']:,} records; {r['cpu']}, {r['memory']},"
            f" Linux {r['kernel']}, Java {r['java']}; {r['versions']}"
            for r in results
        }
    )
    intro = "Three numbers in a cell: Apache's writer / Frazil / Frazil without delta encodings."
    return "\n".join([intro, "", shown(results), "", *ran])


def keep(result: dict) -> None:
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("a") as out:
        out.write(json.dumps(result) + "\n")


def kept() -> list[dict]:
    """Returns the newest result of each input."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    found = {result["scenario"]: result for result in map(json.loads, lines)}
    return [found[f"sink-{name}"] for name in INPUTS if f"sink-{name}" in found]


def write(results: list[dict]) -> None:
    """Writes the results into the page."""
    report.put(BEGIN, text(results), END)


def main() -> int:
    options = arguments()
    good: list[dict] = []
    lines: list[dict] = []
    for name in options.input or INPUTS:
        folder = Path(tempfile.mkdtemp(prefix="frazil-bench-"))
        try:
            result = summarize(name, options, run(name, options, folder), folder)
            good.append(result)
            if not options.set:
                keep(result)
        except BedError as error:
            say(f"{name}: NOT MEASURED: {error}")
            result = {"scenario": f"sink-{name}", "error": str(error)}
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        lines.append(result)
    if good:
        say(f"\nCPU of the whole process without making the records:\n\n{shown(good)}\n")
    for result in good:
        found = result["ratios"]["peer/frazil"]["median"]
        for goal, held in result["goals"].items():
            say(f"{result['scenario']}: {goal} is {found:.2f}: {'held' if held else 'MISSED'}")
    if options.write:
        write(kept())
    if options.json:
        for result in lines:
            print(json.dumps(result), flush=True)
    return 0 if len(good) == len(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
