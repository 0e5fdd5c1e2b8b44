"""Bytes that Frazil decodes itself, on the real worker with ByteArrayConverter."""

from __future__ import annotations

import json

import pytest

from bed import data
from bed.process import wait_until
from bed.read import TableView
from bed.sink import envelope, running, sink

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
COLUMNS = "id, customer, amount, quantity, status, express, note"
DEAD_LETTERS = {
    "errors__tolerance": "all",
    "errors__deadletterqueue__topic__replication__factor": "1",
    "errors__deadletterqueue__context__headers__enable": "true",
}


def native(catalog, name: str, format: str, dead: str, **overrides: str) -> dict[str, str]:
    keys = {
        "value__converter": BYTES,
        "frazil__value__format": format,
        "errors__deadletterqueue__topic__name": dead,
        **DEAD_LETTERS,
        **overrides,
    }
    return sink(catalog, name, f"{name}.orders", **keys)


# Promise: JSON as bytes, decoded natively, lands exactly as behind JsonConverter; malformed records go to the dead letter queue with their own bytes, and a restart goes on where the table ends
def test_json_is_decoded_natively(worker, broker, sql, name):
    dead = f"{name}_dead"
    for topic in (name, dead):
        broker.create_topic(topic)
    broken = [b'{"id": 7, "customer": "top-secret-value"', b"\xff\xfe", b'["top-secret-value"]']
    broker.produce_json(name, data.orders(500))
    broker.produce(name, [(0, b"k", value) for value in broken])
    broker.produce(name, [(0, None, None), (0, None, b"null")])
    view = TableView(sql, f"{name}.orders")
    config = native(sql, name, "json", dead)
    with running(worker, name, config):
        view.wait_rows(500, 60)
        assert len(broker.read(dead, len(broken), 30)) == len(broken)
    # The last ones have no rows: only Connect's own offsets say that they are done with.
    broker.wait_group_offsets(f"connect-{name}", {(name, 0): 505})
    broker.produce_json(name, data.orders(500, 500))
    with running(worker, name, config):
        view.wait_rows(1000, 60)
    rows = [tuple(order[c] for c in COLUMNS.split(", ")) for order in data.orders(1000)]
    assert view.query(f"SELECT {COLUMNS} FROM {{t}} ORDER BY id") == rows
    letters = broker.read(dead, len(broken) + 1, 5)
    assert [letter.value() for letter in letters] == broken
    said = [json.loads(dict(letter.headers())["__connect.errors.exception.message"]) for letter in letters]
    codes = [(one["code"], one["topic"], one["partition"], one["offset"]) for one in said]
    assert codes == [
        ("JSON_MALFORMED", name, 0, 500),
        ("JSON_MALFORMED", name, 0, 501),
        ("VALUE_NOT_A_RECORD", name, 0, 502),
    ]
    for letter in letters:
        assert not any(b"top-secret-value" in (value or b"") for _, value in letter.headers())
    assert "top-secret-value" not in worker.log()
    broker.wait_group_offsets(f"connect-{name}", {(name, 0): 1005})


# Promise: JSON envelopes, decoded natively, land by their schemas, also when these change inside of a batch
def test_envelopes_are_decoded_natively(worker, broker, sql, name):
    dead = f"{name}_dead"
    for topic in (name, dead):
        broker.create_topic(topic)
    decimal = {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "9"},
        "optional": True,
    }
    fields = [{"field": "id", "type": "int64", "optional": False}, {"field": "price", **decimal}]
    day = {"field": "day", "type": "int32", "name": "org.apache.kafka.connect.data.Date", "optional": True}

    def record(number: int) -> bytes:
        payload = {"id": number, "price": "BNI="}  # 12.34
        if number % 3 == 0:
            return envelope([*fields, day], {**payload, "day": 19000 + number})
        return envelope(fields, payload)

    values = [record(number) for number in range(300)]
    values[100] = envelope(fields, {"id": "top-secret-value", "price": None})
    broker.produce(name, [(0, None, value) for value in values])
    view = TableView(sql, f"{name}.orders")
    config = native(
        sql, name, "json-envelope", dead, iceberg__tables__evolve_schema_enabled="true"
    )
    with running(worker, name, config):
        view.wait_rows(299, 60)
        wait_until("the offsets", lambda: view.offsets() == {name: [300]}, 30)
    counted = view.query(
        "SELECT count(*), count(DISTINCT id), count(day), min(price)::VARCHAR, max(price)::VARCHAR FROM {t}"
    )
    assert counted == [(299, 299, 100, "12.34", "12.34")]
    assert view.query("SELECT day::VARCHAR FROM {t} WHERE id = 3") == [("2022-01-11",)]
    letters = broker.read(dead, 2, 5)
    assert [letter.value() for letter in letters] == [values[100]]
    said = json.loads(dict(letters[0].headers())["__connect.errors.exception.message"])
    assert (said["code"], said["column"], said["offset"]) == ("DECODE_TYPE_MISMATCH", "id", 100)


# Promise: validate refuses a native format whose converter or transforms would spoil the bytes, on the right key
@pytest.mark.parametrize(
    ("overrides", "key", "says"),
    [
        ({"value__converter": "org.apache.kafka.connect.storage.StringConverter"}, "value.converter", BYTES),
        (
            {
                "transforms": "mask",
                "transforms__mask__type": "org.apache.kafka.connect.transforms.MaskField$Value",
                "transforms__mask__fields": "note",
            },
            "transforms.mask.type",
            "columns.exclude",
        ),
        ({"frazil__key__format": "json", "key__converter": BYTES}, "frazil.key.format", "nothing reads keys"),
    ],
)
def test_what_spoils_the_bytes_is_refused(worker, sql, name, overrides, key, says):
    config = native(sql, name, "json", f"{name}_dead", **overrides)
    errors = worker.validate({"name": name, **config})
    assert list(errors) == [key]
    assert says in " ".join(errors[key])
