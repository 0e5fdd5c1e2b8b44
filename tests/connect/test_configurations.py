"""Configurations: those we ship, those of Apache's documentation, and those that are refused."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, TopicPartition

from bed import configurations, data
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
        ("iceberg.tables.default-partition-by", "week(ts)", "There are year, month, day"),
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
        ("iceberg.tables.default-delete-mode", "copy-on-write", "not built yet"),
        ("iceberg.tables.default-delete-mode", "equality", "never written"),
        ("iceberg.hadoop.fs.s3a.threads.max", "64", "iceberg.catalog.s3."),
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


@pytest.fixture(scope="module")
def answers(worker):
    """What `validate` answers to each connector of another sink; a catalog that is not there takes
    seconds, so several are asked at once."""

    def ask(file: str) -> dict:
        config = {**configurations.ours(file), "name": file}
        return worker.call("PUT", f"/connector-plugins/{CLASS}/config/validate", config, timeout=120)

    with ThreadPoolExecutor(8) as pool:
        return dict(zip(configurations.files(), pool.map(ask, configurations.files())))


# Promise: connectors of Apache's and Tabular's sink fail at `validate` on exactly the keys that docs/migration.md lists as refused
@pytest.mark.parametrize("file", configurations.files())
def test_a_connector_of_another_sink_fails_on_exactly_the_keys_of_the_guide(worker, answers, file):
    answer = answers[file]
    values = [entry["value"] for entry in answer["configs"]]
    # Classes of converters and transforms that this worker does not have are Connect's to refuse.
    wrong = {v["name"] for v in values if v["errors"] and v["name"].startswith(("iceberg.", "frazil."))}
    expected = configurations.Guide().refused(configurations.ours(file))
    if not expected:
        # All hosts end in `.invalid`, so the catalog is the one thing that cannot be.
        expected = {"iceberg.catalog.uri"}
    shown = {v["name"]: v["errors"] for v in values if v["errors"]}
    assert wrong == expected, shown
    assert configurations.SECRET not in json.dumps(answer)
    assert configurations.SECRET not in worker.log()


def test_there_are_thirty_connectors_of_other_sinks():
    assert len(configurations.files()) >= 30


# Promise: connectors of Apache's and Tabular's sink run with `connector.class` and the addresses changed
@pytest.mark.parametrize(
    "file",
    [
        "apache-jdbc-sqlite",
        "apache-rest-vended",
        "apache-every-table-option",
        "apache-control",
        "tabular-write-props",
    ],
)
def test_a_connector_of_another_sink_runs(worker, broker, request, scratch, name, file):
    fixture = {"apache-jdbc-sqlite": "sqlite", "apache-rest-vended": "weed"}.get(file, "rest")
    catalog = SqlCatalog(scratch / name) if fixture == "sqlite" else request.getfixturevalue(fixture)
    addresses = catalog.connector()
    if fixture == "sqlite":
        addresses["iceberg.catalog.type"] = "jdbc"
        addresses["iceberg.catalog.uri"] = f"jdbc:{addresses['iceberg.catalog.uri']}"
    config = {**configurations.ours(file), **addresses, "topics": name}
    config = json.loads(json.dumps(config).replace("lake.events", f"{name}.events"))
    config["iceberg.control.commit.interval-ms"] = "1000"
    broker.create_topic(name, 2)
    records = ({"id": n, "kind": f"k{n % 3}", "note": "ünï"} for n in range(200))
    broker.produce_json(name, records, lambda index: index % 2)
    assert worker.validate({**config, "name": name}) == {}
    view = TableView(catalog, f"{name}.events")
    with running(worker, name, config, 2):
        view.wait_rows(200, 90)
    assert view.query("SELECT count(DISTINCT id), sum(id), count(DISTINCT kind) FROM {t}") == [
        (200, 19900, 3)
    ]


@pytest.mark.parametrize(
    ("file", "field", "values", "rows"),
    [
        ("apache-multi-table", "kind", ["login", "order", "refund"], {"logins": 50, "orders": 100}),
        ("apache-dynamic", "target", ["{}.a", "{}.b", "{}.A"], {"a": 100, "b": 50}),
    ],
)
def test_a_routing_connector_of_another_sink_runs(worker, broker, rest, name, file, field, values, rows):
    config = {**configurations.ours(file), **rest.connector(), "topics": name}
    config = json.loads(json.dumps(config).replace("lake.", f"{name}."))
    config["iceberg.control.commit.interval-ms"] = "1000"
    broker.create_topic(name, 2)
    records = ({"id": n, field: values[n % 3].format(name)} for n in range(150))
    broker.produce_json(name, records, lambda index: index % 2)
    with running(worker, name, config, 2):
        for table, count in rows.items():
            TableView(rest, f"{name}.{table}").wait_rows(count, 90)


# Promise: a connector that takes the place of another sink goes on where that one's consumer group stands
# Complaint: 29
def test_a_connector_goes_on_where_the_group_stands(worker, broker, sql, name):
    broker.create_topic(name, 2)
    broker.produce_json(name, ({"id": n} for n in range(100)), lambda index: index % 2)
    before = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"connect-{name}"})
    stands = [TopicPartition(name, partition, 30) for partition in range(2)]
    before.commit(offsets=stands, asynchronous=False)
    before.close()
    view = TableView(sql, f"{name}.t")
    with running(worker, name, sink(sql, name, f"{name}.t")):
        view.wait_rows(40, 60)
    assert view.query("SELECT min(id), max(id), count(DISTINCT id) FROM {t}") == [(60, 99, 40)]


# Promise: a consumer group of one's own is the one that counts, also when Apache's key names another
# Complaint: 28
def test_a_group_of_ones_own_counts(worker, broker, sql, name):
    broker.create_topic(name, 2)
    broker.produce_json(name, ({"id": n} for n in range(100)), lambda index: index % 2)
    config = sink(sql, name, f"{name}.t", tasks__max="2", iceberg__connect__group_id="another")
    config["consumer.override.group.id"] = f"own-{name}"
    answer = worker.call(
        "PUT", f"/connector-plugins/{CLASS}/config/validate", {**config, "name": name}
    )
    entry = next(e for e in answer["configs"] if e["value"]["name"] == "frazil.warnings")
    assert f"the consumer group is `own-{name}`" in entry["value"]["value"]
    view = TableView(sql, f"{name}.t")
    with running(worker, name, config, 2):
        view.wait_rows(100, 60)
        broker.wait_group_offsets(f"own-{name}", {(name, 0): 50, (name, 1): 50})


# Promise: what `validate` warns of stands in Connect's answer, under `frazil.warnings`
def test_warnings_stand_in_connects_answer(worker, sql, name):
    config = sink(sql, name, f"{name}.t", name=name, iceberg__control__topic="control-iceberg")
    config["consumer.override.auto.offset.reset"] = "latest"
    answer = worker.call("PUT", f"/connector-plugins/{CLASS}/config/validate", config)
    assert answer["error_count"] == 0, answer
    entry = next(e for e in answer["configs"] if e["value"]["name"] == "frazil.warnings")
    for part in ("iceberg.control.topic", "before the first start", f"topic `{name}` is not there"):
        assert part in entry["value"]["value"], entry


# Promise: Connect's forms get a group, an order, a name and the choices of each key
def test_connects_answer_has_what_a_form_needs(worker, sql, name):
    config = sink(sql, name, f"{name}.t", name=name)
    answer = worker.call("PUT", f"/connector-plugins/{CLASS}/config/validate", config)
    assert {"Tables", "Commits", "Catalog", "Storage"} <= set(answer["groups"])
    entries = {entry["value"]["name"]: entry for entry in answer["configs"]}
    created = entries["iceberg.tables.auto-create-enabled"]
    assert created["definition"]["group"] == "Tables"
    assert created["definition"]["display_name"] == "Auto create enabled"
    assert created["definition"]["order_in_group"] > entries["iceberg.tables"]["definition"]["order_in_group"]
    assert created["value"]["recommended_values"] == ["true", "false"]
    assert entries["iceberg.catalog.credential"]["value"]["visible"] is False


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
