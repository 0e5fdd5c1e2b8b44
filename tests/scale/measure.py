"""What the long runs share: a steady load, a watch over tables, and numbers out of snapshots."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from dataclasses import dataclass, field
from typing import Iterable

from confluent_kafka import Producer

from bed.artifacts import BUILD
from bed.kafka import Broker
from bed.process import BedError


def parameter(name: str, default: int) -> int:
    """Reads a size of a run, which `FRAZIL_<NAME>` may change."""
    return int(os.environ.get(f"FRAZIL_{name}", default))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def percentile(values: Iterable[float], share: float) -> float:
    """Returns the nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan


def keep(name: str, numbers: dict) -> None:
    """Writes the numbers of a run to build/scale, and shows them."""
    folder = BUILD / "scale"
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(numbers, indent=1)
    (folder / f"{name}.json").write_text(text + "\n")
    print(f"\n{text}")


class Load:
    """Records at a steady pace, round robin over the partitions, through broker restarts.

    The producer is idempotent: record n is at offset n / P of partition n % P."""

    def __init__(
        self, broker: Broker, topic: str, partitions: int, per_second: int, tick: float = 0.25
    ) -> None:
        self.topic, self.partitions, self.per_second = topic, partitions, per_second
        self._tick = tick
        self.sent = 0
        # When each record was sent, in milliseconds.
        self.times: list[int] = []
        self.acked = 0
        self.ends = [0] * partitions
        self._refused: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 50,
                "delivery.timeout.ms": 600000,
                "reconnect.backoff.max.ms": 1000,
                "log_level": 0,
            }
        )

    def start(self) -> Load:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Sends what is due, waits until the broker has all, and tells where partitions end."""
        self._stop.set()
        self._thread.join(120)
        left = self._producer.flush(180)
        if left or self._refused or self.acked != self.sent:
            raise BedError(f"{left} records unsent, {len(self._refused)} refused: {self._refused[:1]}")

    def _delivered(self, error, message) -> None:
        if error is not None:
            self._refused.append(str(error))
            return
        self.acked += 1
        partition = message.partition()
        self.ends[partition] = max(self.ends[partition], message.offset() + 1)

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(self._tick):
            due = int((time.monotonic() - began) * self.per_second)
            while self.sent < due:
                at = now_ms()
                value = {"id": self.sent, "at": at, "note": f"order {self.sent % 97}"}
                self.times.append(at)
                self._producer.produce(
                    self.topic,
                    json.dumps(value).encode(),
                    partition=self.sent % self.partitions,
                    on_delivery=self._delivered,
                )
                self.sent += 1
            self._producer.poll(0)


class Resident:
    """Watches the memory of a process, in megabytes."""

    def __init__(self, pid: int) -> None:
        self.pid, self.most = pid, 0
        self._stop = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def now(self) -> int:
        with open(f"/proc/{self.pid}/status", encoding="ascii") as lines:
            return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) // 1024

    def _run(self) -> None:
        while not self._stop.wait(0.25):
            self.most = max(self.most, self.now())

    def stop(self) -> int:
        """Returns the most that was seen."""
        self._stop.set()
        return self.most


def state_of(metadata: dict) -> dict:
    """Returns the sink's own state out of a table's properties, or nothing."""
    for key, value in metadata.get("properties", {}).items():
        if key.startswith("frazil.w."):
            return json.loads(value)
    return {}


@dataclass
class Seen:
    """One look at a table: who committed last, and how far each partition is."""

    at_ms: int
    hub: str
    offsets: list[int]


class Watch:
    """Looks at one table each second: at its committer, and at the age of what is not in it yet."""

    def __init__(self, catalog, table: str, load: Load) -> None:
        self.seen: list[Seen] = []
        self.ages: list[tuple[int, float]] = []
        self._catalog, self._load = catalog, load
        self._name = table.rsplit(".", 1)
        self._ends: list[tuple[int, list[int]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Watch:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.wait(0.5):
            at = now_ms()
            self._ends.append((at, list(self._load.ends)))
            try:
                metadata = self._catalog.metadata(*self._name)
            except (OSError, BedError, ValueError):
                continue  # the catalog has a fault just now
            if metadata is None:
                continue
            state = state_of(metadata)
            offsets = next((entry["o"] for entry in state.get("t", {}).values()), [])
            self.seen.append(Seen(at, state.get("h", ""), offsets))
            self.ages.append((at, self._age(at, offsets)))

    def _age(self, at: int, offsets: list[int]) -> float:
        """Returns the seconds since the oldest record that is not in the table was sent."""
        while len(self._ends) > 1 and self._within(self._ends[1][1], offsets):
            self._ends.pop(0)
        oldest, ends = self._ends[0]
        return 0.0 if self._within(self._load.ends, offsets) else (at - oldest) / 1000

    @staticmethod
    def _within(ends: list[int], offsets: list[int]) -> bool:
        padded = offsets + [0] * (len(ends) - len(offsets))
        return all(end <= max(offset, 0) for end, offset in zip(ends, padded))

    def flows(self, partitions: int) -> bool:
        """Tells whether records of every partition are in the table."""
        offsets = self.seen[-1].offsets if self.seen else []
        return len(offsets) == partitions and min(offsets) > 0

    def hub_at(self, at_ms: int) -> str:
        """Returns who had committed last at a moment."""
        before = [seen.hub for seen in self.seen if seen.at_ms <= at_ms]
        return before[-1] if before else ""


@dataclass
class Times:
    """When the snapshots of each table were made, in milliseconds."""

    tables: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def read(cls, catalog, tables: Iterable[str]) -> Times:
        found = {}
        for table in tables:
            metadata = catalog.metadata(*table.rsplit(".", 1)) or {}
            ids = [s["summary"].get("frazil.commit-id") for s in metadata.get("snapshots", [])]
            if len(set(ids)) != len(ids):
                raise AssertionError(f"a commit was applied twice to {table}")
            found[table] = sorted(s["timestamp-ms"] for s in metadata.get("snapshots", []))
        return cls(found)

    def count(self) -> int:
        return sum(map(len, self.tables.values()))

    def largest_gap(self, begin: int = 0, end: int = 1 << 62) -> dict[str, float]:
        """Returns each table's longest time between two commits that touches a window, in seconds."""
        largest = {}
        for table, times in self.tables.items():
            gaps = [b - a for a, b in zip(times, times[1:]) if b > begin and a < end]
            largest[table] = max(gaps, default=0) / 1000
        return largest

    def next_after(self, at_ms: int) -> dict[str, float]:
        """Returns the seconds from a moment to each table's next commit; a table without is left out."""
        found = {}
        for table, times in self.tables.items():
            later = [t for t in times if t > at_ms]
            if later:
                found[table] = (later[0] - at_ms) / 1000
        return found

    def per_interval(self, windows: list[tuple[int, int]], interval_ms: int) -> dict[str, float]:
        """Returns each table's snapshots per interval inside windows."""
        length = sum(end - begin for begin, end in windows)
        return {
            table: sum(1 for t in times for begin, end in windows if begin <= t < end)
            / (length / interval_ms)
            for table, times in self.tables.items()
        }


