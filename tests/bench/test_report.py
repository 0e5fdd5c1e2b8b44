"""The parts of the benchmark that compute and write; no sink runs here."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ElementTree

import pytest

from bed.process import BedError

from . import report
from .measure import Pauses, pauses, polled
from .registry import Registry
from .report import json_line, ratio, summarize, tables
from .rounds import Measured, compare, medians, order
from .scenarios import COLUMNS, FLOOR, FRAZIL, PEER, SCENARIOS, table_schema, table_spec
from .sitting import Topic

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
ZERO = Measured(*[0.0] * len(dataclasses.fields(Measured)))
ABOUT = {
    **{key: "x" for key in ("cpu", "memory", "kernel", "java", "versions")},
    "date": "2026-11-30",
    "interval_ms": 1,
}


def rounds(**cpu: list[float]) -> dict[str, list[Measured]]:
    return {
        name: [dataclasses.replace(ZERO, cpu_s_per_million=value) for value in values]
        for name, values in cpu.items()
    }


def result(scenario: str, **cpu: list[float]) -> dict:
    topic = Topic("t", 1000, 213_000)
    return summarize(BY_NAME[scenario], topic, rounds(**cpu), ABOUT)


def test_ratios_are_those_of_medians_whole_and_above_the_floor():
    made = result("json", floor=[4, 4, 4], peer=[16, 15, 17], frazil=[8, 7, 9])
    assert made["ratios"]["peer/frazil"]["median"] == 2
    assert made["ratios"]["peer/frazil above floor"]["median"] == 3
    assert made["ratios"]["frazil/floor"]["median"] == 2
    assert made["goals"] == [{"goal": "peer/frazil >= 1.8", "is": 2, "held": True}]
    assert made["noisy"]  # Frazil's rounds lie a quarter apart.
    assert ratio([10, 30], [10, 10]) == {"median": 2, "least": 1, "most": 3}


def test_a_missed_goal_is_said_in_line_and_table():
    made = result("json", floor=[4], peer=[10], frazil=[8])
    assert json.loads(json_line(made))["goals"] == {"peer/frazil >= 1.8": False}
    assert "**missed**" in tables({"json": made})


def test_the_json_line_has_all_three_sinks_even_one_that_takes_no_part():
    made = result("protobuf-raw", floor=[1], frazil=[2])
    line = json.loads(json_line(made))
    assert line["cpu_s_per_million"] == {FLOOR: 1, PEER: None, FRAZIL: 2}
    assert line["ratios"] == {"frazil/floor": 2}
    refused = json.loads(json_line({"scenario": "avro-raw", "error": "frazil refuses"}))
    assert refused == {"scenario": "avro-raw", "error": "frazil refuses"}


def test_the_page_and_the_picture_are_written(tmp_path, monkeypatch):
    page, picture = tmp_path / "page.md", tmp_path / "picture.svg"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(report, "PICTURE", picture)
    made = {"json": result("json", floor=[4], peer=[16], frazil=[8])}
    made["tasks2"] = result("tasks2", floor=[4], peer=[20], frazil=[8], peer_1=[16], frazil_1=[8])
    report.write(made)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "4.00 / 20.0 / 8.00; peer_1 16.0; frazil_1 8.00" in text
    bars = [part for part in ElementTree.parse(picture).iter() if part.tag.endswith("rect")]
    assert len(bars) == 1 + 3 + 6  # the ground, the legend, and three sinks of two scenarios
    page.write_text("no marks")
    with pytest.raises(ValueError):
        report.write(made)


def test_pauses_of_the_collector_count_within_the_span_only():
    log = (
        "[2026-11-30T07:00:00.000+0000] Using G1\n"
        "[2026-11-30T07:00:01.000+0000] GC(0) Pause Young (Normal) (G1 Evacuation Pause) 24M->9M(300M) 5.000ms\n"
        "[2026-11-30T07:00:02.000+0000] GC(1) Concurrent Mark Cycle 40.000ms\n"
        "[2026-11-30T07:00:03.000+0000] GC(2) Pause Remark 90M->80M(300M) 2.500ms\n"
        "[2026-11-30T07:00:09.000+0000] GC(3) Pause Full (System.gc()) 100M->99M(300M) 70.000ms\n"
    )
    begin = 1796022000.0  # 07:00:00
    assert pauses(log, begin, begin + 5) == Pauses(0.0075, 80)


def test_a_probe_has_spoken_when_the_last_record_was_polled(tmp_path):
    file = tmp_path / "probe"
    assert polled(file, 10) is None
    first = {"records": 0, "polls": 0, "ms": 1000, "cpu_ns": 2_000_000_000}
    file.write_text(json.dumps(first) + "\n")
    assert polled(file, 10) is None
    last = {"records": 10, "polls": 2, "ms": 3000, "cpu_ns": 4_000_000_000}
    file.write_text("".join(json.dumps(one) + "\n" for one in (first, last)))
    seen = polled(file, 10)
    assert seen is not None
    assert (seen.first, seen.last, seen.first_cpu, seen.polls) == (1, 3, 2, 2)


class Rows:
    """A table of which the comparison is told."""

    def __init__(self, *answer: int) -> None:
        self.answer = answer

    def query(self, sql: str) -> list[tuple]:
        return [self.answer]


def test_tables_that_differ_or_lack_rows_fail_the_scenario():
    names = {"peer": "a", "frazil": "b"}
    same = {name: Rows(9, 9, 0, 8, 77, 78) for name in names}
    compare(names, same, "event", 9)
    with pytest.raises(BedError, match="differ"):
        compare(names, {**same, "frazil": Rows(9, 9, 0, 8, 77, 79)}, "event", 9)
    with pytest.raises(BedError, match="frazil has"):
        compare(names, {**same, "frazil": Rows(10, 9, 0, 8, 77, 78)}, "event", 9)


def test_each_round_begins_with_another_sink():
    assert [order(["a", "b", "c"], n)[0] for n in range(4)] == ["a", "b", "c", "a"]
    assert medians([ZERO, dataclasses.replace(ZERO, files=4.0), dataclasses.replace(ZERO, files=2.0)]).files == 2


def ids(kind: object) -> list[int]:
    """Collects the ids of a type in Iceberg's JSON."""
    if not isinstance(kind, dict):
        return []
    found = [kind[key] for key in ("id", "element-id", "key-id", "value-id") if key in kind]
    for inner in (*kind.get("fields", []), *(kind.get(k) for k in ("type", "element", "key", "value"))):
        found += ids(inner)
    return found


