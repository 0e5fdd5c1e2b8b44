"""Tables that follow their records on a real worker, and `frazil compat` before the records come."""

from __future__ import annotations

import json
import subprocess

import pytest

from bed.artifacts import frazil_cli
from bed.process import wait_until
from bed.read import TableView
from bed.sink import ENVELOPE, envelope, running, sink

PARTITIONS = 2
OLD = [
    {"field": "id", "type": "int64", "optional": False},
    {"field": "qty", "type": "int32", "optional": True},
]
NEW = [
    OLD[0],
    {"field": "qty", "type": "int64", "optional": True},
    {"field": "place", "type": "string", "optional": True},
    {
        "field": "buyer",
        "type": "struct",
        "optional": True,
        "fields": [{"field": "name", "type": "string", "optional": True}],
    },
]
WIDE = 3_000_000_000


def old(number: int) -> bytes:
    return envelope(OLD, {"id": number, "qty": number})


def new(number: int) -> bytes:
    buyer = {"name": f"b{number}"}
    row = {"id": number, "qty": WIDE + number, "place": f"p{number}", "buyer": buyer}
    return envelope(NEW, row)


def produce(broker, topic: str, values: dict[int, bytes]) -> None:
    broker.produce(topic, [(number % PARTITIONS, None, value) for number, value in values.items()])


# Promise: a schema that changes under two tasks, with the worker killed in the middle, makes each
# column once and loses no value of any record
def test_two_tasks_follow_a_schema_over_a_restart(make_worker, broker, rest, name):
    broker.create_topic(name, PARTITIONS)
    config = sink(
        rest,
        name,
        f"{name}.t",
        tasks__max="2",
        iceberg__tables__evolve_schema_mode="full",
        iceberg__tables__metadata_columns="_topic,_partition,_offset",
        consumer__override__session__timeout__ms="6000",
        **ENVELOPE,
    )
    view = TableView(rest, f"{name}.t")
    worker = make_worker().start()
    with running(worker, name, config, 2):
        produce(broker, name, {n: old(n) for n in range(200)})
        view.wait_rows(200, 60)
        # Both tasks meet the new schema at once, between records of the old one.
        mixed = {n: new(n) if n % 4 < 2 else old(n) for n in range(200, 1000)}
        produce(broker, name, mixed)
        worker.kill()
        produce(broker, name, {n: new(n) for n in range(1000, 1200)})
        worker.start()
        view.wait_rows(1200, 120)
        assert worker.task_states(name) == ["RUNNING"] * 2
    worker.stop()
    columns = [(f["name"], f["type"]) for f in view.metadata()["schemas"][-1]["fields"]]
    assert [column for column, _ in columns].count("place") == 1
    assert dict(columns)["qty"] == "long"
    assert view.query("SELECT count(*), count(DISTINCT id), min(id), max(id) FROM {t}") == [
        (1200, 1200, 0, 1199)
    ]
    is_new = "(id >= 1000 OR (id >= 200 AND id % 4 < 2))"
    assert view.query(
        "SELECT count(*) FROM {t} WHERE"
        f" qty != CASE WHEN {is_new} THEN {WIDE} + id ELSE id END"
        f" OR (place IS NOT NULL) != {is_new} OR place != 'p' || id::varchar"
        f" OR (buyer.name IS NOT NULL) != {is_new} OR buyer.name != 'b' || id::varchar"
    ) == [(0,)]


