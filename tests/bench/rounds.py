"""One scenario: the sinks in turn, round by round, each measured from its first record until its
last one is in the table, and after each round the tables compared."""

from __future__ import annotations

import os
import statistics
import time
from dataclasses import dataclass, fields
from typing import Callable

from bed.connect import RestError, Worker
from bed.process import BedError
from bed.read import TableView

from .measure import Polled, busy_seconds, cpu_seconds, pauses, peak_rss_mb, polled
from .scenarios import COLUMNS, FLOOR, PEER, List, Map, Scenario, Struct, Variant
from .sitting import NAMESPACE, Sitting, Topic, control_topic

LIMIT_S = 600
Say = Callable[[str], None]


class Refused(BedError):
    """A sink does not take the configuration, or its task failed."""


@dataclass(frozen=True)
class Measured:
    """One sink in one round."""

    cpu_s_per_million: float
    """Of the worker's process, user and system, from its first record until the last is visible;
    of the floor, until the last has been dropped."""
    records_per_s: float
    """From the first record polled to the last."""
    visible_s: float
    """From the first record until all are in the table."""
    tail_s: float
    """From the last record until all are in the table."""
    gc_s: float
    heap_mb: float
    """The largest heap after a collection."""
    rss_mb: float
    """The largest resident set since the worker started."""
    files: float
    megabytes: float
    snapshots: float
    records_per_poll: float
    others_cores: float
    """What everything else on the machine used meanwhile."""
    load: float


def medians(rounds: list[Measured]) -> Measured:
    """Returns the median of each number."""
    names = [field.name for field in fields(Measured)]
    return Measured(*(statistics.median(getattr(one, name) for one in rounds) for name in names))


def order(names: list[str], number: int) -> list[str]:
    """Each round begins with another sink, so that none always has the same neighbour in time."""
    shift = number % len(names)
    return names[shift:] + names[:shift]


class Runner:
    """Runs the rounds of one scenario."""

    def __init__(self, sitting: Sitting, scenario: Scenario, interval_ms: int, say: Say) -> None:
        self.sitting, self.scenario, self.interval_ms, self.say = sitting, scenario, interval_ms, say
        self.catalog = sitting.catalog(scenario)

    def run(self, rounds: int, warm_up: int) -> tuple[Topic, dict[str, list[Measured]]]:
        """Returns the topic and what was measured; the first rounds, in which the JVMs warm up, are
        not kept: after one alone their compilers still took 40 % of the time of the sinks that
        take least."""
        topic = self.sitting.topic(self.scenario)
        names = list(self.scenario.variants)
        kept: dict[str, list[Measured]] = {name: [] for name in names}
        try:
            workers = self.sitting.workers(self.scenario)
            for number in range(warm_up + rounds):
                tables = {}
                for name in order(names, number):
                    variant = self.scenario.variants[name]
                    table = f"{NAMESPACE}.{self.scenario.name}_{name}_{number}".replace("-", "_")
                    measured = self._one(name, variant, workers[variant.side], topic, table)
                    if variant.side != FLOOR:
                        tables[name] = table
                    if number >= warm_up:
                        kept[name].append(measured)
                    counted = number - warm_up + 1
                    warm = f"warm-up {number + 1}" if counted < 1 else f"round {counted} of {rounds}"
                    self.say(
                        f"{self.scenario.name}: {warm}, {name}: {measured.cpu_s_per_million:.2f} CPU-s/M,"
                        f" {measured.records_per_s:,.0f} records/s, visible after {measured.visible_s:.1f} s;"
                        f" load {measured.load:.1f}, others {measured.others_cores:.2f} cores"
                    )
                compare(tables, self._views(tables), self.scenario.kind, topic.records)
                for table in tables.values():
                    self.sitting.drop_table(self.scenario, table)
        finally:
            self.sitting.end_workers()
        return topic, kept

    def _views(self, tables: dict[str, str]) -> dict[str, TableView]:
        return {name: TableView(self.catalog, table) for name, table in tables.items()}

    def _one(self, name: str, variant: Variant, worker: Worker, topic: Topic, table: str) -> Measured:
        connector = table.replace(".", "-").replace("_", "-")
        probe = worker.folder / f"{connector}.probe"
        if variant.side != FLOOR:
            self.sitting.make_table(self.scenario, table)
        if variant.side == PEER:
            self.sitting.broker.create_topic(control_topic(table))
        config = self.sitting.config(self.scenario, variant, topic, table, probe, self.interval_ms)
        # No worker shall be busy with a connector of before.
        time.sleep(1)
        begin, busy, ours = time.time(), busy_seconds(), self._ours()
        try:
            worker.create(connector, config)
        except RestError as error:
            raise Refused(f"{name} refuses: {error.body}") from None
        try:
            seen = self._wait(name, variant, worker, connector, topic, table, lambda: polled(probe, topic.records))
            cpu, end = cpu_seconds(worker.process.pid), time.time()
        finally:
            worker.delete(connector)
        others = (busy_seconds() - busy - (self._ours() - ours)) / (time.time() - begin)
        summary: dict[str, str] = {}
        snapshots = 0
        if variant.side != FLOOR:
            metadata = self.catalog.metadata(*table.split(".")) or {}
            snapshots = len(metadata["snapshots"])
            summary = newest(metadata)
        log = self.sitting.gc_log(self.scenario, variant.side).read_text()
        collected = pauses(log, seen.first, end)
        return Measured(
            cpu_s_per_million=(cpu - seen.first_cpu) / topic.records * 1e6,
            records_per_s=topic.records / max(seen.last - seen.first, 0.001),
            visible_s=end - seen.first,
            tail_s=end - seen.last,
            gc_s=collected.seconds,
            heap_mb=collected.heap_mb,
            rss_mb=peak_rss_mb(worker.process.pid),
            files=int(summary.get("total-data-files", 0)),
            megabytes=int(summary.get("total-files-size", 0)) / 1e6,
            snapshots=snapshots,
            records_per_poll=seen.records / seen.polls,
            others_cores=max(others, 0.0),
            load=os.getloadavg()[0],
        )

    def _ours(self) -> float:
        return time.process_time() + sum(map(cpu_seconds, self.sitting.pids()))

    def _wait(
        self,
        name: str,
        variant: Variant,
        worker: Worker,
        connector: str,
        topic: Topic,
        table: str,
        read: Callable[[], Polled | None],
    ) -> Polled:
        """Waits until all records are visible (of the floor: dropped)."""
        start = asked = time.monotonic()
        while True:
            if variant.side == FLOOR:
                seen = read()
                if seen is not None:
                    time.sleep(0.2)  # for the records of the last poll
                    return seen
            else:
                metadata = self.catalog.metadata(*table.split(".")) or {}
                if int(newest(metadata).get("total-records", 0)) >= topic.records:
                    seen = read()
                    if seen is None:
                        raise BedError(f"{name}: rows without records")
                    return seen
            now = time.monotonic()
            # Each question costs the worker some of the time that is measured.
            if now - asked > 5:
                asked = now
                failure = worker.failure(connector)
                if failure is not None:
                    raise Refused(f"{name} failed: {reason(failure)}")
            if now - start > LIMIT_S:
                raise BedError(f"{name}: not all records are visible after {LIMIT_S} s")
            time.sleep(0.1)


