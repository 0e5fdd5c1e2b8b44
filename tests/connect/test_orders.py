"""The main job: a topic becomes a table, through each worker that we name."""

from __future__ import annotations

import json
import time

import pytest

from bed import data
from bed.catalogs import SqlCatalog
from bed.read import TableView
from bed.sink import CLASS, running, sink, small_tmp

COLUMNS = "id, customer, amount, quantity, status, express, note"


def expected(count: int) -> list[tuple]:
    return [tuple(order[c] for c in COLUMNS.split(", ")) for order in data.orders(count)]


def land(worker, broker, catalog, name: str, count: int, **overrides: str) -> TableView:
    """Sends orders through a sink of one worker and checks every row."""
    broker.create_topic(name)
    broker.produce_json(name, data.orders(count))
    view = TableView(catalog, f"{name}.orders")
    with running(worker, name, sink(catalog, name, f"{name}.orders", **overrides)):
        view.wait_rows(count, 60)
    assert view.query(f"SELECT {COLUMNS} FROM {{t}} ORDER BY id") == expected(count)
    assert view.offsets() == {name: [count]}
    return view


# Promise: JSON records of a topic are rows that DuckDB reads, each once and unchanged, and their
# offsets are committed with them
def test_orders_become_rows_with_their_offsets(worker, broker, sql, name):
    view = land(worker, broker, sql, name, 5000)
    # Connect's own offsets follow what the table has, and never run ahead of it.
    broker.wait_group_offsets(f"connect-{name}", {(name, 0): 5000})
    assert all("frazil.commit-id" in snapshot["summary"] for snapshot in view.snapshots())


# Promise: a sink that was stopped goes on where the table ends
def test_a_stopped_sink_goes_on_where_the_table_ends(worker, broker, sql, name):
    broker.create_topic(name)
    view = TableView(sql, f"{name}.orders")
    config = sink(sql, name, f"{name}.orders")
    for part in range(3):
        broker.produce_json(name, data.orders(500, part * 500))
        with running(worker, name, config):
            view.wait_rows((part + 1) * 500, 60)
    assert view.query(f"SELECT {COLUMNS} FROM {{t}} ORDER BY id") == expected(1500)
    assert view.offsets() == {name: [1500]}


# Promise: `plugin.discovery=service_load` finds the connector
def test_the_plugin_is_found_by_service_load(worker):
    plugins = worker.call("GET", "/connector-plugins")
    assert [plugin["type"] for plugin in plugins if plugin["class"] == CLASS] == ["sink"]


# Promise: Connect 3.9.1 runs the sink from the unpacked zip, with a temporary folder of 5 MiB
def test_connect_3_runs_the_zip_with_a_tmp_of_5_mib(make_worker, broker, sql, scratch, name):
    with small_tmp(scratch / f"tmp-{name}", "size=5m") as tmp:
        worker = make_worker("3.9.1", plugin="zip", jvm=(f"-Djava.io.tmpdir={tmp}",)).start()
        try:
            land(worker, broker, sql, name, 500)
        finally:
            worker.stop()


# Promise: Connect 4.4.0 runs the sink from the unpacked zip, with a temporary folder that is noexec
# Injection: 70
def test_connect_4_4_runs_the_zip_with_a_noexec_tmp(make_worker, broker, sql, scratch, name):
    with small_tmp(scratch / f"tmp-{name}", "size=64m", "noexec") as tmp:
        worker = make_worker("4.4.0", plugin="zip", jvm=(f"-Djava.io.tmpdir={tmp}",)).start()
        try:
            land(worker, broker, sql, name, 500)
        finally:
            worker.stop()


# Promise: where the lone JAR cannot unpack its library, the error names the places, the reason and
# the remedy, and `frazil.native.dir` is one
@pytest.mark.parametrize("options", [("size=5m",), ("size=64m", "noexec")], ids=["5m", "noexec"])
def test_the_jar_says_why_its_library_does_not_load(
    make_worker, broker, sql, scratch, name, options
):
    with small_tmp(scratch / f"tmp-{name}", *options) as tmp:
        worker = make_worker(plugin="jar", jvm=(f"-Djava.io.tmpdir={tmp}",)).start()
        try:
            errors = json.dumps(worker.validate(sink(sql, name, f"{name}.orders", name=name)))
            reason = "noexec" if "noexec" in options else "space"
            for part in (str(tmp), reason, "frazil.native.dir"):
                assert part in errors, errors
            other = scratch / f"native-{name}"
            other.mkdir()
            land(worker, broker, sql, name, 500, frazil__native__dir=str(other))
            assert not list(other.iterdir()), "the copy of the library is deleted after its load"
        finally:
            worker.stop()


# Promise: the last record of a burst is visible within the commit interval and 2 s, on a worker
# with default settings
def test_the_end_of_a_burst_does_not_wait_for_the_next(worker, broker, sql, name):
    broker.create_topic(name)
    view = TableView(sql, f"{name}.orders")
    with running(worker, name, sink(sql, name, f"{name}.orders")):
        broker.produce_json(name, data.orders(1000))
        view.wait_rows(1000, 30)
        for first in (1000, 2000):
            broker.produce_json(name, data.orders(1000, first))
            sent = time.monotonic()
            view.wait_rows(first + 1000, 30, pause=0.1)
            assert time.monotonic() - sent < 1 + 2


# Promise: a record without a value leaves no row and does not hold up the offsets
def test_tombstones_are_passed_over(worker, broker, name, scratch):
    catalog = SqlCatalog(scratch / name)
    broker.create_topic(name)
    rows = [json.dumps(order).encode() for order in data.orders(3)]
    broker.produce(name, [(0, b"k", value) for value in (rows[0], None, rows[1], None, rows[2])])
    view = TableView(catalog, f"{name}.t")
    with running(worker, name, sink(catalog, name, f"{name}.t")):
        view.wait_rows(3, 60)
    assert view.query("SELECT id FROM {t} ORDER BY id") == [(0,), (1,), (2,)]
    broker.wait_group_offsets(f"connect-{name}", {(name, 0): 5})
