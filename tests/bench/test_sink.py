"""The parts of `./x bench --sink` that compute and write; no sink runs here."""

from __future__ import annotations

import pytest

from . import report, sink


def runs(**net: list[float]) -> list[dict]:
    """Makes what the JVM says of rounds in which making the records takes 1 us each."""
    made = []
    for number in range(sink.WARM_UP + len(net["peer"])):
        for side in sink.SIDES:
            counted = number - sink.WARM_UP
            value = 99 if counted < 0 else 1 + net.get(side, [0.0] * len(net["peer"]))[counted]
            made.append({"round": number, "side": side, "cpu_ns": value * 1000 * 500})
    return made


def result(name: str = "struct", **net: list[float]) -> dict:
    return {
        **sink.figures(name, 500, runs(**net)),
        "bytes_per_record": {"peer": 42.5, "frazil": 38.1, "plain": 43.4},
        "load": 1.0,
        **{key: "x" for key in ("date", "cpu", "memory", "kernel", "java", "versions")},
    }


def test_what_makes_the_records_is_taken_off_and_the_first_round_is_not_counted():
    made = result(peer=[5, 4, 6], frazil=[1, 1, 0.5], plain=[2, 2, 2])
    assert made["cpu_us_per_record_net"] == {"peer": 5, "frazil": 1, "plain": 2}
    assert made["ratios"]["peer/frazil"] == {"median": 5, "least": 4, "most": 12}
    assert made["ratios"]["peer/plain"] == {"median": 2.5, "least": 2, "most": 3}
    assert made["goals"] == {"peer/frazil >= 4.0": True, "peer/frazil >= 6.0": False}
    assert made["rounds"] == 3


@pytest.mark.parametrize(
    ("peer", "verdict"), [(3.9, "floor **missed**"), (4, "floor held, aim missed"), (6, "aim held")]
)
def test_floor_and_aim_are_told_apart(peer, verdict):
    assert sink.verdict(result(peer=[peer], frazil=[1], plain=[1])) == verdict


def test_the_page_is_written_between_its_marks(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{sink.BEGIN}\nold\n{sink.END}\nafter\n")
    monkeypatch.setattr(report, "PAGE", page)
    sink.write([result(peer=[5], frazil=[1], plain=[2])])
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert "| `struct` | 5.00 / 1.00 / 2.00 | **5.00** (5.00-5.00) | **2.50** (2.50-2.50) | 4, 6 |" in text
    page.write_text("no marks")
    with pytest.raises(ValueError, match="lost its marks"):
        sink.write([])


def test_the_newest_result_of_each_input_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(sink, "RESULTS", tmp_path / "bench" / "sink.jsonl")
    assert sink.kept() == []
    for name, peer in [("json", 3), ("struct", 5), ("json", 4)]:
        sink.keep(result(name, peer=[peer], frazil=[1], plain=[1]))
    assert [one["ratios"]["peer/frazil"]["median"] for one in sink.kept()] == [5, 4]
