"""Dead letters as a table, and back: docs/cookbook/dead-letters.md, run as it stands."""

from __future__ import annotations

import json
import re

from confluent_kafka import Producer

from bed.artifacts import ROOT
from bed.catalogs import SqlCatalog
from bed.read import TableView
from bed.sink import ENVELOPE, configuration, envelope, running, sink

COOKBOOK = (ROOT / "docs" / "cookbook" / "dead-letters.md").read_text()
FIELDS = [
    {"field": "id", "type": "int64", "optional": False},
    {"field": "small", "type": "int32", "optional": True},
]
WRONG = [FIELDS[0], {"field": "small", "type": "string", "optional": True}]


def block(language: str, having: str) -> str:
    """Returns the code of the cookbook in `language` that has `having` in it."""
    found = re.findall(rf"```{language}\n(.*?)```", COOKBOOK, re.S)
    return next(code for code in found if having in code)


# Promise: dead letters land in a table by the cookbook's connector, its SQL counts them by table, column and code, and its replay brings them back once mended
def test_dead_letters_land_in_a_table_and_come_back(worker, broker, scratch, name):
    catalog = SqlCatalog(scratch / name)
    dead = f"{name}_dead"
    broker.create_topic(name)
    broker.create_topic(dead)
    good = [envelope(FIELDS, {"id": n, "small": n}) for n in range(10)]
    bad = [envelope(WRONG, {"id": n, "small": "top-secret-value"}) for n in range(10, 13)]
    broker.produce(name, [(0, None, value) for value in good])
    broker.produce(name, [(0, b"\x00key", value) for value in bad])
    broker.produce(name, [(0, None, b"this is no JSON")])
    orders = sink(
        catalog,
        name,
        f"{name}.orders",
        errors__tolerance="all",
        errors__deadletterqueue__topic__name=dead,
        errors__deadletterqueue__topic__replication__factor="1",
        errors__deadletterqueue__context__headers__enable="true",
        **ENVELOPE,
    )
    connector, letters = configuration("dead-letters.json", catalog)
    letters["topics"] = dead
    table, view = TableView(catalog, f"{name}.orders"), TableView(catalog, letters["iceberg.tables"])
    with running(worker, name, orders), running(worker, f"{connector}-{name}", letters):
        table.wait_rows(10, 60)
        view.wait_rows(4, 60)
        # What the converter refuses is reported before the rest of its batch reaches the task.
        raw = view.query("SELECT value, _key FROM {t}")
        letters_by_key = sorted((bytes(key or b""), bytes(value)) for value, key in raw)
        assert letters_by_key == [(b"", b"this is no JSON"), *((b"\x00key", value) for value in bad)]
        counted = block("sql", "GROUP BY ALL").replace("iceberg_scan('…/ops/dead_letters')", "{t}")
        # The last one never reached Frazil: the converter's message is no JSON object.
        rows = view.query(counted)
        assert [row[:4] for row in rows] == [("VALUE_MALFORMED", f"{name}.orders", "small", 3)]
        scope: dict = {}
        exec(block("python", "def replay"), scope)
        taken = view.query(
            "SELECT _key, value, _headers FROM {t} WHERE _headers LIKE '%VALUE_MALFORMED%' ORDER BY _offset"
        )

        def mend(value: bytes) -> bytes:
            whole = json.loads(bytes(value))
            return envelope(FIELDS, {"id": whole["payload"]["id"], "small": 7})

        scope["replay"](taken, Producer({"bootstrap.servers": broker.bootstrap}), mend)
        table.wait_rows(13, 60)
    assert table.query("SELECT count(*), count(DISTINCT id), sum(id) FROM {t}") == [(13, 13, 78)]
    assert view.rows() == 4
