"""Schemas of a real registry: what Confluent's and Apicurio's own serializers write, decoded natively on
the real worker."""

from __future__ import annotations

import base64
import decimal
import json
import subprocess
import time
from pathlib import Path
from typing import Iterator

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bed.process import wait_until
from bed.proxy import Proxy, error, refuse
from bed.read import TableView, pyiceberg_table
from bed.registry import Registry, produce_with_java
from bed.sink import configuration, running, sink

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
WIDER = {
    **ORDER,
    "fields": [
        *ORDER["fields"],
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


@pytest.fixture(scope="module")
def registry(scratch: Path, logs: Path) -> Iterator[Registry]:
    started = Registry(scratch / "registry", logs)
    try:
        yield started.start()
    finally:
        started.stop()


@pytest.fixture
def dead(broker, name) -> str:
    """A topic for records of this test that cannot land; the topic of the test is made, too."""
    for topic in (name, f"{name}_dead"):
        broker.create_topic(topic)
    return f"{name}_dead"


def native(catalog, name: str, form: str, url: str, dead: str | None, **overrides: str) -> dict[str, str]:
    keys = {
        "value__converter": BYTES,
        "frazil__value__format": form,
        "frazil__schema__registry__url": url,
        "iceberg__tables__evolve_schema_enabled": "true",
    }
    if dead is not None:
        keys["errors__tolerance"] = "all"
        keys["errors__deadletterqueue__topic__name"] = dead
        keys["errors__deadletterqueue__topic__replication__factor"] = "1"
        keys["errors__deadletterqueue__context__headers__enable"] = "true"
    return sink(catalog, name, f"{name}.orders", **{**keys, **overrides})


def client(registry: Registry) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry.confluent})


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def codes(letters: list) -> list[tuple[str, int]]:
    said = [json.loads(dict(letter.headers())["__connect.errors.exception.message"]) for letter in letters]
    return [(one["code"], one["offset"]) for one in said]


def order(number: int, **more: object) -> dict:
    return {
        "id": number,
        "customer": f"Zoë {number}",
        "price": decimal.Decimal(number) / 100,
        "placed": 1_700_000_000_000_000 + number,
        **more,
    }


# Promise: Avro of Confluent's serializer lands by the schemas of a real registry, also when producers of two versions write at once; an id that the registry does not know goes to the dead letter queue with its bytes
def test_avro_of_confluents_serializer_lands(worker, broker, sql, name, registry, dead):
    known = client(registry)
    old = AvroSerializer(known, json.dumps(ORDER))
    values = [old(order(number), value_of(name)) for number in range(200)]
    new = AvroSerializer(known, json.dumps(WIDER))
    for number in range(0, 200, 3):
        values[number] = new(order(number, note=f"n{number}"), value_of(name))
    assert values[1][:1] == b"\0" and values[0][:5] != values[1][:5]
    unknown = b"\0" + (987_654).to_bytes(4, "big") + b"top-secret-value"
    cut = values[5][:-3]
    broker.produce(name, [(0, None, value) for value in [*values, unknown, cut, None, values[7]]])
    view = TableView(sql, f"{name}.orders")
    with running(worker, name, native(sql, name, "avro", registry.confluent, dead)):
        view.wait_rows(201, 60)
        letters = broker.read(dead, 2, 30)
    assert [letter.value() for letter in letters] == [unknown, cut]
    assert codes(letters) == [("REGISTRY_SCHEMA_UNKNOWN", 200), ("DECODE_MALFORMED", 201)]
    assert "top-secret-value" not in worker.log()
    counted = view.query(
        "SELECT count(*), count(DISTINCT id), count(note), sum(price)::VARCHAR, max(placed)::VARCHAR FROM {t}"
    )
    cents = sum(range(200)) + 7
    assert counted == [(201, 200, 67, str(decimal.Decimal(cents) / 100), "2023-11-14 22:13:20.000199+00")]
    assert view.query("SELECT customer, note FROM {t} WHERE id = 3") == [("Zoë 3", "n3")]