def exactly_once(connection, catalog, tables: list[str], load: Load) -> dict[str, list[tuple]]:
    """Counts all tables in SQL and returns what is wrong, by table."""
    wrong = {}
    expected = [
        (partition, end, end, 0, end - 1, 0) for partition, end in enumerate(load.ends) if end
    ]
    for table in tables:
        location = catalog.metadata_location(*table.rsplit(".", 1))
        if location is None:
            wrong[table] = ["there is no table"]
            continue
        location = location.removeprefix("file://").removeprefix("file:")
        found = connection.execute(
            "SELECT _partition, count(*), count(DISTINCT _offset), min(_offset), max(_offset),"
            f" count(*) FILTER (id != _offset * {load.partitions} + _partition)"
            f" FROM iceberg_scan('{location}') GROUP BY _partition ORDER BY _partition"
        ).fetchall()
        if found != expected:
            wrong[table] = [pair for pair in zip(found, expected) if pair[0] != pair[1]] or found
    return wrong


def wait_lag_zero(broker: Broker, group: str, load: Load, timeout: float) -> float | None:
    """Waits until a group has committed all that was sent, and returns the seconds, or None."""
    expected = {(load.topic, p): end for p, end in enumerate(load.ends) if end}
    start = time.monotonic()
    while time.monotonic() - start < timeout:
        if broker.group_offsets(group) == expected:
            return time.monotonic() - start
        time.sleep(0.5)
    return None
