"""Results of the benchmark: kept as lines of JSON, shown as tables and a picture in the docs."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict

from bed.artifacts import BUILD, ROOT

from .rounds import Measured, medians
from .scenarios import FLOOR, FRAZIL, PEER, SCENARIOS, Scenario
from .sitting import Topic

RESULTS = BUILD / "bench" / "results.jsonl"
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "benchmarks.svg"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
# A result is called noisy when a sink's rounds lie this far apart, or when others used this much.
SPREAD_MAX, OTHERS_MAX = 0.15, 0.25
Result = dict


def ratio(over: list[float], under: list[float]) -> dict[str, float]:
    """Returns the ratio of the medians, and the smallest and largest ratio within a round."""
    each = [a / b for a, b in zip(over, under, strict=True)]
    return {
        "median": statistics.median(over) / statistics.median(under),
        "least": min(each),
        "most": max(each),
    }


def spread(values: list[float]) -> float:
    """Returns how far apart the values lie, as a part of their median."""
    return (max(values) - min(values)) / statistics.median(values)


def summarize(scenario: Scenario, topic: Topic, rounds: dict[str, list[Measured]], about: dict) -> Result:
    """Makes one result of all rounds of a scenario."""
    cpu = {name: [one.cpu_s_per_million for one in kept] for name, kept in rounds.items()}
    ratios = {}
    if PEER in cpu:
        ratios["peer/frazil"] = ratio(cpu[PEER], cpu[FRAZIL])
        above = {
            name: [value - floor for value, floor in zip(cpu[name], cpu[FLOOR], strict=True)]
            for name in (PEER, FRAZIL)
        }
        # Noise can put a sink below the floor; there is no ratio then.
        if min(above[FRAZIL]) > 0:
            ratios["peer/frazil above floor"] = ratio(above[PEER], above[FRAZIL])
    ratios["frazil/floor"] = ratio(cpu[FRAZIL], cpu[FLOOR])
    goals = []
    for goal in scenario.goals:
        found = ratio(cpu[goal.over], cpu[goal.under])
        ratios[f"{goal.over}/{goal.under}"] = found
        goals.append({"goal": str(goal), "is": found["median"], "held": goal.held(found["median"])})
    every = [one for kept in rounds.values() for one in kept]
    noise = {name: spread(values) for name, values in cpu.items()}
    others = max(one.others_cores for one in every)
    return {
        "scenario": scenario.name,
        "records": topic.records,
        "bytes_per_record": round(topic.bytes / topic.records, 1),
        "rounds": len(next(iter(rounds.values()))),
        **about,
        "load": max(one.load for one in every),
        "others_cores": others,
        "spread": noise,
        "noisy": others > OTHERS_MAX or max(noise.values()) > SPREAD_MAX,
        "medians": {name: asdict(medians(kept)) for name, kept in rounds.items()},
        "ratios": ratios,
        "goals": goals,
        "without": scenario.without,
    }


def json_line(result: Result) -> str:
    """Returns the one line a scenario that `--json` ends with."""
    if "error" in result:
        return json.dumps({"scenario": result["scenario"], "error": result["error"]})
    found = result["medians"]
    sides = list(dict.fromkeys([FLOOR, PEER, FRAZIL, *found]))

    def each(metric: str, digits: int) -> dict[str, float | None]:
        return {side: round(found[side][metric], digits) if side in found else None for side in sides}

    line = {
        "scenario": result["scenario"],
        "cpu_s_per_million": each("cpu_s_per_million", 3),
        "records_per_s": each("records_per_s", 0),
        "ratios": {name: round(value["median"], 3) for name, value in result["ratios"].items()},
        "goals": {goal["goal"]: goal["held"] for goal in result["goals"]},
        "noisy": result["noisy"],
    }
    return json.dumps(line)


def keep(result: Result) -> None:
    """Adds a result to those of this working copy."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("a") as out:
        out.write(json.dumps(result) + "\n")


def kept() -> dict[str, Result]:
    """Returns the newest good result of each scenario."""
    found: dict[str, Result] = {}
    for line in RESULTS.read_text().splitlines() if RESULTS.exists() else []:
        result = json.loads(line)
        if "error" not in result:
            found[result["scenario"]] = result
    return {scenario.name: found[scenario.name] for scenario in SCENARIOS if scenario.name in found}