# Promise: Without a dead letter queue a record whose schema the registry does not know stops the task before its offset, and nothing is lost
def test_an_unknown_schema_stops_the_task(worker, broker, sql, name, registry, dead):
    write = AvroSerializer(client(registry), json.dumps(ORDER))
    good = [write(order(number), value_of(name)) for number in range(10)]
    broker.produce(name, [(0, None, value) for value in good])
    unknown = b"\0" + (987_655).to_bytes(4, "big") + b"x"
    broker.produce(name, [(0, None, unknown)])
    view = TableView(sql, f"{name}.orders")
    worker.create(name, native(sql, name, "avro", registry.confluent, None))
    try:
        trace = worker.wait_failed(name, 60)
    finally:
        worker.delete(name)
    assert "REGISTRY_SCHEMA_UNKNOWN" in trace and "offset=10" in trace, trace
    assert broker.group_offsets(f"connect-{name}").get((name, 0), 0) <= 10
    # As soon as there is a place for it, all go on.
    with running(worker, name, native(sql, name, "avro", registry.confluent, dead)):
        view.wait_rows(10, 60)
        letters = broker.read(dead, 1, 30)
    assert [letter.value() for letter in letters] == [unknown]


# Promise: Avro of Apicurio's serializers and of its Connect converter is decoded: ids in headers, frames of 8 and of 4 bytes, by Apicurio's own interface in its versions 2 and 3 and by the compatible one
@pytest.mark.parametrize(
    ("form", "api"),
    [
        ("headers-globalId", "v2"),
        ("headers-contentId", "v3"),
        ("headers-globalId", "confluent"),
        ("frame8", "v2"),
    ],
)
def test_avro_of_apicurios_serializers_lands(worker, broker, sql, name, registry, dead, form, api):
    produce_with_java(broker, registry, name, form, 50)
    url = registry.confluent if api == "confluent" else registry.own(int(api[1:]))
    view = TableView(sql, f"{name}.orders")
    config = native(sql, name, "avro", url, dead, header__converter=BYTES)
    with running(worker, name, config):
        view.wait_rows(50, 60)
    rows = view.query("SELECT id, customer, note, lines FROM {t} ORDER BY id")
    expected = [
        (
            number,
            f"Zoë {number}",
            None if number % 2 == 0 else f"note {number}",
            [{"sku": f"sku-{number}", "count": number % 7}] * 2,
        )
        for number in range(50)
    ]
    assert rows == expected
    assert broker.read(dead, 1, 2) == []


# Promise: What Apicurio's AvroConverter writes of Connect's own types comes back as those types
def test_avro_of_apicurios_converter_lands(worker, broker, sql, name, registry, dead):
    produce_with_java(broker, registry, name, "converter", 20)
    view = TableView(sql, f"{name}.orders")
    config = native(sql, name, "avro", registry.own(2), dead)
    with running(worker, name, config):
        view.wait_rows(20, 60)
    types = {field["name"]: field["type"] for field in view.metadata()["schemas"][-1]["fields"]}
    assert (types["small"], types["price"], types["at"]) == ("int", "decimal(9, 2)", "timestamptz")
    rows = view.query("SELECT id, small, price::VARCHAR, \"at\"::VARCHAR, tags FROM {t} WHERE id = 7")
    assert rows == [(7, 7, "0.07", "2023-11-14 22:13:20.007+00", {"n": 7, "none": None})]


