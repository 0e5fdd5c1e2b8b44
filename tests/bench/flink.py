"""`./x bench --flink`: upserts of one topic by Flink with Iceberg's sink and by Frazil, in turn."""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import statistics
import struct
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Callable, Iterator

import fastavro

from bed.artifacts import BUILD, LOGS, java, libraries
from bed.catalogs import RestCatalog
from bed.connect import Worker
from bed.kafka import Broker
from bed.process import BedError, Process
from bed.read import TableView
from bed.sink import CLASS

from . import report
from .__main__ import Steps, about
from .measure import busy_seconds, cpu_seconds, peak_rss_mb, polled
from .registry import Registry
from .report import SPREAD_MAX, number, ratio, spread, table
from .rounds import newest, order
from .sitting import NAMESPACE, PARTITIONS, SETTINGS, WORKER_VERSION

FLINK, FRAZIL = "flink", "frazil"
SIDES = [FLINK, FRAZIL]
FLINK_VERSION = "2.1.1"
TOPIC = "orders.v1"
TASKS = 2
LIMIT_S = 900
AIM = 5
RESULTS = BUILD / "bench" / "flink.jsonl"
BEGIN, END = "<!-- flink results -->", "<!-- end of flink results -->"
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "order_id", "type": "string"},
        {"name": "status", "type": "string"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "event_ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
# What Flink and Frazil both can write: Flink takes no partitioning by a column that is not in the key.
COLUMNS = [
    {"id": 1, "name": "order_id", "required": True, "type": "string"},
    {"id": 2, "name": "status", "required": False, "type": "string"},
    {"id": 3, "name": "amount", "required": False, "type": "decimal(12, 2)"},
    {"id": 4, "name": "event_ts", "required": False, "type": "timestamptz"},
]
# As Flink needs it on Java 17.
OPENS = ["java.base/java.util", "java.base/java.lang", "java.base/java.nio", "java.base/java.util.concurrent"]


@dataclass(frozen=True)
class Measured:
    """One side in one round."""

    cpu_s_per_million: float
    """Of the process, from its first record until all changes are in the table."""
    visible_s: float
    """From the first record read until all changes are in the table."""
    rss_mb: float
    data_files: float
    delete_files: float
    equality_deletes: float
    megabytes: float
    snapshots: float
    query_s: float
    """CPU time of DuckDB for one aggregate over all rows, the least of three."""
    others_cores: float


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./x bench --flink", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count (3)")
    parser.add_argument("--warm-up", type=int, default=1, help="rounds before them (1)")
    parser.add_argument("--records", type=int, default=1_000_000, help="changes of each round (1,000,000)")
    parser.add_argument("--keys", type=int, default=200_000, help="orders that they change (200,000)")
    parser.add_argument("--interval", type=int, default=10_000, help="ms between commits (10000)")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    return parser.parse_args()