def number(value: float) -> str:
    """Writes a number with about three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def shown_ratio(result: Result, name: str) -> str:
    found = result["ratios"].get(name)
    if found is None:
        return ""
    return f"**{found['median']:.2f}** ({found['least']:.2f}-{found['most']:.2f})"


def shown_goals(result: Result) -> str:
    return "; ".join(f"{goal['goal']}: {'held' if goal['held'] else '**missed**'}" for goal in result["goals"])


def three(result: Result, metric: str, unit: float = 1) -> str:
    """Writes a number of floor, peer and Frazil."""
    found = result["medians"]
    values = [number(found[side][metric] / unit) if side in found else "-" for side in (FLOOR, PEER, FRAZIL)]
    return " / ".join(values)


def tables(results: dict[str, Result]) -> str:
    """Returns the tables of the page."""
    texts = {scenario.name: scenario.text for scenario in SCENARIOS}
    cost, rest = [], []
    for name, result in results.items():
        extra = [
            f"{side} {number(found['cpu_s_per_million'])}"
            for side, found in result["medians"].items()
            if side not in (FLOOR, PEER, FRAZIL)
        ]
        cost.append(
            [
                f"`{name}`",
                three(result, "cpu_s_per_million") + "".join(f"; {one}" for one in extra),
                shown_ratio(result, "peer/frazil"),
                shown_ratio(result, "peer/frazil above floor"),
                shown_ratio(result, "frazil/floor"),
                shown_goals(result),
                f"{max(result['spread'].values()):.0%}{', noisy' if result['noisy'] else ''}",
            ]
        )
        rest.append(
            [
                f"`{name}`",
                three(result, "records_per_s", 1000),
                three(result, "visible_s"),
                three(result, "tail_s"),
                three(result, "gc_s"),
                three(result, "heap_mb"),
                three(result, "rss_mb"),
                three(result, "files"),
                three(result, "megabytes"),
                three(result, "snapshots"),
            ]
        )
    runs = [
        [
            f"`{name}`",
            texts[name] + "".join(f" (no {side}: {why})" for side, why in result["without"].items()),
            f"{result['records']:,} x {result['bytes_per_record']:.0f} B",
            str(result["rounds"]),
            result["date"],
            f"{result['load']:.1f}",
            f"{result['others_cores']:.2f}",
        ]
        for name, result in results.items()
    ]
    versions = sorted(
        {f"- {r['cpu']}, {r['memory']}, Linux {r['kernel']}, Java {r['java']}; {r['versions']}" for r in results.values()}
    )
    return "\n".join(
        [
            "Each cell of three has floor / Apache's sink / Frazil, medians over the rounds.",
            "",
            "CPU-seconds of the worker per million records:",
            "",
            table(
                ["scenario", "CPU-s/M", "peer ÷ Frazil", "above the floor", "Frazil ÷ floor", "goal", "spread"],
                cost,
            ),
            "",
            "![CPU-seconds per million records](benchmarks.svg)",
            "",
            "The rest:",
            "",
            table(
                ["scenario", "1000 records/s", "visible s", "tail s", "GC s", "heap MB", "RSS MB", "files", "MB", "snapshots"],
                rest,
            ),
            "",
            "What ran:",
            "",
            table(["scenario", "what", "records", "rounds", "date", "load", "others"], runs),
            "",
            *versions,
        ]
    )


def put(begin: str, text: str, end: str) -> None:
    """Puts a text between two marks of the page."""
    head, first, rest = PAGE.read_text().partition(begin)
    _, last, tail = rest.partition(end)
    if not first or not last:
        raise ValueError(f"{PAGE.name} has lost its marks")
    PAGE.write_text(f"{head}{begin}\n{text}\n{end}{tail}")


def write(results: dict[str, Result]) -> None:
    """Writes the tables into the page, and the picture."""
    put(BEGIN, tables(results), END)
    PICTURE.write_text(picture(results))


COLORS = {FLOOR: "#9aa5b1", PEER: "#d9822b", FRAZIL: "#2b7bb9"}
NAMES = {FLOOR: "no-op sink", PEER: "Apache's sink", FRAZIL: "Frazil"}


def picture(results: dict[str, Result]) -> str:
    """Draws a bar for each sink and scenario; each scenario has its own scale, its peer."""
    left, width, bar, gap = 120, 460, 13, 14
    parts, top = [], 34
    for index, side in enumerate((FLOOR, PEER, FRAZIL)):
        x = left + 150 * index
        parts.append(f'<rect x="{x}" y="8" width="12" height="12" fill="{COLORS[side]}"/>')
        parts.append(f'<text x="{x + 17}" y="18">{NAMES[side]}</text>')
    for name, result in results.items():
        found = result["medians"]
        values = {side: found[side]["cpu_s_per_million"] for side in COLORS if side in found}
        scale = width / max(values.values())
        middle = top + bar * len(values) / 2 + 4
        parts.append(f'<text x="{left - 8}" y="{middle:.0f}" text-anchor="end">{name}</text>')
        for side, value in values.items():
            parts.append(
                f'<rect x="{left}" y="{top}" width="{value * scale:.1f}" height="{bar - 2}" fill="{COLORS[side]}"/>'
            )
            parts.append(f'<text x="{left + value * scale + 5:.1f}" y="{top + bar - 3}">{number(value)}</text>')
            top += bar
        top += gap
    size = f'width="{left + width + 70}" height="{top}"'
    style = 'font-family="sans-serif" font-size="12" fill="#333"'
    background = '<rect width="100%" height="100%" fill="white"/>'
    body = "\n".join([background, *parts])
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{body}\n</svg>\n'


def verdicts(result: Result) -> list[str]:
    """Says of each goal of a result whether it is held."""
    return [
        f"{result['scenario']}: {goal['goal']} is {goal['is']:.2f}: {'held' if goal['held'] else 'MISSED'}"
        for goal in result["goals"]
    ]
