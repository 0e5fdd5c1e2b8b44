"""Records that do not fit: nothing is lost, and it is said where and why."""

from __future__ import annotations

import json

import pytest

from bed.process import wait_until
from bed.read import TableView
from bed.sink import ENVELOPE, envelope, running, sink

FIELDS = [
    {"field": "id", "type": "int64", "optional": False},
    {"field": "small", "type": "int32", "optional": True},
]
# The same field, and a text where the table has a number.
WRONG = [FIELDS[0], {"field": "small", "type": "string", "optional": True}]


def good(number: int) -> bytes:
    return envelope(FIELDS, {"id": number, "small": number * 2})


def bad(number: int) -> bytes:
    return envelope(WRONG, {"id": number, "small": "top-secret-value"})


# Promise: a record that does not fit stops the task, which names connector, table, column and
# topic, partition and offset, and not the value; what came before it is kept
# Injection: 34, 41
def test_a_record_that_does_not_fit_stops_the_task(worker, broker, sql, name):
    broker.create_topic(name)
    broker.produce(name, [(0, None, good(number)) for number in range(20)])
    view = TableView(sql, f"{name}.t")
    worker.create(name, sink(sql, name, f"{name}.t", **ENVELOPE))
    try:
        view.wait_rows(20, 60)
        broker.produce(name, [(0, None, good(20)), (0, None, bad(21)), (0, None, good(22))])
        trace = worker.wait_failed(name)
    finally:
        worker.delete(name)
    for part in (name, f"{name}.t", "`small`", f"{name}-0", "offset=21"):
        assert part in trace, trace
    assert "top-secret-value" not in trace
    assert "top-secret-value" not in worker.log()
    assert view.query("SELECT count(*) FROM {t} WHERE id < 20") == [(20,)]
    # Its offset is not passed: whoever mends the record (or skips it) loses nothing.
    assert broker.group_offsets(f"connect-{name}").get((name, 0), 0) <= 21
    assert view.offsets()[name][0] <= 21


# Promise: with a dead letter queue every record is in the table or in the queue, none in both
# Injection: 35
# Complaint: 9
def test_records_that_do_not_fit_go_to_the_dead_letter_queue(worker, broker, sql, name):
    broker.create_topic(name)
    dead = f"{name}_dead"
    broker.create_topic(dead)
    values = [bad(n) if n % 10 == 7 else good(n) for n in range(1000)]
    # The table gets its columns from the first record, which fits.
    broker.produce(name, [(0, None, value) for value in values])
    config = sink(
        sql,
        name,
        f"{name}.t",
        errors__tolerance="all",
        errors__deadletterqueue__topic__name=dead,
        errors__deadletterqueue__topic__replication__factor="1",
        errors__deadletterqueue__context__headers__enable="true",
        **ENVELOPE,
    )
    view = TableView(sql, f"{name}.t")
    with running(worker, name, config):
        view.wait_rows(900, 60)
        wait_until("the offsets", lambda: view.offsets() == {name: [1000]}, 30)
    letters = broker.read(dead, 101, 5)
    assert [json.loads(m.value())["payload"]["id"] for m in letters] == list(range(7, 1000, 10))
    headers = dict(letters[0].headers())
    assert headers["__connect.errors.offset"] == b"7"
    assert headers["__connect.errors.exception.class.name"] == (
        b"io.frazil.connect.RejectedRecordException"
    )
    said = json.loads(headers["__connect.errors.exception.message"])
    assert (said["code"], said["table"], said["column"]) == ("VALUE_MALFORMED", f"{name}.t", "small")
    assert (said["topic"], said["partition"], said["offset"]) == (name, 0, 7)
    assert "column `small`" in said["reason"]
    for header, value in headers.items():
        assert b"top-secret-value" not in (value or b""), header
    assert view.query("SELECT count(*), count(DISTINCT id) FROM {t}") == [(900, 900)]
    broker.wait_group_offsets(f"connect-{name}", {(name, 0): 1000})


# Promise: a value is never wrapped, cut or turned to null to make it fit
# Complaint: 14
@pytest.mark.parametrize(
    ("column", "kind", "value"),
    [
        ("int", "int64", 2**31),
        ("int", "int64", -(2**31) - 1),
        ("long", "double", 1.5),
        ("boolean", "string", "yes"),
        ("int", "string", "seven"),
    ],
)
def test_a_value_is_not_bent_to_fit(worker, broker, rest, name, column, kind, value):
    rest.call("POST", "/v1/namespaces", {"namespace": [name]})
    fields = [{"id": 1, "name": "v", "type": column, "required": False}]
    schema = {"type": "struct", "schema-id": 0, "fields": fields}
    status, answer = rest.call(
        "POST", f"/v1/namespaces/{name}/tables", {"name": "t", "schema": schema}
    )
    assert status == 200, answer
    broker.create_topic(name)
    field = {"field": "v", "type": kind, "optional": True}
    broker.produce(name, [(0, None, envelope([field], {"v": value}))])
    view = TableView(rest, f"{name}.t")
    worker.create(name, sink(rest, name, f"{name}.t", **ENVELOPE))
    try:
        trace = worker.wait_failed(name)
    finally:
        worker.delete(name)
    for part in (f"{name}-0", "offset=0", "`v`"):
        assert part in trace, trace
    assert view.rows() == 0


# Promise: a column is added for a new field when that is asked for
def test_columns_are_added_when_asked_for(worker, broker, sql, name):
    broker.create_topic(name)
    wide = [*FIELDS, {"field": "more", "type": "string", "optional": True}]
    broker.produce(name, [(0, None, good(0))])
    config = sink(sql, name, f"{name}.t", iceberg__tables__evolve_schema_enabled="true", **ENVELOPE)
    view = TableView(sql, f"{name}.t")
    with running(worker, name, config):
        view.wait_rows(1, 60)
        broker.produce(name, [(0, None, envelope(wide, {"id": 1, "small": 2, "more": "x"}))])
        view.wait_rows(2, 60)
    assert view.query("SELECT id, small, more FROM {t} ORDER BY id") == [(0, 0, None), (1, 2, "x")]
