"""Random change streams against a model: `./x cdc --seeds N` runs N of them, twenty at a time in one
worker, whose faults they share. Each has a topic and a table, see `stream.py`."""

from __future__ import annotations

import datetime
import json
import os
import random
import time
from dataclasses import dataclass, field
from typing import Callable

import pyarrow as pa
import pytest
from checks import check_deletes
from pyiceberg.catalog import load_catalog
from records import OLD_KEY, Record
from stream import FORMS, ROW_FIELDS, Form, Stream, ordered, shown

from bed import foreign
from bed.connect import CLUSTER_SETTINGS, Worker
from bed.debezium import JSON
from bed.exactly import SHORT_SESSION
from bed.process import BedError, wait_until
from bed.read import Question, TableView, ask_java
from bed.sink import sink

AT_ONCE = 20
SEEDS = int(os.environ.get("FRAZIL_CDC_SEEDS", str(AT_ONCE)))
FIRST = int(os.environ.get("FRAZIL_CDC_FROM", "0"))
BATCHES = [(first, min(first + AT_ONCE, FIRST + SEEDS)) for first in range(FIRST, FIRST + SEEDS, AT_ONCE)]
# Transactions of each stream in a round, in as many parts.
STEPS, PARTS = 60, 3
SETTLE = 90
CHOSEN = "id, tenant, region, strftime(seen, '%Y-%m-%d %H:%M:%S.%f'), rev, text"
TYPES = {"int64": "long", "string": "string"}
BUCKET = {"name": "id_bucket", "source": "id", "transform": "bucket[3]"}
SPECS = {
    None: [],
    "region": [{"name": "region", "source": "region", "transform": "identity"}],
    "bucket(id, 3)": [BUCKET],
    "day(seen)": [{"name": "seen_day", "source": "seen", "transform": "day"}],
}
WORKER = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1500"}


def connector(catalog, form: Form, streams: list[Stream], namespace: str) -> dict[str, str]:
    """One sink for all streams of a form."""
    config = sink(
        catalog,
        ",".join(stream.topic for stream in streams),
        ",".join(stream.table for stream in streams),
        tasks__max=str(form.tasks),
        iceberg__tables__default_mode="cdc" if form.debezium else "upsert",
        iceberg__tables__route_source="topic",
        # Created from the first record, or made beforehand.
        iceberg__tables__auto_create_enabled=str(form.schemas).lower(),
        frazil__control__topic=f"{namespace}-control",
        **SHORT_SESSION,
    )
    for end in ("key", "value"):
        config[f"{end}.converter"] = JSON
        config[f"{end}.converter.schemas.enable"] = str(form.schemas).lower()
    if form.tasks > 1:
        config["frazil.coordination"] = "topic"
    for stream in streams:
        keys = {
            "id-columns": ",".join(stream.key),
            "route-regex": stream.topic,
            "partition-by": stream.partition_by,
            "auto-create-props.format-version": str(stream.version) if form.schemas else None,
            "truncate": "truncate" if form.debezium else None,
            "order-columns": "rev" if stream.ordered and not form.debezium else None,
        }
        for key, value in keys.items():
            if value is not None:
                config[f"iceberg.table.{stream.table}.{key}"] = value
    return config