def message_class(pool: descriptor_pool.DescriptorPool, name: str):
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def shop_protobuf() -> tuple[type, type]:
    """Two messages of one file that imports another: `Order`, and the second of its nested ones."""
    kinds = descriptor_pb2.FieldDescriptorProto
    address = descriptor_pb2.FileDescriptorProto(name="address.proto", package="shop", syntax="proto3")
    message = address.message_type.add(name="Address")
    message.field.add(name="city", number=1, type=kinds.TYPE_STRING, label=1)
    shop = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    shop.dependency.append("address.proto")
    for name in ("First", "Order"):
        shop.message_type.add(name=name)
    first, order = shop.message_type
    first.field.add(name="unused", number=1, type=kinds.TYPE_INT32, label=1)
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=1)
    order.field.add(name="home", number=2, type=kinds.TYPE_MESSAGE, type_name=".shop.Address", label=1)
    order.field.add(name="lines", number=3, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.Line", label=3)
    order.nested_type.add(name="Ignored").field.add(name="x", number=1, type=kinds.TYPE_INT32, label=1)
    line = order.nested_type.add(name="Line")
    line.field.add(name="sku", number=1, type=kinds.TYPE_STRING, label=1)
    line.field.add(name="count", number=2, type=kinds.TYPE_UINT32, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(address)
    pool.Add(shop)
    return message_class(pool, "shop.Order"), message_class(pool, "shop.Order.Line")


# Promise: Protobuf of Confluent's serializer lands: nested messages, lists of them, imports from the registry, and messages that are not the first of their file
def test_protobuf_of_confluents_serializer_lands(worker, broker, sql, name, registry, dead):
    Order, Line = shop_protobuf()
    write = ProtobufSerializer(Order, client(registry), {"use.deprecated.format": False})
    values = []
    for number in range(100):
        message = Order(id=number)
        if number % 2 == 0:
            message.home.city = f"Köln {number}"
        for count in range(number % 3):
            message.lines.add(sku=f"s{count}", count=4_000_000_000 + count)
        values.append(write(message, value_of(name)))
    broker.produce(name, [(0, None, value) for value in values])
    broker.produce(name, [(0, None, values[0][:6] + b"\xff\xff")])
    view = TableView(sql, f"{name}.orders")
    with running(worker, name, native(sql, name, "protobuf", registry.confluent, dead)):
        view.wait_rows(100, 60)
        letters = broker.read(dead, 1, 30)
    assert [code for code, _ in codes(letters)] == ["DECODE_MALFORMED"]
    rows = view.query("SELECT id, home, lines FROM {t} ORDER BY id")
    lines = [[{"sku": f"s{count}", "count": 4_000_000_000 + count} for count in range(n % 3)] for n in range(100)]
    homes = [{"city": f"Köln {n}"} if n % 2 == 0 else None for n in range(100)]
    assert rows == list(zip(range(100), homes, lines, strict=True))

    # A message inside of another one, by its indexes, into a table of its own.
    nested = f"{name}_line"
    broker.create_topic(nested)
    write = ProtobufSerializer(Line, client(registry), {"use.deprecated.format": False})
    value = write(Line(sku="only", count=3), value_of(nested))
    assert value[5:8] == bytes([4, 2, 2]), "two indexes, 1 and 1"
    broker.produce(nested, [(0, None, value)])
    config = native(sql, nested, "protobuf", registry.confluent, dead)
    with running(worker, nested, config):
        TableView(sql, f"{nested}.orders").wait_rows(1, 60)
    assert TableView(sql, f"{nested}.orders").query("SELECT sku, count FROM {t}") == [("only", 3)]


JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "customer": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "amount": {"type": "number"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
    },
    "required": ["id"],
}


# Promise: JSON of Confluent's serializer lands by its JSON Schema, and keys of Avro beside it
def test_json_schema_and_keys_land(worker, broker, sql, name, registry, dead):
    known = client(registry)
    write = JSONSerializer(json.dumps(JSON_SCHEMA), known)
    key = {"type": "record", "name": "Key", "fields": [{"name": "tenant", "type": "string"}]}
    write_key = AvroSerializer(known, json.dumps(key))
    records = []
    for number in range(60):
        value = {"id": number, "amount": number + 0.25, "lines": [{"sku": f"s{number}"}]}
        if number % 2:
            value["customer"] = f"Zoë {number}"
        tenant = write_key({"tenant": f"t{number % 2}"}, SerializationContext(name, MessageField.KEY))
        records.append((0, tenant, write(value, value_of(name))))
    wrong = records[0][2].replace(b'"id":0', b'"id":"top-secret-value"')
    assert wrong != records[0][2]
    broker.produce(name, [*records, (0, records[0][1], wrong)])
    view = TableView(sql, f"{name}.orders")
    config = native(
        sql,
        name,
        "json-schema",
        registry.confluent,
        dead,
        key__converter=BYTES,
        frazil__key__format="avro",
        iceberg__tables__metadata_columns="_key",
    )
    with running(worker, name, config):
        view.wait_rows(60, 60)
        letters = broker.read(dead, 1, 30)
    assert codes(letters) == [("DECODE_TYPE_MISMATCH", 60)]
    assert [letter.value() for letter in letters] == [wrong]
    assert "top-secret-value" not in worker.log()
    rows = view.query("SELECT id, customer, amount, lines, _key FROM {t} ORDER BY id")
    assert [row[:4] for row in rows] == [
        (n, f"Zoë {n}" if n % 2 else None, n + 0.25, [{"sku": f"s{n}"}]) for n in range(60)
    ]
    assert [json.loads(row[4]) for row in rows] == [{"tenant": f"t{n % 2}"} for n in range(60)]


# Promise: Avro schemas that use others of the registry by name are put together
def test_schemas_refer_to_others(worker, broker, sql, name, registry, dead):
    known = client(registry)
    city = {"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "name", "type": "string"}]}
    address = {
        "type": "record",
        "name": "Address",
        "namespace": "geo",
        "fields": [{"name": "city", "type": "geo.City"}],
    }
    user = {
        "type": "record",
        "name": "User",
        "fields": [{"name": "id", "type": "long"}, {"name": "home", "type": "geo.Address"}],
    }
    known.register_schema(f"{name}-city", Schema(json.dumps(city), "AVRO"))
    by_city = SchemaReference("geo.City", f"{name}-city", 1)
    known.register_schema(f"{name}-address", Schema(json.dumps(address), "AVRO", [by_city]))
    by_address = SchemaReference("geo.Address", f"{name}-address", 1)
    write = AvroSerializer(known, Schema(json.dumps(user), "AVRO", [by_address]))
    value = write({"id": 1, "home": {"city": {"name": "Köln"}}}, value_of(name))
    broker.produce(name, [(0, None, value)])
    view = TableView(sql, f"{name}.orders")
    with running(worker, name, native(sql, name, "avro", registry.confluent, dead)):
        view.wait_rows(1, 60)
    assert view.query("SELECT id, home FROM {t}") == [(1, {"city": {"name": "Köln"}})]


def memory(pid: int) -> int:
    """Resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) << 10


# Promise: A registry that goes away stops nothing but the records that need it: their task waits with its consumer paused, memory stays, and all land once it is back
def test_a_registry_outage_is_waited_for(worker, broker, sql, name, registry, dead):
    known = client(registry)
    proxy = Proxy(registry.port).start()
    write = AvroSerializer(known, json.dumps(ORDER))
    broker.produce(name, [(0, None, write(order(number), value_of(name))) for number in range(100)])
    view = TableView(sql, f"{name}.orders")
    url = f"{proxy.uri}/apis/ccompat/v7"
    try:
        with running(worker, name, native(sql, name, "avro", url, dead)):
            view.wait_rows(100, 60)
            proxy.rule(refuse(503))
            # What is known goes on landing.
            broker.produce(name, [(0, None, write(order(100), value_of(name)))])
            view.wait_rows(101, 60)
            wider = AvroSerializer(known, json.dumps(WIDER))
            late = [wider(order(number, note="x" * 1000), value_of(name)) for number in range(101, 20_101)]
            before = memory(worker.process.pid)
            broker.produce(name, [(0, None, value) for value in late])
            asked = proxy.count("GET", "/schemas/ids/")
            wait_until("tries", lambda: proxy.count("GET", "/schemas/ids/") > asked + 3, 60)
            time.sleep(5)
            assert memory(worker.process.pid) - before < 96 << 20
            assert worker.task_states(name) == ["RUNNING"]
            assert view.rows() == 101
            # A task that waits is no member that Kafka gives up.
            assert broker.members(f"connect-{name}") == 1
            proxy.clear()
            view.wait_rows(20_101, 120)
            wait_until("the offsets", lambda: view.offsets() == {name: [20_101]}, 30)
            assert worker.task_states(name) == ["RUNNING"]
    finally:
        proxy.stop()
    assert view.query("SELECT count(DISTINCT id), count(note) FROM {t}") == [(20_101, 20_000)]
    assert broker.read(dead, 1, 2) == []
    assert "REGISTRY_UNAVAILABLE" in worker.log()


def wants(expected: str):
    """Lets requests pass that have this `Authorization`."""

    def act(asked, forward):
        given = {header.lower(): value for header, value in asked.headers}.get("authorization")
        return forward(asked) if given == expected else error(401)

    return act


# Promise: A registry's login is sent as a user or as a token; one that it refuses is named by validate on its own key, and shown nowhere
@pytest.mark.parametrize(
    ("key", "right", "sent"),
    [
        (
            "basic__auth__user__info",
            "me:s3cret-password",
            "Basic " + base64.b64encode(b"me:s3cret-password").decode(),
        ),
        ("bearer__auth__token", "s3cret-token", "Bearer s3cret-token"),
    ],
)
def test_a_registry_wants_a_login(worker, broker, sql, name, registry, dead, key, right, sent):
    proxy = Proxy(registry.port).start()
    proxy.rule(wants(sent))
    write = AvroSerializer(client(registry), json.dumps(ORDER))
    broker.produce(name, [(0, None, write(order(1), value_of(name)))])
    login = f"frazil__schema__registry__{key}"
    url = f"{proxy.uri}/apis/ccompat/v7"
    view = TableView(sql, f"{name}.orders")
    try:
        wrong = native(sql, name, "avro", url, dead, **{login: right.replace("s3cret", "top-secret-value")})
        errors = worker.validate({"name": name, **wrong})
        assert len(errors) == 1 and "REGISTRY_UNAUTHORIZED" in str(errors)
        assert "top-secret-value" not in str(errors)
        with running(worker, name, native(sql, name, "avro", url, dead, **{login: right})):
            view.wait_rows(1, 60)
    finally:
        proxy.stop()
    assert "s3cret" not in worker.log() and "top-secret-value" not in worker.log()


def certificates(folder: Path) -> tuple[Path, Path]:
    """Makes an authority and a certificate of it for 127.0.0.1; the latter with its key."""
    folder.mkdir()

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    openssl(*new, "-x509", "-days", "2", "-subj", "/CN=bed authority", "-keyout", "ca.key", "-out", "ca.pem")
    openssl(*new, "-subj", "/CN=127.0.0.1", "-keyout", "own.key", "-out", "own.csr")
    (folder / "extra").write_text("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
    signed = ("x509", "-req", "-in", "own.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial")
    openssl(*signed, "-days", "2", "-extfile", "extra", "-out", "own.crt")
    both = folder / "own.pem"
    both.write_text((folder / "own.crt").read_text() + (folder / "own.key").read_text())
    return folder / "ca.pem", both


# Promise: A registry behind TLS is trusted by the authority that the configuration names and by no other, and knows the worker by its certificate where it asks for one
def test_a_registry_speaks_tls(worker, broker, sql, name, registry, dead, scratch):
    authority, own = certificates(scratch / f"{name}-tls")
    other, _ = certificates(scratch / f"{name}-other")
    proxy = Proxy(registry.port, certificate=own).start()
    write = AvroSerializer(client(registry), json.dumps(ORDER))
    broker.produce(name, [(0, None, write(order(1), value_of(name)))])
    url = f"{proxy.uri}/apis/ccompat/v7"
    truststore = "frazil__schema__registry__ssl__truststore__location"
    keystore = "frazil__schema__registry__ssl__keystore__location"
    view = TableView(sql, f"{name}.orders")

    def refused(**overrides: str) -> str:
        errors = worker.validate({"name": name, **native(sql, name, "avro", url, dead, **overrides)})
        assert len(errors) == 1, errors
        return str(errors)

    try:
        for wrong in ({}, {truststore: str(other)}):
            said = refused(**wrong)
            assert "ssl.truststore.location" in said and "invalid peer certificate" in said
        trusting = {truststore: str(authority)}
        assert worker.validate({"name": name, **native(sql, name, "avro", url, dead, **trusting)}) == {}
        proxy.ask_for_certificates(authority)
        assert "REGISTRY_UNAVAILABLE" in refused(**trusting)
        known = {**trusting, keystore: str(own)}
        with running(worker, name, native(sql, name, "avro", url, dead, **known)):
            view.wait_rows(1, 60)
    finally:
        proxy.stop()


SHOP_ORDER = {
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


# Promise: Avro orders with a registry become a table of their newest state by `connector-config/orders-upsert.json`: an update that moves an order over midnight leaves one row, in the new day, and a record without a value leaves none
def test_orders_are_upserted_as_shipped(worker, broker, weed, name, registry):
    connector, config = configuration("orders-upsert.json", weed, REGISTRY_URL=registry.confluent)
    # Only names of its own, since all tests share the bed, and no two minutes of waiting.
    table, topic = f"{name}.orders", f"{name}.v1"
    config = {key.replace("shop.orders", table): value for key, value in config.items()}
    config |= {"topics": topic, "iceberg.tables": table, "iceberg.control.commit.interval-ms": "1000"}
    write = AvroSerializer(client(registry), json.dumps(SHOP_ORDER))
    midnight = 1_764_547_200_000_000

    def sent(number: int, status: str, since_midnight: int) -> tuple[int, bytes, bytes]:
        order = {
            "order_id": f"o-{number}",
            "status": status,
            "amount": decimal.Decimal(number) / 100,
            "event_ts": midnight + since_midnight,
        }
        return number % 4, order["order_id"].encode(), write(order, value_of(topic))

    broker.create_topic(topic, 4)
    broker.produce(topic, [sent(number, "new", -1_000_000) for number in range(100)])
    view = TableView(weed, table)
    asked = "SELECT count(*), count(DISTINCT order_id), count(*) FILTER (status = 'paid') FROM {t}"
    with running(worker, connector, config, 2):
        view.wait_rows(100, 60)
        broker.produce(topic, [sent(number, "paid", 1_000_000) for number in range(0, 100, 2)])
        wait_until("the payments", lambda: view.query(asked) == [(100, 100, 50)], 60, 0.5)
        broker.produce(topic, [(number % 4, f"o-{number}".encode(), None) for number in range(0, 100, 4)])
        wait_until("the deletions", lambda: view.query(asked) == [(75, 75, 25)], 60, 0.5)
    by_day = "SELECT event_ts::DATE::VARCHAR, status, count(*), sum(amount)::VARCHAR FROM {t} GROUP BY ALL ORDER BY 1"
    open_cents, paid_cents = sum(range(1, 100, 2)), sum(range(2, 100, 4))
    assert view.query(by_day) == [
        ("2025-11-30", "new", 50, f"{open_cents / 100:.2f}"),
        ("2025-12-01", "paid", 25, f"{paid_cents / 100:.2f}"),
    ]
    files = pyiceberg_table(view).inspect.files().to_pylist()
    days = {str(file["partition"]["event_ts_day"]) for file in files if file["content"] == 0}
    assert days == {"2025-11-30", "2025-12-01"}
    assert all(file["content"] != 2 for file in files), "an equality delete"
