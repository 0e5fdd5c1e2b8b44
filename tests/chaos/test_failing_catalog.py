"""A REST catalog that fails in each way there is while records flow."""

from __future__ import annotations

import pytest
from pyiceberg.catalog import load_catalog

from bed import data
from bed.read import TableView
from bed.sink import running, sink

FAULTS = {
    "before": {"mode": "before", "count": 2},
    "after": {"mode": "after", "count": 2},
    "conflict": {"mode": "conflict", "count": 2},
    "delay": {"mode": "delay", "count": 2, "delay_ms": 4000},
    "any_before": {"mode": "before", "count": 4, "operation": "any"},
}


@pytest.fixture
def failing(rest):
    """The reference catalog, which is sound again when the test ends."""
    yield rest
    rest.fault("none", 0, operation="none")


# Promise: no row is lost or doubled when a REST catalog answers 503 before a commit, 504 after it,
# 409, or late
@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_catalog_loses_and_doubles_nothing(worker, broker, failing, name, fault):
    rest = failing
    broker.create_topic(name, 2)
    view = TableView(rest, f"{name}.t")
    with running(worker, name, sink(rest, name, f"{name}.t", tasks__max="2"), 2):
        broker.produce_json(name, data.orders(500), lambda index: index % 2)
        view.wait_rows(500, 60)
        before = rest.stats()["faults"]
        sent = 500
        for _ in range(2):
            rest.fault(**FAULTS[fault])
            broker.produce_json(name, data.orders(500, sent), lambda index: index % 2)
            sent += 500
            view.wait_rows(sent, 90)
        spent = rest.stats()["faults"] - before
        assert worker.task_states(name) == ["RUNNING", "RUNNING"]
    assert spent >= 2, "the faults were not met"
    asked = "SELECT count(*), count(DISTINCT id), sum(id) FROM {t}"
    assert view.query(asked) == [(sent, sent, sent * (sent - 1) // 2)]
    assert view.offsets() == {name: [sent // 2, sent // 2]}
    commits = [s["summary"]["frazil.commit-id"] for s in view.snapshots()]
    assert len(set(commits)) == len(commits), "a commit was applied twice"


# Promise: a table that another writer changes all the time takes our commits too
def test_a_foreign_writer_is_no_hindrance(worker, broker, rest, name):
    broker.create_topic(name)
    view = TableView(rest, f"{name}.t")
    with running(worker, name, sink(rest, name, f"{name}.t")):
        broker.produce_json(name, data.orders(200))
        view.wait_rows(200, 60)
        other = load_catalog("bed", type="rest", uri=rest.uri).load_table(f"{name}.t")
        one = other.scan(limit=1).to_arrow()
        for turn in range(1, 6):
            broker.produce_json(name, data.orders(200, turn * 200))
            other.refresh().append(one)
        view.wait_rows(1205, 60)
    doubled = 5 * one["id"][0].as_py()
    asked = "SELECT count(DISTINCT id), sum(id) FROM {t}"
    assert view.query(asked) == [(1200, 1200 * 1199 // 2 + doubled)]
