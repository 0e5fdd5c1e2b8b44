"""Metrics of a running connector, read over JMX, and the events of its commits."""

from __future__ import annotations

import json
import math
import re
import time

from bed.artifacts import ROOT
from bed.catalogs import SqlCatalog
from bed.metrics import Metrics, exported, named
from bed.process import wait_until
from bed.read import TableView
from bed.sink import ENVELOPE, envelope, running, sink

FIELDS = [
    {"field": "id", "type": "int64", "optional": False},
    {"field": "small", "type": "int32", "optional": True},
]
WRONG = [FIELDS[0], {"field": "small", "type": "string", "optional": True}]
SECRET = "top-secret-value"


def events(worker, table: str) -> list[dict]:
    """Returns the commit events of a table that the worker has logged."""
    lines = re.findall(r'INFO \[[^\n]*\] events (\{"[^\n]*\})', worker.log())
    return [event for event in map(json.loads, lines) if event["table"] == table]


def tolerant(broker, catalog, name: str) -> dict[str, str]:
    """A sink whose records that do not fit go to a dead letter queue."""
    broker.create_topic(f"{name}_dead")
    return sink(
        catalog,
        name,
        f"{name}.orders",
        errors__tolerance="all",
        errors__deadletterqueue__topic__name=f"{name}_dead",
        errors__deadletterqueue__topic__replication__factor="1",
        **ENVELOPE,
    )


# Complaint: 22
# Promise: MBeans show what each worker, connector, task and table does, from the start of a task to its end, and one JSON line tells of each commit, without a record's value
def test_metrics_tell_what_a_connector_does(worker, broker, scratch, name):
    catalog = SqlCatalog(scratch / name)
    broker.create_topic(name)
    good = [envelope(FIELDS, {"id": n, "small": n}) for n in range(10)]
    bad = [envelope(WRONG, {"id": n, "small": SECRET}) for n in range(10, 13)]
    broker.produce(name, [(0, None, value) for value in [*good, *bad]])
    task = f"type=sink-task-metrics,connector={name},task=0"
    table = f"type=sink-table-metrics,connector={name},table={name}.orders"
    connector = f"type=sink-connector-metrics,connector={name}"
    of_code = f"type=sink-rejection-metrics,connector={name},task=0,code="
    with Metrics(worker.process.pid) as metrics:
        with running(worker, name, tolerant(broker, catalog, name)):
            read = metrics.wait(
                "the rows in the metrics",
                lambda read: read[table]["rows-committed-total"] >= 10
                and read[task]["lag-offsets"] == 0
                and read[task]["records-received-total"] >= 13,
            )
            view = TableView(catalog, f"{name}.orders")
            assert view.rows() == 10
            assert read[table]["rows-committed-total"] == 10
            assert read[table]["rows-written-total"] == 10
            assert read[table]["commits-total"] == len(view.metadata()["snapshots"])
            last = view.metadata()["current-snapshot-id"]
            assert read[table]["last-snapshot-id"] == float(last)
            assert read[table]["created-total"] == 1
            assert read[table]["bytes-committed-total"] > 0
            assert read[task]["records-received-total"] == 13
            assert read[task]["partitions"] == 1
            assert math.isnan(read[table]["lag-ms"]) and math.isnan(read[task]["lag-ms"])
            for code in ("all", "VALUE_MALFORMED"):
                assert read[of_code + code]["records-reported-total"] == 3
            assert read[connector]["coordinator"] == 1
            assert read[connector]["catalog-requests-total"] > 0
            assert read[connector]["catalog-commits-total"] >= 1
            memory = read["type=sink-worker-metrics"]
            assert 0 < memory["memory-peak-bytes"] <= memory["memory-limit-bytes"]
            assert memory["store-requests-total"] > 0 and memory["store-sent-bytes-total"] > 0
            told = wait_until("an event", lambda: events(worker, f"{name}.orders"), 60)
            assert sum(event["rows"] for event in told) == 10
            assert told[-1]["snapshot_id"] == last and told[-1]["connector"] == name
            assert told[-1]["ms"]["all"] >= told[-1]["ms"]["submit"] >= 0
            assert SECRET not in json.dumps(told)
        metrics.wait(
            "the MBeans of the connector to go",
            lambda read: not any(f"connector={name}," in f"{bean}," for bean in read),
        )


# Promise: freshness in the metrics equals what the table's snapshot says, and the lag of rows that cannot be committed grows until they are
def test_freshness_and_lag_equal_the_truth(worker, broker, scratch, name):
    catalog = SqlCatalog(scratch / name)
    broker.create_topic(name)
    table = f"type=sink-table-metrics,connector={name},table={name}.orders"
    slow = sink(catalog, name, f"{name}.orders", **ENVELOPE)
    slow["iceberg.control.commit.interval-ms"] = "3600000"
    slow[f"iceberg.table.{name}.orders.commit-rows"] = "2"
    with Metrics(worker.process.pid) as metrics, running(worker, name, slow):
        broker.produce(name, [(0, None, envelope(FIELDS, {"id": 1, "small": 1}))])
        waits = metrics.wait("a row that waits", lambda read: read[table]["open-rows"] == 1)
        assert waits[table]["lag-offsets"] == 1
        first = waits[table]["lag-ms"]
        metrics.wait("an older row", lambda read: read[table]["lag-ms"] >= first + 2_000)
        assert waits[table]["commits-total"] == 0
        broker.produce(name, [(0, None, envelope(FIELDS, {"id": 2, "small": 2}))])
        metrics.wait(
            "the commit",
            lambda read: read[table]["commits-total"] >= 1 and read[table]["open-rows"] == 0,
        )
        summary = TableView(catalog, f"{name}.orders").metadata()["snapshots"][-1]["summary"]
        before = time.time() * 1000
        shown = metrics.read()[table]["freshness-ms"]
        after = time.time() * 1000
        truth = int(summary["frazil.valid-through-ms"])
        assert before - truth - 1_000 <= shown <= after - truth + 1_000


# Promise: every metric that the shipped alerts and dashboard name is one that the shipped exporter rules make
def test_monitoring_names_only_metrics_that_exist(worker, broker, scratch, name):
    catalog = SqlCatalog(scratch / name)
    broker.create_topic(name)
    with Metrics(worker.process.pid) as metrics:
        with running(worker, name, tolerant(broker, catalog, name)):
            families = ("worker", "connector", "task", "table", "rejection")
            read = metrics.wait(
                "all families",
                lambda read: all(
                    any(bean.startswith(f"type=sink-{family}-metrics") for bean in read)
                    for family in families
                ),
            )
    exist = exported(read)
    for file in ("alerts.yml", "dashboard.json"):
        used = named(file)
        assert len(used) > 10 and used <= exist, f"{file}: {sorted(used - exist)}"
    documented = (ROOT / "docs" / "metrics.md").read_text()
    attributes = set(re.findall(r"^\| `([a-z0-9-]+)` \| (?:total|time|gauge|since) ", documented, re.M))
    assert attributes == {attribute for bean in read.values() for attribute in bean}
    panels = json.loads((ROOT / "monitoring" / "dashboard.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 20
