"""Configurations: those we ship, those of Apache's documentation, and those that are refused."""

from __future__ import annotations

import json

import pytest

from bed import data
from bed.catalogs import SqlCatalog
from bed.connect import RestError
from bed.process import free_port
from bed.read import TableView
from bed.sink import CLASS, configuration, running, sink


def refused(worker, config: dict, key: str, *parts: str) -> None:
    """Checks that a POST is answered 400 and that `validate` names the key and the remedy."""
    named = {"name": "refused", **config}
    errors = worker.validate(named)
    assert key in errors, errors
    message = " ".join(errors[key])
    for part in parts:
        assert part in message, message
    with pytest.raises(RestError) as answer:
        worker.create("refused", config)
    assert answer.value.status == 400
    assert key in answer.value.body


# Promise: the configuration of Apache's documentation runs with only `connector.class` changed
def test_apaches_own_example_runs(worker, broker, rest, name):
    # As the documentation of the Apache sink has it for a REST catalog, with our addresses in it.
    config = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": "2",
        "topics": name,
        "iceberg.tables": f"{name}.events",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": rest.uri,
        "iceberg.catalog.warehouse": rest.warehouse,
        # What the documentation's worker has in its own settings.
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "iceberg.control.commit.interval-ms": "1000",
    }
    config["connector.class"] = CLASS
    status, answer = rest.call("POST", "/v1/namespaces", {"namespace": [name]})
    assert status == 200, answer
    columns = {"id": "long", "type": "string", "ts": "timestamptz", "payload": "string"}
    fields = [
        {"id": number, "name": column, "type": kind, "required": False}
        for number, (column, kind) in enumerate(columns.items(), 1)
    ]
    table = {"name": "events", "schema": {"type": "struct", "schema-id": 0, "fields": fields}}
    table["partition-spec"] = {
        "spec-id": 0,
        "fields": [{"source-id": 3, "field-id": 1000, "name": "ts_hour", "transform": "hour"}]
    }
    status, answer = rest.call("POST", f"/v1/namespaces/{name}/tables", table)
    assert status == 200, answer
    broker.create_topic(name, 2)
    broker.produce_json(
        name,
        (
            {"id": n, "type": "login", "ts": f"2026-11-2{n % 9}T10:00:00Z", "payload": "ünï"}
            for n in range(100)
        ),
        lambda index: index % 2,
    )
    view = TableView(rest, f"{name}.events")
    with running(worker, name, config, 2):
        view.wait_rows(100, 60)
    asked = "SELECT count(DISTINCT id), sum(id), count(DISTINCT ts), min(payload) FROM {t}"
    assert view.query(asked) == [(100, 4950, 9, "ünï")]


# Promise: the configurations in connector-config/ run as they are
@pytest.mark.parametrize("file", ["orders.json", "orders-rest.json"])
def test_the_shipped_configurations_run(broker, request, scratch, name, file):
    catalog = request.getfixturevalue("weed") if "rest" in file else SqlCatalog(scratch / name)
    worker = request.getfixturevalue("worker")
    connector, config = configuration(file, catalog)
    broker.create_topic(name, 2)
    broker.produce_json(name, data.orders(1000), lambda index: index % 2)
    # Only the topic is another one, since this broker is used by all tests.
    config["topics"] = name
    view = TableView(catalog, config["iceberg.tables"])
    with running(worker, connector, config, 2):
        view.wait_rows(1000, 60)
    assert view.query("SELECT count(DISTINCT id), sum(id) FROM {t}") == [(1000, 499500)]
    assert view.query("SELECT DISTINCT _topic, _partition FROM {t} ORDER BY 2") == [
        (name, 0),
        (name, 1),
    ]


# Promise: an unknown key is refused, and the nearest known one is named
def test_an_unknown_key_is_refused(worker, sql, name):
    config = sink(sql, name, f"{name}.t", iceberg__tabels="a.b")
    refused(worker, config, "iceberg.tabels", "iceberg.tables")


# Promise: a bad value is refused with its key and what is allowed
@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("iceberg.control.commit.interval-ms", "soon", "number"),
        ("iceberg.control.commit.interval-ms", "5", "1000"),
        ("iceberg.tables", "no_namespace", "namespace.table"),
        ("iceberg.tables.default-partition-by", "week(ts)", "use year, month, day"),
        ("iceberg.catalog.type", "carrier-pigeon", "rest"),
    ],
)
def test_a_bad_value_is_refused(worker, sql, name, key, value, part):
    config = {**sink(sql, name, f"{name}.t"), key: value}
    refused(worker, config, key, part)


