"""Many cases at once: each has a topic and a table, and they share a few connectors and every wait.

A case is a generator that yields steps: the records to send, and the rows that the table has to hold
then. A step of all cases is sent at once, and waited for, before the next one."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import time
import traceback
from dataclasses import dataclass, field
from typing import Callable, Iterator

from records import MICROS, NEW_KEY, OLD_KEY, Fields, Record, Writer, dump
from stream import ordered

from bed import foreign
from bed.debezium import JSON
from bed.exactly import SHORT_SESSION
from bed.process import BedError, wait_until
from bed.read import TableView
from bed.sink import sink

FIELDS: Fields = [
    ("id", "int64", False, None),
    ("v", "string", True, None),
    ("part", "string", True, None),
    ("at", "int64", True, MICROS),
    ("n", "int64", True, None),
]
TEXT_KEY: Fields = [("id", "string", False, None), *FIELDS[1:]]
# What a step sends, and what the table holds then; None where that is not looked at.
Step = tuple[list, "list[tuple] | None"]
Make = Callable[["Topic"], Iterator[Step]]
# In a list of records: those before it are in a commit before those after it are sent.
WAIT = "wait"


@dataclass(frozen=True)
class Flavour:
    """A connector for all cases that are read in one way."""

    name: str
    config: dict[str, str]
    schemas: bool = True


FLAVOURS = {
    flavour.name: flavour
    for flavour in (
        Flavour("debezium", {"iceberg.tables.default-mode": "cdc"}),
        Flavour("schemaless", {"iceberg.tables.default-mode": "cdc"}, schemas=False),
        Flavour("upsert", {"iceberg.tables.default-mode": "upsert"}),
        Flavour("grows", {"iceberg.tables.default-mode": "upsert", "frazil.partitions.accept": "6"}),
        Flavour("once", {"iceberg.tables.default-mode": "append-once"}),
        Flavour("tabular-cdc", {"iceberg.tables.cdc-field": "v"}),
        Flavour("tabular-upsert", {"iceberg.tables.upsert-mode-enabled": "true"}),
    )
}


@dataclass
class Case:
    """A case as it was declared."""

    make: Make
    flavour: str
    version: int
    partition_by: str | None
    fields: Fields
    partitions: int
    keys: dict[str, str]
    made_before: bool


CASES: dict[str, Case] = {}


def case(
    flavour: str = "debezium",
    *,
    version: int = 2,
    partition_by: str | None = None,
    fields: Fields = FIELDS,
    partitions: int = 1,
    made_before: bool = False,
    **keys: str,
) -> Callable[[Make], Callable]:
    """Declares a case, and makes a test of it that says how it went. `keys` are of the table: `_` is a
    dash, `__` a dot. `made_before` has the table made by another writer."""

    def register(make: Make) -> Callable:
        named = {key.replace("__", ".").replace("_", "-"): value for key, value in keys.items()}
        before = made_before or not FLAVOURS[flavour].schemas
        CASES[make.__name__] = Case(
            make, flavour, version, partition_by, fields, partitions, named, before
        )

        def test(stage) -> None:
            stage.check(make.__name__)

        test.__name__ = make.__name__
        test.__doc__ = make.__doc__
        return test

    return register


@dataclass
class Topic:
    """One case as it runs."""

    name: str
    case: Case
    stage: Stage
    said: str | None = None
    steps: Iterator[Step] = field(init=False)

    def __post_init__(self) -> None:
        number = self.stage.number(self.name)
        self.topic = f"{self.stage.name}-{number}"
        self.table = f"{self.stage.name}.t{number}"
        self.view = TableView(self.stage.catalog, self.table)
        self.writer = Writer(self.case.fields, ("id",), FLAVOURS[self.case.flavour].schemas, "cases")
        self.steps = self.case.make(self)

    def wider(self, *fields: tuple) -> Topic:
        """The same topic, for rows with more fields."""
        other = copy.copy(self)
        other.case = dataclasses.replace(self.case, fields=[*self.case.fields, *fields])
        other.writer = dataclasses.replace(self.writer, fields=other.case.fields)
        return other

    # Rows and records.

    def row(self, id: object, v: str | None = None, **more: object) -> dict:
        return {column: None for column, *_ in self.case.fields} | {"id": id, "v": v} | more

    def change(
        self,
        op: str,
        order: int,
        after: dict | None = None,
        before: dict | None = None,
        *,
        partition: int = 0,
        headers: list | None = None,
        **more: str,
    ) -> Record:
        row = after or before
        key = None if row is None else self.writer.key_bytes(row)
        value = self.writer.change(op, before, after, order, **more)
        return self.topic, partition, key, value, headers or []

    def insert(self, order: int, row: dict, **more) -> Record:
        return self.change("c", order, row, **more)

    def update(self, order: int, row: dict, **more) -> Record:
        return self.change("u", order, row, **more)

    def delete(self, order: int, id: object, *, partition: int = 0) -> list[Record]:
        """As PostgreSQL says it: the key, nothing else, and a tombstone."""
        gone = self.change("d", order, before=self.row(id), partition=partition)
        return [gone, self.tombstone(id, partition=partition)]

    def moved(self, order: int, old: object, row: dict, *, partitions: tuple[int, int] = (0, 0)) -> list[Record]:
        """A change of the key, as it is two changes."""
        removal = self.delete(order, old, partition=partitions[0])
        told = [(NEW_KEY, dump({"id": row["id"]}))]
        arrival = self.insert(
            order, row, partition=partitions[1], headers=[(OLD_KEY, dump({"id": old}))]
        )
        return [*((*record[:4], told) for record in removal), arrival]

    def tombstone(self, id: object, *, partition: int = 0) -> Record:
        return self.topic, partition, self.writer.key_bytes({"id": id}), None, []

    def upsert(self, row: dict, *, keyed: bool = True, partition: int = 0) -> Record:
        key = self.writer.key_bytes(row) if keyed else None
        return self.topic, partition, key, self.writer.row(row), []

    def raw(self, value: object, key: bytes | None = None) -> Record:
        return self.topic, 0, key, value if isinstance(value, bytes) else dump(value), []

    # What the table says.

    def rows(self, columns: str = "id, v") -> list[tuple]:
        if self.view.location() is None or self.view.metadata().get("current-snapshot-id") in (None, -1):
            return []
        return self.view.query(f"SELECT {columns} FROM {{t}} ORDER BY ALL")

    def letters(self) -> list[tuple[str, int]]:
        """Code and offset of each dead letter of this topic."""
        return self.stage.letters(self.topic)


class Stage:
    """All cases of a run."""

    TIMEOUT = 45

    def __init__(self, worker, broker, catalog, name: str, chosen: set[str]) -> None:
        self.worker, self.broker, self.catalog, self.name = worker, broker, catalog, name
        self._numbers: dict[str, int] = {}
        self.dead = f"{name}-dead"
        self.topics = {one: Topic(one, CASES[one], self) for one in CASES if one in chosen}
        self.started: list[str] = []
        self._fault: tuple[str, int] | None = None

    def fault(self, mode: str, count: int) -> None:
        """Has the catalog fail from when this step is sent until it is there."""
        self._fault = (mode, count)

    def number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def connectors(self) -> dict[str, list[Topic]]:
        by_flavour: dict[str, list[Topic]] = {}
        for topic in self.topics.values():
            by_flavour.setdefault(topic.case.flavour, []).append(topic)
        return by_flavour

    def config(self, flavour: Flavour, topics: list[Topic]) -> dict[str, str]:
        config = sink(
            self.catalog,
            ",".join(topic.topic for topic in topics),
            ",".join(topic.table for topic in topics),
            iceberg__tables__route_source="topic",
            iceberg__tables__auto_create_enabled=str(flavour.schemas).lower(),
            errors__tolerance="all",
            errors__deadletterqueue__topic__name=self.dead,
            errors__deadletterqueue__topic__replication__factor="1",
            errors__deadletterqueue__context__headers__enable="true",
            # New partitions are found at once.
            consumer__override__metadata__max__age__ms="1000",
            **SHORT_SESSION,
        )
        config |= flavour.config
        for end in ("key", "value"):
            config[f"{end}.converter"] = JSON
            config[f"{end}.converter.schemas.enable"] = str(flavour.schemas).lower()
            config[f"{end}.converter.replace.null.with.default"] = "false"
        for topic in topics:
            keys = {"id-columns": "id", "route-regex": topic.topic, **topic.case.keys}
            if topic.case.partition_by:
                keys["partition-by"] = topic.case.partition_by
            if flavour.schemas:
                keys.setdefault("auto-create-props.format-version", str(topic.case.version))
            config |= {f"iceberg.table.{topic.table}.{key}": value for key, value in keys.items() if value}
        return config

    def start(self) -> None:
        self.broker.create_topic(self.dead)
        for topic in self.topics.values():
            self.broker.create_topic(topic.topic, topic.case.partitions)
            if topic.case.made_before:
                self._make_table(topic)
        for flavour, topics in self.connectors().items():
            name = f"{self.name}-{flavour}"
            self.worker.create(name, self.config(FLAVOURS[flavour], topics))
            self.started.append(name)
        for name in self.started:
            self.worker.wait_running(name)

    def _make_table(self, topic: Topic) -> None:
        types = {"int64": "long", "string": "string", "double": "double"}
        fields = [
            {"name": column, "type": "timestamp" if semantic else types[kind], "required": not optional}
            for column, kind, optional, semantic in topic.case.fields
        ]
        foreign.create_table(self.catalog, topic.table, fields, ["id"], [], topic.case.version)

    def stop(self) -> None:
        for name in self.started:
            self.worker.delete(name)

    def run(self) -> None:
        """All steps of all cases. A case that goes wrong stops there, and its test says so."""
        running = list(self.topics.values())
        while running:
            # Steps are made first: what a case does by itself happens before anything is sent.
            steps = {}
            for topic in list(running):
                step = self._next(topic)
                if step is None:
                    running.remove(topic)
                else:
                    steps[topic.name] = step
            if self._fault is not None:
                self.catalog.fault(*self._fault)
            self._send([records for records, _ in steps.values()])
            self._wait({name: rows for name, (_, rows) in steps.items() if rows is not None})
            self.catalog.fault("before", 0)
            self._fault = None
            running = [topic for topic in running if topic.said is None]

    def _next(self, topic: Topic) -> Step | None:
        try:
            return next(topic.steps)
        except StopIteration:
            return None
        except Exception as error:  # whatever it is, the test of the case has to say it
            topic.said = "".join(traceback.format_exception(error))
            return None

    def _send(self, lists: list[list]) -> None:
        """Sends the parts of all lists, with a commit between them where there are several."""
        parts = []
        for records in lists:
            groups = itertools.groupby(records, lambda record: record == WAIT)
            parts.append([list(group) for waits, group in groups if not waits])
        for number in range(max(map(len, parts), default=0)):
            if number:
                time.sleep(2.5)
            now = [record for part in parts if len(part) > number for record in part[number]]
            self.broker.produce_all(now)

    def _wait(self, expected: dict[str, list[tuple]]) -> None:
        left = dict(expected)

        def all_there() -> bool:
            for name in list(left):
                if self.topics[name].rows() == ordered(left[name]):
                    del left[name]
            return not left

        try:
            wait_until("the rows of all cases", all_there, self.TIMEOUT, 0.4)
        except BedError:
            for name, rows in left.items():
                topic = self.topics[name]
                failures = [self.worker.failure(connector) for connector in self.started]
                topic.said = f"{topic.rows()} in the table, not {rows}; dead: {topic.letters()};" + "".join(
                    failure[:600] for failure in failures if failure
                )

    def restart(self) -> None:
        """Starts all tasks again: what they had in memory is gone."""
        for name in self.started:
            self.worker.insist("POST", f"/connectors/{name}/restart?includeTasks=true")
        for name in self.started:
            self.worker.wait_running(name)

    def letters(self, topic: str) -> list[tuple[str, int]]:
        found = []
        for letter in self.broker.read(self.dead, self.broker.count(self.dead)):
            headers = dict(letter.headers())
            if headers["__connect.errors.topic"].decode() == topic:
                said = json.loads(headers["__connect.errors.exception.message"])
                found.append((said["code"], said["offset"]))
        return sorted(found, key=lambda one: one[1])

    def check(self, name: str) -> None:
        said = self.topics[name].said
        assert said is None, said
