"""Records of change data as producers write them: Debezium's envelope and plain rows, as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass

Record = tuple[str, int, "bytes | None", "bytes | None", list]

MICROS = "io.debezium.time.MicroTimestamp"
# Name, type, whether it is optional, semantic type.
Fields = list[tuple[str, str, bool, "str | None"]]
SOURCE: Fields = [
    ("connector", "string", False, None),
    ("name", "string", False, None),
    ("ts_ms", "int64", False, None),
    ("snapshot", "string", True, None),
    ("lsn", "int64", True, None),
    ("sequence", "string", True, None),
    ("file", "string", True, None),
    ("pos", "int64", True, None),
    ("table", "string", False, None),
]
OLD_KEY, NEW_KEY = "__debezium.oldkey", "__debezium.newkey"


def dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def struct(fields: Fields, name: str, optional: bool = False) -> dict:
    """A schema of Connect."""
    made = []
    for column, kind, is_optional, semantic in fields:
        one: dict = {"field": column, "type": kind, "optional": is_optional}
        if semantic is not None:
            one |= {"name": semantic, "version": 1}
        made.append(one)
    return {"type": "struct", "fields": made, "optional": optional, "name": name}


@dataclass(frozen=True)
class Writer:
    """Writes the rows of one table, with Connect's schema around them or without."""

    fields: Fields
    key: tuple[str, ...]
    schemas: bool
    name: str

    def _enveloped(self, schema: dict, payload: object) -> bytes:
        return dump({"schema": schema, "payload": payload} if self.schemas else payload)

    def key_bytes(self, key: dict) -> bytes:
        fields = [field for field in self.fields if field[0] in self.key]
        return self._enveloped(struct(fields, "Key"), {column: key[column] for column in self.key})

    def bare_key_bytes(self, value: int) -> bytes:
        """A key that is no record, only the value of the one column."""
        return self._enveloped({"type": "int64", "optional": False}, value)

    def row(self, row: dict) -> bytes:
        return self._enveloped(struct(self.fields, "Value"), row)

    def change(
        self,
        op: str,
        before: dict | None,
        after: dict | None,
        order: int,
        snapshot: str = "false",
        connector: str = "postgresql",
    ) -> bytes:
        """A change as Debezium writes it, at one place of the source's log."""
        places: dict[str, object] = {"file": "bin.000001", "pos": order}
        if connector == "postgresql":
            # The last transaction that was committed, and the place itself.
            places = {"lsn": order, "sequence": f'["{order}","{order}"]'}
        source = {column: None for column, *_ in SOURCE} | {
            "connector": connector,
            "name": self.name,
            "ts_ms": 1_700_000_000_000 + order,
            "snapshot": snapshot,
            "table": "t",
            **places,
        }
        payload = {
            "before": before,
            "after": after,
            "source": source,
            "op": op,
            "ts_ms": source["ts_ms"],
        }
        if not self.schemas:
            return dump(payload)
        rows = struct(self.fields, f"{self.name}.Value", optional=True)
        parts = [
            rows | {"field": "before"},
            rows | {"field": "after"},
            struct(SOURCE, f"io.debezium.connector.{connector}.Source") | {"field": "source"},
            {"type": "string", "optional": False, "field": "op"},
            {"type": "int64", "optional": True, "field": "ts_ms"},
        ]
        whole = {"type": "struct", "fields": parts, "optional": False, "name": f"{self.name}.Envelope"}
        return self._enveloped(whole, payload)

    def heartbeat(self) -> bytes:
        """What Debezium sends when nothing happens."""
        schema = struct([("ts_ms", "int64", False, None)], "io.debezium.connector.common.Heartbeat")
        return self._enveloped(schema, {"ts_ms": 1_700_000_000_000})