# Promise: what is not there yet is refused by its key, never ignored
@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("iceberg.tables.cdc-field", "_cdc", "changes and deletes"),
        ("iceberg.tables.upsert-mode-enabled", "true", "changes and deletes"),
        ("iceberg.catalog.type", "glue", "not there yet"),
        ("iceberg.catalog.type", "hive", "not there yet"),
        ("iceberg.catalog.catalog-impl", "org.apache.iceberg.aws.glue.GlueCatalog", "glue"),
        ("iceberg.catalog.io-impl", "com.example.OwnFileIO", "Java class"),
    ],
)
def test_what_is_not_there_yet_is_refused(worker, sql, name, key, value, reason):
    config = {**sink(sql, name, f"{name}.t"), key: value}
    if key == "iceberg.catalog.catalog-impl":
        del config["iceberg.catalog.type"]
    refused(worker, config, key, reason)


# Promise: tolerating all errors without a dead letter queue is refused, unless the loss is accepted
def test_tolerance_without_a_dead_letter_queue_is_refused(worker, sql, name):
    config = sink(sql, name, f"{name}.t", errors__tolerance="all")
    refused(worker, config, "errors.tolerance", "frazil.errors.drop")
    accepted = {**config, "name": name, "frazil.errors.drop": "true"}
    assert worker.validate(accepted) == {}


# Promise: keys of Apache's sink that mean nothing here are accepted
def test_inert_keys_are_accepted(worker, sql, name):
    config = sink(
        sql,
        name,
        f"{name}.t",
        name=name,
        iceberg__control__topic="control-iceberg",
        iceberg__control__commit__timeout_ms="30000",
    )
    assert worker.validate(config) == {}


def trace_of(worker, name: str, config: dict) -> str:
    """Runs a connector that is bound to fail and returns how: at the POST or in its task."""
    try:
        worker.create(name, config)
    except RestError as error:
        assert error.status == 400
        return error.body
    try:
        return worker.wait_failed(name, 90)
    finally:
        worker.delete(name)


# Promise: a missing table without auto-create is refused, and the message names table and remedy
def test_a_missing_table_is_refused(worker, sql, name):
    config = sink(sql, name, f"{name}.t", iceberg__tables__auto_create_enabled="false")
    refused(worker, config, "iceberg.tables", f"{name}.t", "auto-create-enabled")


# Promise: a catalog that does not answer is refused with its key
def test_a_catalog_that_is_not_there_is_refused(worker, rest, name):
    config = sink(rest, name, f"{name}.t")
    config["iceberg.catalog.uri"] = f"http://127.0.0.1:{free_port()}"
    refused(worker, config, "iceberg.catalog.uri", "did not answer", "127.0.0.1")


# Promise: wrong credentials are refused with their key, and are not shown
def test_wrong_credentials_are_refused(worker, weed, name):
    config = sink(weed, name, f"{name}.t", iceberg__catalog__credential="bedadmin:wr0ngsecret")
    refused(worker, config, "iceberg.catalog.credential", "CATALOG_UNAUTHORIZED")
    assert "wr0ngsecret" not in json.dumps(worker.validate({**config, "name": name}))
    assert "wr0ngsecret" not in worker.log()


# Promise: a secret never appears in a log, a status, an answer of `validate` or a table
@pytest.mark.parametrize("tolerate", [False, True], ids=["runs", "fails"])
def test_secrets_stay_secret(worker, broker, rest, name, tolerate):
    canaries = {
        "iceberg.catalog.token": "canary-token-4711",
        "iceberg.catalog.credential": "canary-id:canary-secret-4711",
        "iceberg.catalog.s3.secret-access-key": "canary-key-4711",
        "iceberg.catalog.s3.session-token": "canary-session-4711",
        "iceberg.catalog.adls.sas-token.account": "canary-sas-4711",
        "iceberg.catalog.some.password": "canary-password-4711",
    }
    # The catalog asks for no token, so that one more or less does not hinder.
    if not tolerate:
        del canaries["iceberg.catalog.credential"]
    broker.create_topic(name)
    broker.produce_json(name, data.orders(10))
    config = {**sink(rest, name, f"{name}.t"), **canaries}
    config["iceberg.catalog.s3.access-key-id"] = "no-secret"
    if tolerate:
        config["iceberg.catalog.uri"] = f"http://canary-user:canary-4711@127.0.0.1:{free_port()}"
    answer = worker.call(
        "PUT", f"/connector-plugins/{CLASS}/config/validate", {**config, "name": name}
    )
    shown = json.dumps(answer)
    for key in canaries:
        entry = next(entry for entry in answer["configs"] if entry["value"]["name"] == key)
        assert entry["value"]["value"] == "[hidden]", key
    if tolerate:
        shown += trace_of(worker, name, config)
    else:
        view = TableView(rest, f"{name}.t")
        with running(worker, name, config):
            view.wait_rows(10, 60)
            shown += json.dumps(worker.status(name))
        shown += json.dumps(view.metadata())
    values = [part for value in canaries.values() for part in value.split(":")]
    for value in [*values, "canary-4711"]:
        assert value not in shown.replace(config["iceberg.catalog.uri"], "")
        assert value not in worker.log()
