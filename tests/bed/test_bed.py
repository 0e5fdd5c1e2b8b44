"""The bed itself works, with no plugin of ours in it."""

from __future__ import annotations

import json
import re

import boto3
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitStateUnknownException, ServiceUnavailableError

from bed import data, foreign
from bed.artifacts import WORKER_VERSIONS
from bed.connect import start_cluster
from bed.process import wait_until
from bed.read import TableView, connect_duckdb, pyiceberg_table, read_with_java

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "s": ["a", None, "tab\there"]})


def append(properties: dict[str, str], name: str) -> None:
    """Makes a table with three rows, by pyiceberg."""
    catalog = load_catalog("bed", **properties)
    catalog.create_namespace_if_not_exists(name.split(".")[0])
    catalog.create_table(name, ROWS.schema).append(ROWS)


def test_the_broker_keeps_what_was_produced(broker, name):
    broker.create_topic(name, 2)
    ends = broker.produce_json(name, data.orders(100), lambda index: index % 2)
    assert ends == [50, 50]
    values = [json.loads(message.value()) for message in broker.read(name, 100)]
    assert sorted(values, key=lambda order: order["id"]) == list(data.orders(100))


@pytest.mark.parametrize("version", WORKER_VERSIONS)
def test_a_worker_of_each_version_starts_and_stops(make_worker, version):
    worker = make_worker(version, plugin="none").start()
    assert worker.call("GET", "/")["version"] == version
    worker.stop()
    assert not worker.process.running()


def test_two_workers_with_one_group_are_one_cluster(make_worker):
    workers = start_cluster(make_worker, 2, plugin="none", heap="256m")

    def leaders() -> list[str]:
        """The leader that each worker has heard of last."""
        found = (re.findall(r"leaderUrl='(http://[^']+)'", worker.log()) for worker in workers)
        return [urls[-1] for urls in found if urls]

    def agreed() -> bool:
        return len(leaders()) == 2 and len(set(leaders())) == 1

    wait_until("both workers to follow one leader", agreed, 60)
    assert leaders()[0].rstrip("/") in {f"http://{worker.worker_id}" for worker in workers}
    assert workers[0].worker_id != workers[1].worker_id
    for worker in workers:
        worker.stop()


def test_three_readers_agree_on_a_table_of_the_reference_catalog(rest, name):
    append({"type": "rest", "uri": rest.uri}, f"{name}.t")
    view = TableView(rest, f"{name}.t")
    expected = [(1, "a"), (2, None), (3, "tab\there")]
    assert view.query("SELECT id, s FROM {t} ORDER BY id") == expected
    assert pyiceberg_table(view).scan().to_arrow().to_pydict() == ROWS.to_pydict()
    rows = read_with_java(view.location(), "rows")
    assert [(int(row["id"]), row["s"]) for row in rows] == expected
    files = read_with_java(view.location(), "files", {"type": "gt", "term": "id", "value": 2})
    assert [(f["rows"], f["id.lower"], f["id.upper"], f["s.nulls"]) for f in files] == [
        ("3", "1", "3", "1")
    ]
    assert not read_with_java(view.location(), "files", {"type": "gt", "term": "id", "value": 3})


def test_the_reference_catalog_injects_each_fault(rest, name):
    append({"type": "rest", "uri": rest.uri}, f"{name}.t")
    view = TableView(rest, f"{name}.t")
    table = load_catalog("bed", type="rest", uri=rest.uri).load_table(f"{name}.t")
    rest.fault("before", 1)
    with pytest.raises(ServiceUnavailableError):
        table.append(ROWS)
    assert view.rows() == 3
    rest.fault("after", 1)
    with pytest.raises(CommitStateUnknownException):
        table.append(ROWS)
    assert view.rows() == 6
    faults = rest.stats()["faults"]
    rest.fault("conflict", 1)
    table.refresh().append(ROWS)
    rest.fault("delay", 1, delay_ms=300)
    table.append(ROWS)
    assert view.rows() == 12
    assert rest.stats()["faults"] == faults + 2


def test_seaweedfs_vends_keys_that_reach_their_own_table_only(weed, name):
    properties = {
        "type": "rest",
        "uri": weed.uri,
        "warehouse": f"s3://{weed.WAREHOUSE}",
        "credential": f"{weed.ACCESS_KEY}:{weed.SECRET_KEY}",
        "scope": "PRINCIPAL_ROLE:ALL",
        "oauth2-server-uri": f"{weed.uri}/v1/oauth/tokens",
        "s3.region": weed.REGION,
        "header.X-Iceberg-Access-Delegation": "vended-credentials",
    }
    append(properties, f"{name}.a")
    append(properties, f"{name}.b")
    assert TableView(weed, f"{name}.a").query("SELECT sum(id) FROM {t}") == [(6,)]
    keys = load_catalog("bed", **properties).load_table(f"{name}.a").io.properties
    client = boto3.client(
        "s3",
        endpoint_url=weed.s3,
        region_name=weed.REGION,
        aws_access_key_id=keys["s3.access-key-id"],
        aws_secret_access_key=keys["s3.secret-access-key"],
        aws_session_token=keys["s3.session-token"],
    )
    put = {"Bucket": weed.WAREHOUSE, "Body": b"x"}
    client.put_object(Key=f"{name}/a/data/x.parquet", **put)
    with pytest.raises(client.exceptions.ClientError, match="AccessDenied"):
        client.put_object(Key=f"{name}/b/data/x.parquet", **put)


@pytest.mark.parametrize("version", [2, 3])
def test_java_appends_deletes_and_compacts(rest, name, version):
    fields = [
        {"name": "id", "type": "long", "required": True},
        {"name": "part", "type": "string", "required": False},
        {"name": "at", "type": "timestamp", "required": False},
    ]
    partitions = [{"name": "part", "source": "part", "transform": "identity"}]
    table, view = f"{name}.t", TableView(rest, f"{name}.t")
    foreign.create_table(rest, table, fields, ["id"], partitions, version)
    rows = [
        foreign.row(id=number, part="ab"[number % 2], at="2026-11-30T00:00:01") for number in range(6)
    ]
    foreign.change_with_java(
        rest,
        [["append", table, *rows], ["compact", table], ["delete", table, "id", "1", "2"]]
        + [["delete", table, "id", "3"]],
    )
    deleted = [(number,) for number in (0, 4, 5)]
    assert view.query("SELECT id FROM {t} ORDER BY id") == deleted
    planned = read_with_java(view.location(), "files")
    assert [(int(file["rows"]), int(file["deletes"])) for file in planned] == [(3, 1), (3, 1)]
    foreign.change_with_java(rest, [["compact", table], ["append", table, foreign.row(id=7)]])
    assert view.query("SELECT id FROM {t} ORDER BY id") == [*deleted, (7,)]
    planned = read_with_java(view.location(), "files")
    counts = sorted((int(file["rows"]), int(file["deletes"])) for file in planned)
    assert counts == [(1, 0), (1, 0), (2, 0)]
    assert len(view.snapshots()) == 6


def test_the_flights_are_all_there_with_their_nulls():
    connection = connect_duckdb()
    counted = "SELECT count(*), count(dep_time), sum(distance) FROM "
    assert connection.execute(counted + data.csv_as_sql("flights")).fetchone() == (
        336776,
        328521,
        350217607,
    )
    first = json.loads(next(data.enveloped("flights", 1)))
    assert first["payload"]["time_hour"] == 1357034400000
    assert first["payload"]["tailnum"] == "N14228"