@dataclass
class Batch:
    """Twenty streams in one worker."""

    broker: object
    catalog: object
    make_worker: Callable[..., Worker]
    name: str
    seeds: range
    dice: random.Random = field(init=False)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dice = random.Random(f"batch {self.seeds.start}")
        self.streams = [Stream(seed, FORMS[seed % len(FORMS)], self.name) for seed in self.seeds]
        self.views = {stream.seed: TableView(self.catalog, stream.table) for stream in self.streams}
        self.first = self._new_worker()
        self.second: Worker | None = None

    def _new_worker(self) -> Worker:
        settings = {**CLUSTER_SETTINGS, **WORKER}
        return self.make_worker(group=f"{self.name}-group", settings=settings, heap="640m")

    def of(self, form: Form) -> list[Stream]:
        return [stream for stream in self.streams if stream.form is form]

    def connectors(self) -> list[tuple[str, Form]]:
        return [(f"{self.name}-{form.name}", form) for form in FORMS if self.of(form)]

    def start(self) -> None:
        for stream in self.streams:
            self.broker.create_topic(stream.topic, stream.partitions)
            if not stream.form.schemas:
                fields = [
                    {
                        "name": column,
                        "type": "timestamp" if semantic else TYPES[kind],
                        "required": column in stream.key,
                    }
                    for column, kind, _, semantic in ROW_FIELDS
                ]
                spec = SPECS[stream.partition_by]
                key = list(stream.key)
                foreign.create_table(self.catalog, stream.table, fields, key, spec, stream.version)
        self.first.start()
        for name, form in self.connectors():
            self.first.create(name, connector(self.catalog, form, self.of(form), self.name))
        self.wait_running()

    def wait_running(self) -> None:
        for name, form in self.connectors():
            self.first.wait_running(name, form.tasks, 120)

    def stop(self) -> None:
        for worker in (self.second, self.first):
            if worker is not None:
                worker.stop()

    # What is sent.

    def send(self, make: Callable[[Stream], list[Record]]) -> None:
        """Sends what each stream makes, all streams mixed, each in its own order."""
        made = [list(reversed(make(stream))) for stream in self.streams]
        mixed = []
        while any(made):
            waiting = [records for records in made if records]
            mixed.append(self.dice.choice(waiting).pop())
        self.broker.produce_all(mixed)

    def begin(self, calm: bool) -> None:
        for stream in self.streams:
            stream.begin(calm)

    def in_parts(self, make: Callable[[Stream, int], list[Record]], between: Callable[[], None]) -> None:
        """Sends in parts, so that a round is several commits; `between` comes after the first part."""
        for part in range(PARTS):
            self.send(lambda stream: make(stream, STEPS // PARTS))
            if part == 0:
                between()
            else:
                time.sleep(1.2)

    # What is there.

    def settle(self, what: str) -> None:
        """Waits until each table is what its model says."""
        left = list(self.streams)

        def same() -> bool:
            left[:] = [stream for stream in left if self.read(stream) != stream.expected()]
            return not left

        try:
            wait_until("tables", same, SETTLE, 0.5)
        except BedError:
            raise AssertionError(f"{what}: {self.tell(left)}") from None

    def read(self, stream: Stream) -> list[tuple] | None:
        view = self.views[stream.seed]
        if view.location() is None or view.metadata().get("current-snapshot-id") in (None, -1):
            return []
        return ordered(view.query(f"SELECT {CHOSEN} FROM {{t}}"))

    def tell(self, wrong: list[Stream]) -> str:
        said = [f"{len(wrong)} of {len(self.streams)} tables differ; faults: {self.faults}"]
        for stream in wrong[:5]:
            found, expected = self.read(stream), stream.expected()
            missing = [row for row in expected if row not in found]
            extra = [row for row in found if row not in expected]
            twice = len(found) - len(set(found))
            said.append(f"{stream}: missing {missing[:3]} ({len(missing)}), extra {extra[:3]}"
                        f" ({len(extra)}), {twice} twice; done {stream.done}")
        for name, _ in self.connectors():
            failure = self.first.failure(name) if self.first.process.running() else "worker is down"
            if failure:
                said.append(f"{name}: {failure[:1500]}")
        return "\n".join(said)

    # What happens to the sink.

    def kill(self, worker: Worker) -> None:
        time.sleep(self.dice.uniform(0.2, 2.5))
        worker.kill()
        self.faults.append("kill")

    def kill_first(self) -> None:
        self.kill(self.first)
        self.send(lambda stream: stream.steps(3))
        self.first.start()
        self.wait_running()

    def join(self) -> None:
        """A second worker takes over some of the tasks while records flow."""
        self.second = self._new_worker()
        self.second.launch()
        self.faults.append("second worker")
        self.catalog.fault(self.dice.choice(("conflict", "after")), 5)
        self.send(lambda stream: stream.steps(5))
        self.second.wait_ready()
        wait_until("tasks on both workers", self._spread, 60, 0.5)

    def _spread(self) -> bool:
        places = {
            place for name, _ in self.connectors() for place in self.first.task_workers(name).values()
        }
        return len(places) == 2

    def leave(self) -> None:
        assert self.second is not None
        self.kill(self.second)
        self.faults.append("second worker gone")
        self.second = None
        self.send(lambda stream: stream.steps(5))

    def stall(self) -> None:
        self.first.process.pause()
        self.faults.append("stall")
        time.sleep(self.dice.uniform(3, 8))
        self.first.process.resume()
        self.catalog.fault(self.dice.choice(("before", "conflict", "after")), 4)

    # What other writers do.

    def others(self) -> None:
        """Rows come, go and are compacted by others, while nothing else happens."""
        self.catalog.fault("before", 0)
        commits: list[list[str]] = []
        for stream in self.streams:
            # It writes neither version 3 nor partitions that it would have to compute.
            simple = stream.version == 2 and stream.partition_by in (None, "region")
            kinds = ["append", *(["delete", "compact"] if stream.rows else []), *(["pyiceberg"] * simple)]
            kind = self.dice.choice(kinds)
            self.faults.append(kind)
            if kind == "pyiceberg":
                self.by_pyiceberg(stream)
            elif kind == "append":
                rows = [self.java_row(row) for row in stream.foreign_rows(3)]
                commits.append(["append", stream.table, *rows])
            elif kind == "delete":
                ids = stream.foreign_removal(4)
                commits.append(["delete", stream.table, "id", *map(str, ids)])
            else:
                commits.append(["compact", stream.table])
        foreign.change_with_java(self.catalog, commits)

    def java_row(self, row: dict) -> str:
        seen = row["seen"]
        return foreign.row(**(row | {"seen": seen and seen.replace(" ", "T")}))

    def by_pyiceberg(self, stream: Stream) -> None:
        table = load_catalog("other", type="rest", uri=self.catalog.uri).load_table(stream.table)
        rows = [
            row | {"seen": row["seen"] and datetime.datetime.fromisoformat(row["seen"])}
            for row in stream.foreign_rows(2)
        ]
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))

    def compact_all(self) -> None:
        """Another writer compacts every table while records flow."""
        self.catalog.fault("before", 0)
        foreign.change_with_java(
            self.catalog, [["compact", stream.table] for stream in self.streams if stream.rows]
        )
        self.faults.append("compaction of all tables")

    # The whole.

    def run(self) -> None:
        for stream in self.streams:
            stream.begin(calm=True)
        self.send(lambda stream: stream.snapshot(stream.ids // 2))
        self.send(lambda stream: stream.steps(10))
        self.settle("after the snapshot")
        self.others()
        self.calm_round()
        self.rough_round(self.kill_first)
        self.rough_round(self.join)
        self.rough_round(self.leave)
        self.others()
        self.begin(calm=True)
        self.in_parts(Stream.shuffled, self.compact_all)
        self.settle("after compactions under load")
        self.rough_round(self.stall)
        time.sleep(2.5)
        self.settle("at the end, once more")
        self.check()

    def calm_round(self) -> None:
        self.begin(calm=True)
        self.in_parts(Stream.shuffled, lambda: self.send(Stream.truncate))
        self.send(lambda stream: stream.revisions(20))
        self.settle("after a calm round")

    def rough_round(self, fault: Callable[[], None]) -> None:
        self.begin(calm=False)
        self.in_parts(Stream.steps, fault)
        self.send(Stream.replay)
        self.settle(f"after {fault.__name__}")

    def check(self) -> None:
        """What Iceberg's Java library reads, deletes of all tables, and tasks that never failed."""
        views = list(self.views.values())
        answers = ask_java([Question(view.location(), "rows") for view in views])
        for stream, rows in zip(self.streams, answers, strict=True):
            found = ordered(shown(_typed(row)) for row in rows)
            assert found == stream.expected(), f"Iceberg Java: {self.tell([stream])}"
        check_deletes(*views)
        for name, form in self.connectors():
            assert self.first.task_states(name) == ["RUNNING"] * form.tasks, self.first.failure(name)
        versions = {view.metadata()["format-version"] for view in views}
        assert versions == {2, 3} or len(views) < 8, versions


def _typed(row: dict) -> dict:
    """A row as the Java reader prints it, with the values of the model."""
    seen = row["seen"] and datetime.datetime.fromisoformat(row["seen"])
    return row | {
        "id": int(row["id"]),
        "rev": int(row["rev"]),
        "seen": seen and seen.isoformat(" ", "microseconds"),
    }


# Promise: whatever inserts, updates, deletes, changes of keys and of partitions, truncations, replays and
# late changes come, in Debezium's form or as upserts, in format version 2 or 3, over killed workers,
# rebalances and commits of other writers: the tables hold the source's rows
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seeds", BATCHES, ids=[f"{first}-{last - 1}" for first, last in BATCHES])
def test_streams_end_as_their_source(broker, rest, make_worker, name, seeds):
    batch = Batch(broker, rest, make_worker, name, range(*seeds))
    try:
        batch.start()
        batch.run()
    finally:
        batch.stop()
        print("\n".join(map(str, batch.streams)), "\nfaults:", batch.faults)


def test_the_model_is_the_same_for_the_same_seed():
    """A failed run can be made again."""
    for seed in range(len(FORMS)):
        made = []
        for _ in range(2):
            stream = Stream(seed, FORMS[seed], "n")
            made.append((whole(stream), stream.expected()))
        assert made[0] == made[1]
        assert len(made[0][0]) > 200 and made[0][1]


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_the_records_of_a_stream_come_to_its_model(first):
    """By a reader of its own, which gets the partitions of a topic mixed in another way."""
    for seed in range(first, first + 20):
        stream = Stream(seed, FORMS[seed % len(FORMS)], "n")
        rounds = [stream.snapshot(stream.ids // 2)]
        for calm in (True, False, True):
            stream.begin(calm)
            rounds.append(stream.shuffled(40) if calm else stream.steps(40))
            rounds.append(stream.revisions(10) if calm else stream.replay())
            rounds.append(stream.truncate() if calm else stream.steps(10))
        rounds.append(stream.shuffled(60))
        folded = Fold(stream)
        for records in rounds:
            folded.take(mixed(records, random.Random(seed)))
        assert ordered(map(shown, folded.rows.values())) == stream.expected(), f"{stream}"


def whole(stream: Stream) -> list[Record]:
    """Everything that a stream can do, in one go."""
    records = stream.snapshot(20) + stream.steps(50)
    stream.begin(calm=False)
    records += stream.steps(50) + stream.replay()
    stream.begin(calm=True)
    records += stream.shuffled(50) + stream.revisions(20) + stream.truncate() + stream.steps(60)
    return records


def mixed(records: list[Record], dice: random.Random) -> list[Record]:
    """The same records, each partition in its own order."""
    partitions: dict[int, list[Record]] = {}
    for record in reversed(records):
        partitions.setdefault(record[1], []).append(record)
    taken = []
    while any(partitions.values()):
        taken.append(dice.choice([left for left in partitions.values() if left]).pop())
    return taken


class Fold:
    """Reads records as cdc.md says that a sink does, with all orders in memory."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.rows: dict[tuple, dict] = {}
        self.orders: dict[tuple, tuple] = {}

    def take(self, records: list[Record]) -> None:
        for _, _, key, value, headers in records:
            read = self._debezium if self.stream.form.debezium else self._upsert
            read(key and self._payload(key), value and self._payload(value), dict(headers))

    def _payload(self, data: bytes):
        told = json.loads(data)
        return told["payload"] if self.stream.form.schemas else told

    def _key(self, told) -> tuple:
        return (told,) if self.stream.bare else tuple(told[column] for column in self.stream.key)

    def _debezium(self, key, value, headers: dict) -> None:
        if value is None or "op" not in value:
            return
        order = (value["source"]["lsn"], value["op"] != "r")
        if value["op"] == "t":
            self.rows.clear()
            return
        if OLD_KEY in headers:
            # What a header mentions goes before all changes at the place.
            self._set(self._key(json.loads(headers[OLD_KEY])), None, (order[0], False))
        self._set(self._key(key), value["after"], order)

    def _upsert(self, key, value, _headers: dict) -> None:
        order = (value["rev"],) if value and self.stream.ordered else None
        self._set(self._key(key), value, order)

    def _set(self, key: tuple, row: dict | None, order: tuple | None) -> None:
        if order is not None and key in self.orders and order < self.orders[key]:
            return
        if order is None:
            self.orders.pop(key, None)
        else:
            self.orders[key] = order
        if row is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = row | {"seen": _moment(row["seen"])}


def _moment(seen: int | str | None) -> str | None:
    if seen is None or isinstance(seen, str):
        return seen and seen.replace("T", " ")
    moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=seen)
    return moment.isoformat(" ", "microseconds")
