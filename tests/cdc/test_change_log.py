"""A change log beside the current-state table, and a reader that follows it."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

from checks import check_deletes
from records import Writer
from stage import FIELDS

from bed.artifacts import frazil_cli
from bed.debezium import JSON
from bed.exactly import SHORT_SESSION
from bed.process import wait_until
from bed.read import Question, TableView, ask_java
from bed.sink import sink

WRITER = Writer(FIELDS, ("id",), schemas=True, name="log")


class Source:
    """A table of a source: what happens to it at random, as records, and what it holds."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.rows: dict[int, dict] = {}
        self.sent = 0

    def change(self) -> tuple[bytes, bytes]:
        """Does something, and returns the key and the value of its record."""
        self.sent += 1
        number = self.dice.randrange(40)
        before = self.rows.get(number)
        if before is not None and self.dice.random() < 0.3:
            del self.rows[number]
            op, after = "d", None
        else:
            op = "c" if before is None else "u"
            text = f"v{self.sent}"
            after = {"id": number, "v": text, "part": None, "at": None, "n": self.sent}
            self.rows[number] = after
        return WRITER.key_bytes({"id": number}), WRITER.change(op, before, after, self.sent)

    def changes(self, count: int) -> list:
        made = (self.change() for _ in range(count))
        return [(0, key, value) for key, value in made]


class Follower:
    """An incremental reader: it remembers only up to which snapshot it has read."""

    def __init__(self, view: TableView) -> None:
        self.view, self.position = view, ""
        self.offsets: list[int] = []

    def poll(self) -> None:
        location = self.view.location()
        if location is None:
            return
        current = json.loads(Path(location).read_text()).get("current-snapshot-id")
        if current in (None, -1) or str(current) == self.position:
            return
        (rows,) = ask_java([Question(location, f"appended:{self.position}")])
        self.offsets += [int(row["_offset"]) for row in rows]
        self.position = str(current)


def folded(view: TableView) -> dict[int, str]:
    """What a query makes of the log: the last row of each key."""
    sql = (
        "SELECT coalesce(after.id, before.id), op, after.v FROM {t} "
        "QUALIFY row_number() OVER (PARTITION BY coalesce(after.id, before.id) ORDER BY _offset DESC) = 1"
    )
    return {number: text for number, op, text in view.query(sql) if op != "d"}


# Promise: an incremental reader of Iceberg's Java library that follows a change log, while the worker is
# killed and started again, gets every change once; folded, the log is the current-state table
def test_a_change_log_is_followed_over_a_killed_worker(make_worker, broker, rest, name):
    worker = make_worker(plugin="jar").start()
    broker.create_topic(name)
    now, log = (TableView(rest, f"{name}.{table}") for table in ("now", "log"))
    config = sink(
        rest,
        name,
        f"{name}.now,{name}.log",
        iceberg__tables__metadata_columns="_offset",
        **SHORT_SESSION,
    )
    config |= {
        f"iceberg.table.{name}.now.mode": "cdc",
        f"iceberg.table.{name}.now.id-columns": "id",
        "key.converter": JSON,
        "value.converter": JSON,
    }
    source, reader = Source(11), Follower(log)
    worker.create(name, config)
    worker.wait_running(name, 1)
    for number in range(6):
        broker.produce(name, source.changes(60))
        wait_until("rows of the log", lambda: log.rows() >= source.sent - 30, 60, 0.3)
        reader.poll()
        if number == 2:
            broker.produce(name, source.changes(60))
            worker.kill()
            reader.poll()
            worker.start()
    log.wait_rows(source.sent, 90)
    wanted = {number: row["v"] for number, row in source.rows.items()}

    def current() -> dict[int, str]:
        return dict(now.query("SELECT id, v FROM {t}"))

    wait_until("the current state", lambda: current() == wanted, 60, 0.3)
    reader.poll()
    worker.delete(name)
    worker.stop()
    assert sorted(reader.offsets) == list(range(source.sent))
    assert folded(log) == wanted
    assert now.rows() == len(wanted)
    check_deletes(now)


# Promise: `frazil rebuild` makes a table from the log that the worker wrote that is the current-state table
def test_a_table_is_rebuilt_from_its_log(make_worker, broker, rest, name, scratch):
    worker = make_worker(plugin="jar").start()
    broker.create_topic(name)
    now, log, copy = (TableView(rest, f"{name}.{table}") for table in ("now", "log", "copy"))
    config = sink(
        rest,
        name,
        f"{name}.now,{name}.log",
        iceberg__tables__metadata_columns="_topic,_partition,_offset,_key",
        **SHORT_SESSION,
    )
    config |= {"key.converter": JSON, "value.converter": JSON}

    def with_changes(table: str) -> dict[str, str]:
        return {f"iceberg.table.{name}.{table}.mode": "cdc", f"iceberg.table.{name}.{table}.id-columns": "id"}

    source = Source(23)
    worker.create(name, config | with_changes("now"))
    worker.wait_running(name, 1)
    for _ in range(4):
        broker.produce(name, source.changes(60))
        log.wait_rows(source.sent, 60)
    worker.kill()
    broker.produce(name, source.changes(60))
    worker.start()
    log.wait_rows(source.sent, 90)
    wanted = {number: row["v"] for number, row in source.rows.items()}

    def held(view: TableView) -> dict[int, str]:
        return dict(view.query("SELECT id, v FROM {t}"))

    wait_until("the current state", lambda: held(now) == wanted, 60, 0.3)
    worker.delete(name)
    worker.stop()
    other = config | with_changes("copy") | {"name": name, "iceberg.tables": f"{name}.copy,{name}.log"}
    file = scratch / "rebuild.json"
    file.write_text(json.dumps({"name": name, "config": other}))
    command = [str(frazil_cli()), "rebuild", "--config", str(file), "--table", f"{name}.copy"]
    command += ["--log", f"{name}.log", "--json"]
    for _ in range(2):
        made = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert made.returncode == 0, made
        assert json.loads(made.stdout)["rows"] == source.sent
        assert held(copy) == wanted
    check_deletes(copy)
