"""Partitioning, order and columns of tables, from the configuration of a running connector."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog

from bed.process import wait_until
from bed.read import TableView, ask_java, Question, local, pyiceberg_table
from bed.sink import ENVELOPE, envelope, running, sink, verify


def orders(first: int, end: int) -> list[dict]:
    return [{"id": n, "city": f"c{n % 5}", "total": (n * 7919) % 1000} for n in range(first, end)]


# Promise: a connector whose `partition-by` was changed changes the partitioning of its table when
# the policy is `evolve`, with two tasks at once; each record is there once, and readers prune by
# both
# Complaint: 55
def test_partitioning_follows_the_configuration(worker, broker, rest, name):
    broker.create_topic(name, 2)
    view = TableView(rest, f"{name}.t")
    config = sink(
        rest,
        name,
        f"{name}.t",
        tasks__max="2",
        iceberg__tables__metadata_columns="_topic,_partition,_offset",
        iceberg__tables__default_partition_by="bucket(4, id)",
    )
    broker.produce_json(name, orders(0, 200), lambda index: index % 2)
    with running(worker, name, config, 2):
        view.wait_rows(200, 90)
    config["iceberg.tables.default-partition-by"] = "city,bucket(id, 8)"
    config["iceberg.tables.partition-spec-policy"] = "evolve"
    with running(worker, name, config, 2):
        broker.produce_json(name, orders(200, 400), lambda index: index % 2)
        view.wait_rows(400, 90)
    metadata = view.metadata()
    assert [
        [(field["name"], field["transform"]) for field in spec["fields"]]
        for spec in metadata["partition-specs"]
    ] == [[("id_bucket", "bucket[4]")], [("city", "identity"), ("id_bucket_8", "bucket[8]")]]
    assert metadata["default-spec-id"] == 1
    checked = verify(rest, f"{name}.t", {(name, 0): 200, (name, 1): 200})
    assert checked.returncode == 0, checked.stdout + checked.stderr
    by_city = {"type": "eq", "term": "city", "value": "c3"}
    everything, planned, rows = ask_java(
        [
            Question(view.location(), "files"),
            Question(view.location(), "files", by_city),
            Question(view.location(), "rows", by_city),
        ]
    )
    assert len(planned) < len(everything), "files of the new spec are left out"
    assert sorted(int(row["id"]) for row in rows) == [n for n in range(400) if n % 5 == 3]
    found = pyiceberg_table(view).scan(row_filter="city = 'c3'").to_arrow()
    assert found.num_rows == 80


# Promise: data files of a table with `sort-by` are sorted, and say so; identifier fields, comment and
# properties are those of the configuration
# Complaint: 18, 51
def test_a_created_table_is_sorted_and_identified(worker, broker, rest, name):
    broker.create_topic(name)
    broker.produce_json(name, orders(0, 3000))
    view = TableView(rest, f"{name}.t")
    own = f"iceberg.table.{name}.t"
    config = sink(rest, name, f"{name}.t", iceberg__control__commit__interval_ms="3000") | {
        f"{own}.sort-by": "total desc, id",
        f"{own}.id-columns": "id",
        f"{own}.comment": "orders of the shop",
        f"{own}.auto-create-props.tag.team": "shop",
        f"{own}.location": f"{rest.warehouse}/placed/{name}",
    }
    with running(worker, name, config):
        view.wait_rows(3000, 90)
    metadata = view.metadata()
    assert metadata["location"] == f"{rest.warehouse}/placed/{name}"
    assert metadata["properties"]["comment"] == "orders of the shop"
    assert metadata["properties"]["tag.team"] == "shop"
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    required = {field["name"]: field["required"] for field in schema["fields"]}
    assert required["id"] and not required["city"]
    assert schema["identifier-field-ids"] == [
        field["id"] for field in schema["fields"] if field["name"] == "id"
    ]
    table = load_catalog("layout", type="rest", uri=rest.uri).load_table(f"{name}.t")
    files = table.inspect.files().to_pylist()
    assert files and {file["sort_order_id"] for file in files} == {1}
    for file in files:
        read = pq.read_table(local(file["file_path"])).to_pylist()
        keys = [(-row["total"], row["id"]) for row in read]
        assert keys == sorted(keys)


# Promise: an id column that a table does not have is an error at `validate` and at the start (T12)
# Complaint: 17
def test_an_unknown_id_column_is_an_error_at_validate(worker, broker, rest, name):
    broker.create_topic(name)
    broker.produce_json(name, orders(0, 3))
    view = TableView(rest, f"{name}.t")
    config = sink(rest, name, f"{name}.t")
    with running(worker, name, config):
        view.wait_rows(3, 60)
    ids = f"iceberg.table.{name}.t.id-columns"
    config["name"] = name
    messages = worker.validate(config | {ids: "nope"})
    assert list(messages) == [ids], messages
    (text,) = messages[ids]
    assert "`nope`" in text and f"{name}.t" in text, messages
    # And what the Apache sink makes an unpartitioned table of is understood or refused (T18).
    partition = f"iceberg.table.{name}.t.partition-by"
    assert not any(worker.validate(config | {partition: "bucket(4, id)"}).values())
    messages = worker.validate(config | {partition: "bucket[4](id)"})
    assert any("did you mean `bucket(id, 4)`" in text for text in messages[partition]), messages


SALT = "this salt is a secret of the test"
PEOPLE = [
    {"field": "id", "type": "int64", "optional": False},
    {"field": "email", "type": "string", "optional": True},
    {"field": "password", "type": "string", "optional": True},
    {"field": "small", "type": "int32", "optional": True},
    {
        "field": "home",
        "type": "struct",
        "optional": True,
        "fields": [
            {"field": "city", "type": "string", "optional": True},
            {"field": "street", "type": "string", "optional": True},
        ],
    },
]


def person(number: int, **more) -> dict:
    home = {"city": "London", "street": f"hidden street {number}"}
    return {
        "id": number,
        "email": f"someone-{number}@example.org",
        "password": f"hunter-{number}",
        "small": number,
        "home": home,
    } | more


def digest(text: str) -> str:
    return hashlib.sha256(f"{SALT}{text}".encode()).hexdigest()


# Promise: a column that is left out or hashed is in no data file, no metadata, no log and no message;
# the salt is not shown by Connect's REST
def test_columns_are_left_out_and_hashed_everywhere(worker, broker, rest, name):
    broker.create_topic(name)
    dead = f"{name}_dead"
    broker.create_topic(dead)
    wrong = [field | {"type": "string"} if field["field"] == "small" else field for field in PEOPLE]
    records = [envelope(PEOPLE, person(n)) for n in range(50)]
    records.append(envelope(wrong, person(50, small="no number")))
    broker.produce(name, [(0, None, record) for record in records])
    own = f"iceberg.table.{name}.t.columns"
    config = sink(
        rest,
        name,
        f"{name}.t",
        iceberg__tables__evolve_schema_enabled="true",
        errors__tolerance="all",
        errors__deadletterqueue__topic__name=dead,
        errors__deadletterqueue__topic__replication__factor="1",
        errors__deadletterqueue__context__headers__enable="true",
        **ENVELOPE,
    ) | {
        f"{own}.exclude": "password,home.street",
        f"{own}.hash": "email,id",
        f"{own}.hash-salt": SALT,
        # So that what is in a file can be seen in its bytes.
        "iceberg.tables.write-props.write.parquet.compression-codec": "uncompressed",
    }
    view = TableView(rest, f"{name}.t")
    with running(worker, name, config):
        view.wait_rows(50, 90)
        wait_until("the offsets", lambda: view.offsets() == {name: [51]}, 30)
        answer = json.dumps(worker.call("PUT", _validate(config), config))
        assert SALT not in answer and "[hidden]" in answer
    found = dict(view.query("SELECT id, email FROM {t}"))
    assert found == {digest(str(n)): digest(f"someone-{n}@example.org") for n in range(50)}
    assert view.query("SELECT DISTINCT home FROM {t}") == [({"city": "London"},)]
    columns = [column for (column, *_) in view.query("DESCRIBE SELECT * FROM {t}")]
    assert columns == ["id", "email", "small", "home"]
    # Connect's dead letter is the whole record; its headers have no value.
    (letter,) = broker.read(dead, 2, 5)
    assert json.loads(letter.value())["payload"]["password"] == "hunter-50"
    headers = b" ".join(value for _, value in letter.headers() or [] if value)
    assert b"small" in headers
    table = load_catalog("layout", type="rest", uri=rest.uri).load_table(f"{name}.t")
    described = repr(table.inspect.files().to_pylist())
    assert digest("7") in repr(view.query("SELECT id FROM {t}"))
    folder = Path(local(view.metadata()["location"]))
    assert digest("7").encode() in b"".join(f.read_bytes() for f in folder.rglob("*.parquet"))
    for secret in (b"hunter-", b"hidden street", b"@example.org", SALT.encode()):
        assert secret not in headers
        assert secret.decode() not in described
        assert secret.decode() not in worker.log()
        for file in folder.rglob("*"):
            assert not file.is_file() or secret not in file.read_bytes(), file


def _validate(config: dict[str, str]) -> str:
    return f"/connector-plugins/{config['connector.class']}/config/validate"
