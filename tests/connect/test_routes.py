"""Where records go on a real worker: by field, by topic, by what transforms left, by pattern."""

from __future__ import annotations

import json

import pytest

from bed.process import wait_until
from bed.read import TableView
from bed.sink import ENVELOPE, envelope, running, sink

SHORT_SESSION = {
    "consumer__override__session__timeout__ms": "6000",
    "consumer__override__heartbeat__interval__ms": "1500",
}


def rows(first: int, count: int, tables: list[str]) -> list[dict]:
    return [
        {"id": number, "to": tables[number % len(tables)]} for number in range(first, first + count)
    ]


def ids(view: TableView) -> list[int]:
    return [row[0] for row in view.query("SELECT id FROM {t} ORDER BY id")]


# Promise: tables that records name are created and hold each record once, with two tasks and a
# worker that is killed in between
def test_named_tables_hold_each_record_once_over_a_kill(make_worker, broker, sql, name):
    worker = make_worker(plugin="jar").start()
    tables = [f"{name}.one", f"{name}.Two", f"{name}.three"]
    views = [TableView(sql, table.lower()) for table in tables]
    broker.create_topic(name, 4)
    config = sink(
        sql,
        name,
        "",
        tasks__max="2",
        iceberg__tables=None,
        iceberg__tables__dynamic_enabled="true",
        iceberg__tables__route_field="to",
        **SHORT_SESSION,
    )

    def partition(index: int) -> int:
        """No multiple of the table, so that each task writes each table."""
        return (index // 3) % 4

    worker.create(name, config)
    worker.wait_running(name, 2)
    broker.produce_json(name, rows(0, 1200, tables), partition)
    for view in views:
        view.wait_rows_at_least(1, 90)
    broker.produce_json(name, rows(1200, 1200, tables), partition)
    worker.kill()
    broker.produce_json(name, rows(2400, 600, tables), partition)
    worker.start()
    for view in views:
        view.wait_rows(1000, 120)
    worker.delete(name)
    worker.stop()
    for number, view in enumerate(views):
        assert ids(view) == list(range(number, 3000, 3))


# The peer's integration test of dynamic tables: two tables get their record, a third is not there.
def test_a_payload_routes_to_the_tables_that_are_there(worker, broker, sql, name):
    broker.create_topic(name, 2)
    names = [f"{name}.tbl1", f"{name}.tbl2", f"{name}.tbl3"]
    views = [TableView(sql, table) for table in names]
    config = sink(
        sql,
        name,
        ",".join(names[:2]),
        iceberg__tables__route_field="payload",
    )
    for table in names[:2]:
        config[f"iceberg.table.{table}.route-regex"] = table.replace(".", "\\.")
    broker.produce_json(name, [{"id": n, "payload": names[n]} for n in range(2)])
    with running(worker, name, config):
        for view in views[:2]:
            view.wait_rows(1, 60)
    dynamic = sink(
        sql,
        name,
        "",
        iceberg__tables=None,
        iceberg__tables__auto_create_enabled="false",
        iceberg__tables__dynamic_enabled="true",
        iceberg__tables__route_field="payload",
        iceberg__tables__unmatched_behavior="drop",
    )
    broker.produce_json(name, [{"id": 10 + n, "payload": names[n]} for n in range(3)])
    with running(worker, name, dynamic):
        for view in views[:2]:
            view.wait_rows(2, 60)
        broker.wait_group_offsets(f"connect-{name}", {(name, 0): 5, (name, 1): 0})
    assert [ids(view) for view in views[:2]] == [[0, 10], [1, 11]]
    assert views[2].location() is None
    assert "1 without a table" in worker.log()


# The peer's integration test of several tables: by pattern, and one record that none takes.
def test_patterns_route_and_what_none_takes_stops_the_task(worker, broker, sql, name):
    broker.create_topic(name)
    config = sink(sql, name, f"{name}.a,{name}.b", iceberg__tables__route_field="type")
    config[f"iceberg.table.{name}.a.route-regex"] = "type1|both"
    config[f"iceberg.table.{name}.b.route-regex"] = "type2|both"
    views = [TableView(sql, f"{name}.{table}") for table in "ab"]
    kinds = ["type1", "type2", "both", "type1x-secret"]
    broker.produce_json(name, [{"id": n, "type": kind} for n, kind in enumerate(kinds[:3])])
    worker.create(name, config)
    try:
        for view in views:
            view.wait_rows(2, 60)
        broker.produce_json(name, [{"id": 3, "type": kinds[3]}])
        trace = worker.wait_failed(name)
    finally:
        worker.delete(name)
    assert "ROUTE_UNMATCHED" in trace and "offset=3" in trace and "secret" not in trace, trace
    assert broker.group_offsets(f"connect-{name}").get((name, 0), 0) <= 3
    assert [ids(view) for view in views] == [[0, 2], [1, 2]]


# Promise: after a transform that renames topics, records go by the new name, and offsets are
# committed for the topic that was read
def test_a_topic_that_a_transform_renames_routes_and_keeps_its_offsets(worker, broker, sql, name):
    topic = f"src-{name}"
    broker.create_topic(topic, 2)
    config = sink(
        sql,
        topic,
        "",
        iceberg__tables=None,
        iceberg__tables__name_template="${topic}",
        iceberg__tables__metadata_columns="_topic,_partition,_offset",
        transforms="rename",
        transforms__rename__type="org.apache.kafka.connect.transforms.RegexRouter",
        transforms__rename__regex="src-(.*)",
        transforms__rename__replacement="$1.orders",
    )
    view = TableView(sql, f"{name}.orders")
    broker.produce_json(topic, [{"id": n} for n in range(40)], lambda index: index % 2)
    with running(worker, name, config):
        view.wait_rows(40, 60)
        ends = {(topic, 0): 20, (topic, 1): 20}
        broker.wait_group_offsets(f"connect-{name}", ends, 60)
    assert view.offsets() == {topic: [20, 20]}
    assert view.query("SELECT DISTINCT _topic FROM {t}") == [(topic,)]
    with running(worker, name, config):
        broker.produce_json(topic, [{"id": 40}])
        view.wait_rows(41, 60)
    assert ids(view) == list(range(41))


# Promise: a topic that appears later and matches `topics.regex` gets its table
# Complaint: 20
def test_topics_that_appear_later_get_their_tables(worker, broker, sql, name):
    broker.create_topic(f"{name}-a")
    config = sink(
        sql,
        "",
        "",
        iceberg__tables=None,
        topics__regex=f"{name}-.*",
        consumer__override__metadata__max__age__ms="2000",
        consumer__override__auto__offset__reset="earliest",
        iceberg__tables__name_template=f"{name}.${{1}}",
        iceberg__tables__route_source="topic",
        iceberg__tables__route_regex=f"{name}-(.*)",
    )
    config.pop("topics")
    first, second = (TableView(sql, f"{name}.{table}") for table in "ab")
    broker.produce_json(f"{name}-a", [{"id": n} for n in range(10)])
    with running(worker, name, config):
        first.wait_rows(10, 60)
        broker.create_topic(f"{name}-b")
        broker.produce_json(f"{name}-b", [{"id": n} for n in range(7)])
        second.wait_rows(7, 90)
    assert ids(first) == list(range(10)) and ids(second) == list(range(7))


# Promise: a null that a record has is kept although its field has a default, and a tombstone is
# skipped, also as the first record of a table that does not exist
# Complaint: 19
def test_nulls_stay_nulls_and_tombstones_are_skipped(worker, broker, sql, name):
    broker.create_topic(name)
    fields = [
        {"field": "id", "type": "int64", "optional": False},
        {"field": "note", "type": "string", "optional": True, "default": "dflt"},
    ]
    notes = [(1, None), (2, "x")]
    rows = [envelope(fields, {"id": number, "note": note}) for number, note in notes]
    broker.produce(name, [(0, b"key", value) for value in (None, *rows)])
    config = sink(
        sql,
        name,
        f"{name}.t",
        value__converter__replace__null__with__default="false",
        **ENVELOPE,
    )
    view = TableView(sql, f"{name}.t")
    with running(worker, name, config):
        view.wait_rows(2, 60)
        broker.wait_group_offsets(f"connect-{name}", {(name, 0): 3}, 60)
    assert view.query("SELECT id, note FROM {t} ORDER BY id") == [(1, None), (2, "x")]
    assert "1 without a value" in worker.log()


def test_keys_timestamps_and_headers_become_columns(worker, broker, sql, name):
    broker.create_topic(name)
    broker.produce(name, [(0, b"k-7", json.dumps({"id": 7}).encode())])
    config = sink(
        sql,
        name,
        f"{name}.t",
        iceberg__tables__metadata_columns="_topic,_timestamp:at,_key,_headers",
    )
    view = TableView(sql, f"{name}.t")
    with running(worker, name, config):
        view.wait_rows(1, 60)
    found = view.query("SELECT id, _topic, \"at\" > TIMESTAMPTZ '2020-01-01', _key, _headers FROM {t}")
    assert found == [(7, name, True, "k-7", "[]")]


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("iceberg.tables.route-regex", "(?=x)", "look-around"),
        ("iceberg.tables.name-template", "${nope}", "${topic}"),
        ("iceberg.tables.route-source", "body", "header.<name>"),
    ],
)
def test_routes_that_cannot_be_are_refused_on_their_key(worker, sql, name, key, value, part):
    config = sink(sql, name, "", iceberg__tables=None)
    config |= {
        "name": name,
        "iceberg.tables.route-source": "topic",
        "iceberg.tables.route-regex": "(.*)",
        "iceberg.tables.name-template": "lake.${1}",
        key: value,
    }
    errors = worker.validate(config)
    assert part in " ".join(errors[key]), errors