def changes(count: int, keys: int, schema: int) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Orders that come, change and go: each key in a partition of its own. The last change of each
    partition is an order by whose row the end is seen."""
    dice = random.Random(7)
    head = struct.pack(">bI", 0, schema)

    def row(key: str, number: int) -> bytes:
        out = io.BytesIO()
        out.write(head)
        cents = dice.randrange(1, 1_000_000)
        value = {
            "order_id": key,
            "status": ("new", "paid", "sent", "back")[number % 4],
            "amount": cents.to_bytes(4, "big"),
            "event_ts": 1_764_547_200_000_000 + number * 1_000,
        }
        fastavro.schemaless_writer(out, PARSED, value)
        return out.getvalue()

    for number in range(count - PARTITIONS):
        key = number if number < keys else dice.randrange(keys)
        name = f"o-{key}"
        gone = number >= keys and dice.random() < 0.05
        yield key % PARTITIONS, name.encode(), None if gone else row(name, number)
    for partition in range(PARTITIONS):
        name = f"end-{partition}"
        yield partition, name.encode(), row(name, count)


# The decimal is written as the bytes that it is, which takes no time here.
PARSED = fastavro.parse_schema(
    {**ORDER, "fields": [f if f["name"] != "amount" else {"name": "amount", "type": "bytes"} for f in ORDER["fields"]]}
)


class Bench:
    """The servers of a run, and the two sides, which live as long as it."""

    def __init__(self, folder: Path, logs: Path, options: argparse.Namespace, say: Callable[[str], None]) -> None:
        self.folder, self.logs, self.options, self.say = folder, logs, options, say
        self.broker = Broker(folder / "broker", logs)
        self.rest = RestCatalog(folder / "rest", logs)
        self.registry = Registry()
        self.jobs = folder / "jobs"
        self.flink = Process("flink", logs / "flink.log")
        self.worker: Worker | None = None

    def start(self) -> None:
        self.broker.start()
        self.rest.start()
        schema = self.registry.register(f"{TOPIC}-value", "AVRO", json.dumps(ORDER))
        self.broker.create_topic(TOPIC, PARTITIONS)
        self.broker.produce(TOPIC, changes(self.options.records, self.options.keys, schema))
        status, answer = self.rest.call("POST", "/v1/namespaces", {"namespace": [NAMESPACE]})
        if status != 200:
            raise BedError(f"no namespace: {status} {answer}")
        (self.folder / "worker").mkdir()
        classes = libraries("bench") / "classes"
        self.worker = Worker(
            WORKER_VERSION,
            self.broker,
            self.folder / "worker",
            self.logs,
            heap="2g",
            collector="-XX:+UseG1GC",
            classpath=(classes,),
            settings=SETTINGS,
        ).launch()
        self._start_flink()
        self.worker.wait_ready()
        self.say(f"{self.options.records:,} changes of {self.options.keys:,} orders are in the topic")

    def _start_flink(self) -> None:
        self.jobs.mkdir()
        library = libraries("flink")
        command = [java(), "-Xmx2g", "-XX:+UseG1GC"]
        command += [f"--add-opens={package}=ALL-UNNAMED" for package in OPENS]
        command += ["-cp", f"{library}/classes:{library}/*", "io.frazil.flink.UpsertJobs"]
        command += [self.broker.bootstrap, TOPIC, self.registry.url, self.rest.uri, self.rest.warehouse, NAMESPACE]
        command += [str(self.options.records), str(self.options.interval), str(TASKS), str(self.jobs)]
        self.flink.start(command)

    def stop(self) -> None:
        self.flink.stop()
        if self.worker is not None:
            self.worker.stop()
        self.rest.stop()
        self.broker.stop()
        self.registry.stop()

    def round(self, side: str, name: str) -> Measured:
        """Makes a table, has it filled, and looks at what is left."""
        body = {
            "name": name,
            "schema": {"type": "struct", "schema-id": 0, "fields": COLUMNS, "identifier-field-ids": [1]},
            "properties": {"format-version": "2"},
        }
        status, answer = self.rest.call("POST", f"/v1/namespaces/{NAMESPACE}/tables", body)
        if status != 200:
            raise BedError(f"no table: {status} {answer}")
        pid = self.flink.pid if side == FLINK else self.worker.process.pid
        view = TableView(self.rest, f"{NAMESPACE}.{name}")
        time.sleep(1)
        probe = self.jobs / f"{name}.probe"
        begin, busy, ours = time.time(), busy_seconds(), self._ours()
        self._begin(side, name, probe)
        try:
            self._wait_visible(side, name, view)
            cpu, end = cpu_seconds(pid), time.time()
            others = (busy_seconds() - busy - (self._ours() - ours)) / (end - begin)
        finally:
            self._end(side, name)
        seen = polled(probe, self.options.records)
        if seen is None:
            raise BedError(f"{side}: rows without records")
        summary = newest(view.metadata())
        return Measured(
            cpu_s_per_million=(cpu - seen.first_cpu) / self.options.records * 1e6,
            visible_s=end - seen.first,
            rss_mb=peak_rss_mb(pid),
            data_files=int(summary["total-data-files"]),
            delete_files=int(summary["total-delete-files"]),
            equality_deletes=int(summary["total-equality-deletes"]),
            megabytes=int(summary["total-files-size"]) / 1e6,
            snapshots=len(view.snapshots()),
            query_s=min(query_seconds(view) for _ in range(3)),
            others_cores=max(others, 0.0),
        )

    def _ours(self) -> float:
        pids = [self.broker.process.pid, self.rest.process.pid, self.flink.pid, self.worker.process.pid]
        return time.process_time() + sum(map(cpu_seconds, pids))

    def _begin(self, side: str, name: str, probe: Path) -> None:
        if side == FLINK:
            (self.jobs / f"{name}.start").touch()
            return
        config = {
            "connector.class": CLASS,
            "tasks.max": str(TASKS),
            "topics": TOPIC,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "frazil.value.format": "avro",
            "frazil.schema.registry.url": self.registry.url,
            "frazil.coordination": "topic",
            **self.rest.connector(),
            "iceberg.tables": f"{NAMESPACE}.{name}",
            "iceberg.tables.default-mode": "upsert",
            "iceberg.control.commit.interval-ms": str(self.options.interval),
            "consumer.override.interceptor.classes": "io.frazil.bench.Probe",
            "consumer.override.frazil.bench.file": str(probe),
            "consumer.override.frazil.bench.records": str(self.options.records),
        }
        self.worker.create(name, config)

    def _end(self, side: str, name: str) -> None:
        if side == FRAZIL:
            self.worker.delete(name)
            return
        (self.jobs / f"{name}.stop").touch()
        deadline = time.monotonic() + 60
        while not (self.jobs / f"{name}.ended").exists() and self.flink.running():
            if time.monotonic() > deadline:
                raise BedError("flink: the job does not end")
            time.sleep(0.1)

    def _wait_visible(self, side: str, name: str, view: TableView) -> None:
        """Waits until the last change of each partition is in the table."""
        start = asked = time.monotonic()
        looked_at = None
        while True:
            metadata = self.rest.metadata(NAMESPACE, name) or {}
            if metadata.get("current-snapshot-id") not in (None, -1, looked_at):
                looked_at = metadata["current-snapshot-id"]
                found = view.query("SELECT count(*) FROM {t} WHERE order_id LIKE 'end-%'")
                if found == [(PARTITIONS,)]:
                    return
            now = time.monotonic()
            if now - asked > 5:
                asked = now
                failure = self.worker.failure(name) if side == FRAZIL else None
                if failure is not None or not self.flink.running():
                    raise BedError(f"{side} failed: {failure or self.flink.tail()}")
            if now - start > LIMIT_S:
                raise BedError(f"{side}: not all changes are visible after {LIMIT_S} s")
            time.sleep(0.1)

    def rows(self, name: str) -> tuple:
        """Counts and a checksum over all rows."""
        view = TableView(self.rest, f"{NAMESPACE}.{name}")
        columns = ", ".join(column["name"] for column in COLUMNS)
        sql = f"SELECT count(*), count(DISTINCT order_id), bit_xor(hash({columns})) FROM {{t}}"
        return view.query(sql)[0]


def query_seconds(view: TableView) -> float:
    """CPU time of one query over all rows, planning included."""
    before = time.process_time()
    view.query("SELECT status, count(*), sum(amount), epoch_us(max(event_ts)) FROM {t} GROUP BY status")
    return time.process_time() - before


def run(bench: Bench, options: argparse.Namespace, say: Callable[[str], None]) -> dict[str, list[Measured]]:
    kept: dict[str, list[Measured]] = {side: [] for side in SIDES}
    for number in range(options.warm_up + options.rounds):
        prints = {}
        for side in order(SIDES, number):
            name = f"orders_{side}_{number}"
            measured = bench.round(side, name)
            prints[side] = bench.rows(name)
            if number >= options.warm_up:
                kept[side].append(measured)
            say(f"round {number - options.warm_up + 1}, {side}: {json.dumps(asdict(measured))}")
        if len(set(prints.values())) != 1:
            raise BedError(f"the tables differ: {prints}")
        count, keys, _ = prints[FRAZIL]
        if count != keys:
            raise BedError(f"{count} rows of {keys} orders")
    return kept


def summarize(options: argparse.Namespace, kept: dict[str, list[Measured]], known: dict) -> dict:
    """Makes one result of all rounds."""
    cpu = {side: [one.cpu_s_per_million for one in each] for side, each in kept.items()}
    names = [field.name for field in fields(Measured)]
    return {
        "scenario": "flink",
        "records": options.records,
        "keys": options.keys,
        "interval_ms": options.interval,
        "rounds": options.rounds,
        **known,
        "load": os.getloadavg()[0],
        "medians": {
            side: {name: statistics.median(getattr(one, name) for one in each) for name in names}
            for side, each in kept.items()
        },
        "ratio": ratio(cpu[FLINK], cpu[FRAZIL]),
        "spread": {side: spread(values) for side, values in cpu.items()},
    }


ROWS = [
    ("CPU-seconds per million changes", "cpu_s_per_million"),
    ("s from the first record until all is visible", "visible_s"),
    ("largest resident set, MB", "rss_mb"),
    ("data files", "data_files"),
    ("delete files", "delete_files"),
    ("equality deletes", "equality_deletes"),
    ("MB", "megabytes"),
    ("snapshots", "snapshots"),
    ("CPU-seconds of a query in DuckDB", "query_s"),
]


def text(result: dict) -> str:
    """Returns what stands in the page."""
    found = result["medians"]
    rows = [[label, *(number(found[side][key]) for side in SIDES)] for label, key in ROWS]
    times = result["ratio"]
    noisy = max(result["spread"].values()) > SPREAD_MAX
    verdict = "held" if times["median"] >= AIM else "**missed**"
    return "\n".join(
        [
            table(["", "Flink", "Frazil"], rows),
            "",
            f"Flink ÷ Frazil in CPU time: **{times['median']:.2f}** ({times['least']:.2f}-{times['most']:.2f}), aim"
            f" {AIM}: {verdict}; spread {max(result['spread'].values()):.0%}{', noisy' if noisy else ''}.",
            "",
            f"- {result['date']}: {result['rounds']} rounds of {result['records']:,} changes of {result['keys']:,}"
            f" orders, commits every {result['interval_ms'] / 1000:.0f} s; load {result['load']:.1f};"
            f" {result['cpu']}, {result['memory']}, Linux {result['kernel']}, Java {result['java']};"
            f" Flink {FLINK_VERSION}, {result['versions']}",
        ]
    )


def write(result: dict) -> None:
    """Writes the result into the page."""
    report.put(BEGIN, text(result), END)


def main() -> int:
    options = arguments()
    folder = Path(tempfile.mkdtemp(prefix="frazil-bench-"))
    logs = LOGS / "bench"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    say = Steps()
    bench = Bench(folder, logs, options, say)
    try:
        bench.start()
        result = summarize(options, run(bench, options, say), about())
    except BedError as error:
        say(f"NOT MEASURED: {error} (logs: {logs})")
        return 1
    finally:
        bench.stop()
        shutil.rmtree(folder, ignore_errors=True)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("a") as out:
        out.write(json.dumps(result) + "\n")
    say(f"\n{text(result)}\n")
    if options.write:
        write(result)
    if options.json:
        print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