# Promise: with `block-table` a table that cannot follow its records stops, and the others go on
def test_a_table_that_cannot_follow_stops_alone(worker, broker, rest, name):
    rest.call("POST", "/v1/namespaces", {"namespace": [name]})
    for table, kind in (("numbers", "int"), ("texts", "string")):
        fields = [
            {"id": 1, "name": "id", "type": "long", "required": False},
            {"id": 2, "name": "qty", "type": kind, "required": False},
        ]
        schema = {"type": "struct", "schema-id": 0, "fields": fields}
        body = {"name": table, "schema": schema}
        status, answer = rest.call("POST", f"/v1/namespaces/{name}/tables", body)
        assert status == 200, answer
    broker.create_topic(name)
    config = sink(
        rest,
        name,
        f"{name}.numbers,{name}.texts",
        iceberg__tables__evolve_schema_mode="full",
        iceberg__tables__breaking_change_policy="block-table",
        **ENVELOPE,
    )
    text = [OLD[0], {"field": "qty", "type": "string", "optional": True}]
    values = [old(n) for n in range(10)] + [envelope(text, {"id": 10, "qty": "words"})]
    values += [old(n) for n in range(11, 20)]
    numbers, texts = TableView(rest, f"{name}.numbers"), TableView(rest, f"{name}.texts")
    with running(worker, name, config):
        broker.produce(name, [(0, None, value) for value in values])
        texts.wait_rows(20, 60)
        numbers.wait_rows(10, 30)
        wait_until("the log", lambda: "takes no more rows" in worker.log(), 30)
        assert worker.task_states(name) == ["RUNNING"]
    line = next(line for line in worker.log().splitlines() if "takes no more rows" in line)
    for part in (f"{name}.numbers", "`qty`", "int", "string", f"{name}-0", "offset=10"):
        assert part in line, line
    assert "words" not in line
    assert numbers.query("SELECT max(id) FROM {t}") == [(9,)]
    assert broker.group_offsets(f"connect-{name}").get((name, 0), 0) <= 10


def compat(tmp_path, config: dict[str, str], file: str, schema: object, *options: str):
    (tmp_path / "sink.json").write_text(json.dumps({"name": "compat", "config": config}))
    text = schema if isinstance(schema, str) else json.dumps(schema)
    (tmp_path / file).write_text(text)
    command = [str(frazil_cli()), "compat", "--config", str(tmp_path / "sink.json")]
    command += ["--schema", str(tmp_path / file), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def avro(**fields: object) -> dict:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "Order", "fields": listed}


# Promise: `frazil compat` says by its exit status and in JSON which columns a new schema adds,
# promotes or breaks, and changes nothing
@pytest.mark.parametrize("kind", ["avsc", "json", "proto"])
def test_compat_tells_beforehand(worker, broker, rest, name, tmp_path, kind):
    broker.create_topic(name)
    config = sink(
        rest, name, f"{name}.t", iceberg__tables__evolve_schema_mode="full", **ENVELOPE
    )
    view = TableView(rest, f"{name}.t")
    with running(worker, name, config):
        broker.produce(name, [(0, None, old(0))])
        view.wait_rows(1, 60)
    before = view.metadata()["current-schema-id"]

    def ask(*options: str, **fields: str):
        if kind == "avsc":
            schema: dict | str = avro(**fields)
        elif kind == "proto":
            types = {"long": "int64", "int": "int32"}
            listed = [
                f"{types.get(of, of)} {field} = {number};"
                for number, (field, of) in enumerate(fields.items(), 1)
            ]
            schema = f'syntax = "proto3"; message Order {{ {" ".join(listed)} }}'
        else:
            words = {"long": "integer", "int": "integer"}
            properties = {
                field: {"type": words.get(of, of)}
                | ({"connect.type": "int32"} if of == "int" else {})
                for field, of in fields.items()
            }
            schema = {"type": "object", "properties": properties}
        # Else Confluent's converter makes all fields of a Protobuf message optional.
        told = {"value.converter.optional.for.nullables": "true"} if kind == "proto" else {}
        return compat(tmp_path, config | told, f"order.{kind}", schema, *options)

    same = ask("--topic", name, id="long", qty="int")
    assert (same.returncode, "nothing changes" in same.stdout) == (0, True), same
    grown = ask("--subject", f"{name}-value", "--json", id="long", qty="long", place="string")
    assert grown.returncode == 0, grown
    report = json.loads(grown.stdout)
    assert report["compatible"] is True
    actions = {(c["action"], c["column"], c.get("to")) for c in report["tables"][0]["columns"]}
    assert actions == {("promote", "qty", "long"), ("add", "place", "string")}
    broken = ask("--topic", name, "--json", id="long", qty="string")
    assert broken.returncode == 1, broken
    (column,) = json.loads(broken.stdout)["tables"][0]["columns"]
    assert (column["action"], column["column"], column["from"], column["to"]) == (
        "blocked",
        "qty",
        "int",
        "string",
    )
    elsewhere = ask("--topic", "other", id="long")
    assert (elsewhere.returncode, "other" in elsewhere.stderr) == (2, True), elsewhere
    assert view.metadata()["current-schema-id"] == before
