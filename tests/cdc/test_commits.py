"""Changes whose commit is late: what is committed together then, and what others did in between."""

from __future__ import annotations

from typing import Iterator

import pytest
from checks import check_deletes
from records import Writer
from stage import FIELDS

from bed import foreign
from bed.exactly import pause_for
from bed.debezium import JSON
from bed.process import wait_until
from bed.proxy import Hold, Proxied, refuse
from bed.read import TableView, read_with_java
from bed.sink import running, sink

WRITER = Writer(FIELDS, ("id",), schemas=True, name="commits")

pytestmark = pytest.mark.long


@pytest.fixture
def proxied(rest) -> Iterator[Proxied]:
    made = Proxied(rest, rest.port)
    yield made
    made.proxy.stop()


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def flow(request, worker, broker, proxied, name) -> Iterator[Flow]:
    broker.create_topic(name)
    made = Flow(broker, proxied.direct, name)
    config = sink(
        proxied,
        name,
        f"{name}.t",
        iceberg__tables__default_mode="upsert",
        iceberg__tables__default_id_columns="id",
        iceberg__tables__auto_create_props__format_version=str(request.param),
    )
    config |= {"key.converter": JSON, "value.converter": JSON}
    config |= {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
    with running(worker, name, config):
        yield made
    check_deletes(made.view)


class Flow:
    """Upserts and deletes of one table."""

    def __init__(self, broker, catalog, name: str) -> None:
        self.broker, self.catalog, self.name = broker, catalog, name
        self.view = TableView(catalog, f"{name}.t")

    def send(self, **rows: str | None) -> None:
        """Sends rows by their ids, as `k7`; None deletes one."""
        records = []
        for key, v in rows.items():
            row = {column: None for column, *_ in FIELDS} | {"id": int(key[1:]), "v": v}
            records.append((0, WRITER.key_bytes(row), None if v is None else WRITER.row(row)))
        self.broker.produce(self.name, records)

    def rows(self) -> dict[int, str]:
        if self.view.location() is None or not self.view.metadata().get("snapshots"):
            return {}
        found = self.view.query("SELECT id, v FROM {t}")
        assert len(dict(found)) == len(found), f"a key is there twice: {found}"
        return dict(found)

    def wait(self, rows: dict[int, str]) -> None:
        wait_until(f"{rows}", lambda: self.rows() == rows, 60, 0.3)


# Promise (long): changes of one key that wait in three segments, because nothing can be committed, leave
# the last
# Injection: 63
def test_three_segments_of_one_key_are_committed_at_once(flow, proxied):
    flow.send(k1="a", k2="a", k3="a")
    flow.wait({1: "a", 2: "a", 3: "a"})
    refused = proxied.proxy.on_commit(refuse(503))
    for v in ("b", "c", "d"):
        flow.send(k1=v, k2=None if v == "c" else v)
        pause_for(1.5)
    flow.send(k2=None, k3=None)
    refused.wait_met()
    assert flow.rows() == {1: "a", 2: "a", 3: "a"}
    proxied.proxy.clear()
    flow.wait({1: "d"})
    rows = read_with_java(flow.view.location(), "rows")
    assert [(row["id"], row["v"]) for row in rows] == [("1", "d")]


# Promise (long): a compaction of another writer, between the moment where the rows to delete were looked up
# and the commit, brings no row back and lets no row vanish
# Injection: 64
# Case: 43
def test_a_compaction_replaces_files_that_pending_deletes_name(flow, proxied):
    flow.send(**{f"k{number}": "a" for number in range(6)})
    flow.wait(dict.fromkeys(range(6), "a"))
    flow.send(k6="a", k0="b")
    flow.wait({0: "b", **dict.fromkeys(range(1, 7), "a")})
    hold = Hold(before=True)
    proxied.proxy.on_commit(hold, count=1)
    flow.send(k1=None, k2="b", k6=None, k7="a")
    hold.wait_held()
    foreign.change_with_java(
        flow.catalog, [["compact", flow.view.namespace + ".t"], ["delete", f"{flow.name}.t", "id", "3"]]
    )
    assert hold.wait_answers() == [409]
    flow.wait({0: "b", 2: "b", 4: "a", 5: "a", 7: "a"})
    rows = read_with_java(flow.view.location(), "rows")
    assert sorted(int(row["id"]) for row in rows) == [0, 2, 4, 5, 7]