@pytest.mark.parametrize("kind", COLUMNS)
def test_each_column_of_a_table_has_an_id_of_its_own(kind):
    found = ids(table_schema(kind))
    assert sorted(found) == list(range(1, len(found) + 1))


def test_partitions_are_of_columns_that_are_there():
    for scenario in SCENARIOS:
        spec = table_spec(scenario.kind, scenario.partition)
        assert len(spec["fields"]) == len(scenario.partition)
    assert table_spec("event", (("user_id", "bucket[16]"),))["fields"][0]["source-id"] == 2


def test_goals_name_sinks_of_their_scenario():
    for scenario in SCENARIOS:
        for goal in scenario.goals:
            assert {goal.over, goal.under} <= set(scenario.variants), scenario.name


def test_the_registry_gives_what_it_was_given():
    registry = Registry()
    try:
        number = registry.register("t-value", "PROTOBUF", "message")
        assert json.loads(registry.answer(f"/schemas/ids/{number}")[2]) == {"schema": "message", "schemaType": "PROTOBUF"}
        latest = json.loads(registry.answer("/subjects/t-value/versions/latest")[2])
        assert (latest["id"], latest["version"], latest["subject"]) == (number, 1, "t-value")
        assert registry.answer("/subjects/other/versions/latest")[0] == 404
        assert registry.answer(f"/apis/registry/v2/ids/globalIds/{number}") == (200, "PROTOBUF", b"message")
        assert registry.answer("/schemas/ids/99")[0] == 404
    finally:
        registry.stop()