def test_nothing_waits_for_a_table_that_got_no_record(worker, broker, sql, name):
    """Offsets go on while a table of a pattern is empty."""
    broker.create_topic(name)
    config = sink(sql, name, f"{name}.a,{name}.b", iceberg__tables__route_field="to")
    config[f"iceberg.table.{name}.a.route-regex"] = "a"
    config[f"iceberg.table.{name}.b.route-regex"] = "b"
    broker.produce_json(name, [{"id": n, "to": "a"} for n in range(20)])
    view = TableView(sql, f"{name}.a")
    with running(worker, name, config):
        view.wait_rows(20, 60)
        wait_until("the offset", lambda: view.offsets() == {name: [20]}, 30)
        broker.wait_group_offsets(f"connect-{name}", {(name, 0): 20}, 60)


# Promise: a consumer group of another name is used as it is set, and its offsets move
def test_a_group_of_another_name_is_used(worker, broker, sql, name):
    broker.create_topic(name, 2)
    config = sink(
        sql,
        name,
        f"{name}.t",
        tasks__max="2",
        consumer__override__group__id=f"own-{name}",
    )
    broker.produce_json(name, [{"id": n} for n in range(20)], lambda index: index % 2)
    view = TableView(sql, f"{name}.t")
    with running(worker, name, config, 2):
        view.wait_rows(20, 60)
        ends = {(name, 0): 10, (name, 1): 10}
        broker.wait_group_offsets(f"own-{name}", ends, 60)
    assert broker.group_offsets(f"connect-{name}") == {}


# Promise: plain texts land in a column of their own when one is named, and are errors otherwise
def test_plain_texts_get_a_column_when_asked_for(worker, broker, sql, name):
    broker.create_topic(name)
    broker.produce(name, [(0, None, text.encode()) for text in ("one", "zwei ä", "")])
    config = sink(
        sql,
        name,
        f"{name}.t",
        value__converter="org.apache.kafka.connect.storage.StringConverter",
    )
    worker.create(name, config)
    try:
        assert "VALUE_NOT_A_RECORD" in worker.wait_failed(name)
    finally:
        worker.delete(name)
    view = TableView(sql, f"{name}.t")
    config["iceberg.tables.value-column"] = "payload"
    with running(worker, name, config):
        view.wait_rows(3, 60)
    assert sorted(row[0] for row in view.query("SELECT payload FROM {t}")) == ["", "one", "zwei ä"]