def newest(metadata: dict) -> dict[str, str]:
    """Returns the summary of the current snapshot."""
    current = metadata.get("current-snapshot-id")
    for snapshot in metadata.get("snapshots", []):
        if snapshot["snapshot-id"] == current:
            return snapshot["summary"]
    return {}


def reason(trace: str) -> str:
    """Returns the last cause of a trace."""
    causes = [line for line in trace.splitlines() if line.startswith("Caused by: ")]
    return (causes or trace.splitlines())[-1].removeprefix("Caused by: ")[:500]


def comparable(column: str, kind: object) -> str:
    """Returns the SQL by which two values are compared: the entries of a map have no order."""
    if isinstance(kind, Map):
        return f"list_sort(map_entries({column}))"
    if isinstance(kind, (Struct, List)):
        assert not holds_map(kind), "a map inside a struct or a list would be compared by its order"
    return column


def holds_map(kind: object) -> bool:
    if isinstance(kind, Struct):
        return any(holds_map(inner) for _, inner in kind.fields)
    if isinstance(kind, List):
        return holds_map(kind.element)
    return isinstance(kind, Map)


def fingerprint(view: TableView, kind: str) -> tuple:
    """Returns counts and checksums over all rows and columns, whatever their order."""
    columns = ", ".join(comparable(name, inner) for name, inner in COLUMNS[kind].fields)
    row = view.query(
        "SELECT count(*), count(DISTINCT id), min(id), max(id), bit_xor(h), sum(h::HUGEINT)"
        f" FROM (SELECT id, hash({columns}) AS h FROM {{t}})"
    )
    return row[0]


def compare(tables: dict[str, str], views: dict[str, TableView], kind: str, records: int) -> None:
    """Insists that every table has every record once, and all tables the same rows."""
    prints = {name: fingerprint(views[name], kind) for name in tables}
    for name, found in prints.items():
        if found[:4] != (records, records, 0, records - 1):
            raise BedError(f"the table of {name} has {found[:4]}, not {records} records once each")
    if len(set(prints.values())) > 1:
        raise BedError(f"the tables differ: {prints}")
