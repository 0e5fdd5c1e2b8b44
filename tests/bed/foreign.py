"""Another writer: commits that are made by REST requests alone, by pyiceberg, and by Iceberg's Java
library."""

from __future__ import annotations

import random
import subprocess
import threading
import time

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException

from .artifacts import java, libraries
from .process import BedError

TOPIC = "foreign"


def change(catalog, table: str, updates: list[dict], requirements: list[dict] | None = None):
    """Sends one commit straight to the catalog and returns status and body."""
    namespace, name = table.rsplit(".", 1)
    body = {"requirements": requirements or [], "updates": updates}
    return catalog.call("POST", f"/v1/namespaces/{namespace}/tables/{name}", body)


def must_change(catalog, table: str, *updates: dict) -> None:
    status, body = change(catalog, table, list(updates))
    if status != 200:
        raise BedError(f"a foreign commit to {table}: {status} {body}")


def create_table(
    catalog, name: str, fields: list[dict], key: list[str], partitions: list[dict], version: int
) -> None:
    """Makes a table, and its namespace. `fields` have name, type and required, their ids are their
    places; `partitions` have name, source and transform."""
    namespace, table = name.rsplit(".", 1)
    catalog.call("POST", "/v1/namespaces", {"namespace": [namespace]})
    ids = {field["name"]: number for number, field in enumerate(fields, 1)}
    body = {
        "name": table,
        "schema": {
            "type": "struct",
            "schema-id": 0,
            "fields": [{"id": ids[field["name"]], **field} for field in fields],
            "identifier-field-ids": [ids[column] for column in key],
        },
        "partition-spec": {
            "spec-id": 0,
            "fields": [
                {
                    "name": part["name"],
                    "transform": part["transform"],
                    "source-id": ids[part["source"]],
                    "field-id": 1000 + number,
                }
                for number, part in enumerate(partitions)
            ],
        },
        "properties": {"format-version": str(version)},
    }
    status, said = catalog.call("POST", f"/v1/namespaces/{namespace}/tables", body)
    if status != 200:
        raise BedError(f"a table was not made: {status} {said}")


def change_with_java(catalog, commits: list[list[str]]) -> None:
    """Makes commits with Iceberg's Java library, in one JVM: `append TABLE ROW...`, `delete TABLE COLUMN
    VALUE...`, `delete-wide` in the same way, `compact TABLE`; `row` makes a ROW."""
    library = libraries("reader")
    command = [java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += ["-cp", f"{library}/classes:{library}/*", "ChangeTable", catalog.uri]
    asked = "".join("\t".join(words) + "\n" for words in commits)
    done = subprocess.run(
        command, input=asked, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != 0:
        raise BedError(f"Iceberg Java cannot change the table:\n{done.stderr[-3000:]}")
    if len(done.stdout.splitlines()) != len(commits):
        raise BedError(f"{len(commits)} commits were asked for, not these:\n{done.stdout[-3000:]}")


def row(**cells: object) -> str:
    """A row for `append`; a column that is not named is null."""
    return "\x01".join(f"{name}={value}" for name, value in cells.items() if value is not None)


def reference(branch: str, snapshot_id: int) -> dict:
    return {
        "action": "set-snapshot-ref",
        "ref-name": branch,
        "type": "branch",
        "snapshot-id": snapshot_id,
    }


def try_commit(catalog, table: str, branch: str, at_ms: int | None = None) -> int:
    """Tries to add an empty snapshot with a new sequence number to a branch, which starts at main,
    and returns the catalog's status."""
    namespace, name = table.rsplit(".", 1)
    metadata = catalog.metadata(namespace, name)
    refs = metadata["refs"]
    parent_id = refs.get(branch, refs["main"])["snapshot-id"]
    parent = next(s for s in metadata["snapshots"] if s["snapshot-id"] == parent_id)
    snapshot = {
        "snapshot-id": random.randrange(1, 2**62),
        "parent-snapshot-id": parent_id,
        "sequence-number": metadata["last-sequence-number"] + 1,
        "timestamp-ms": at_ms or max(int(time.time() * 1000), metadata["last-updated-ms"]),
        "manifest-list": parent["manifest-list"],
        "summary": {"operation": "append"},
        "schema-id": metadata["current-schema-id"],
    }
    if metadata["format-version"] >= 3:
        snapshot |= {"first-row-id": metadata["next-row-id"], "added-rows": 0}
    asserted = {
        "type": "assert-ref-snapshot-id",
        "ref": branch,
        "snapshot-id": parent_id if branch in refs else None,
    }
    updates = [
        {"action": "add-snapshot", "snapshot": snapshot},
        reference(branch, snapshot["snapshot-id"]),
    ]
    return change(catalog, table, updates, [asserted])[0]


def commit_to_branch(catalog, table: str, branch: str, at_ms: int | None = None) -> None:
    """Adds an empty snapshot to a branch, which starts at main."""
    status = try_commit(catalog, table, branch, at_ms)
    if status != 200:
        raise BedError(f"a foreign commit to {branch} of {table}: {status}")


class Storm:
    """Commits empty snapshots to main, ten in a second when the catalog lets it."""

    def __init__(self, catalog, table: str) -> None:
        self.statuses: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(catalog, table), daemon=True)

    def start(self) -> Storm:
        self._thread.start()
        return self

    def stop(self) -> list[int]:
        """Returns the statuses of all attempts."""
        self._stop.set()
        self._thread.join(60)
        return self.statuses

    def _work(self, catalog, table: str) -> None:
        while not self._stop.wait(0.1):
            self.statuses.append(try_commit(catalog, table, "main"))


def rollback(catalog, table: str, snapshot_id: int, branch: str = "main") -> None:
    """Moves a branch to another snapshot."""
    must_change(catalog, table, reference(branch, snapshot_id))


class Appender:
    """Appends one row after the other from several threads, as fast as the catalog takes them."""

    def __init__(self, uri: str, table: str, threads: int = 2) -> None:
        self.rows = 0
        self.failures: list[str] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(uri, table), daemon=True)
            for _ in range(threads)
        ]

    def start(self) -> Appender:
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> int:
        """Returns the number of rows that were added."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        if self.failures or any(thread.is_alive() for thread in self._threads):
            raise BedError(f"the other writer: {self.failures[:1] or 'it hangs'}")
        return self.rows

    def _work(self, uri: str, name: str) -> None:
        table = load_catalog("bed", type="rest", uri=uri, **{"header.X-Bed": "writing"}).load_table(name)
        row = table.scan(limit=1).to_arrow()
        at = row.schema.get_field_index("_topic")
        row = row.set_column(at, row.schema.field(at), pa.array([TOPIC], row.schema.field(at).type))
        while not self._stop.is_set():
            with self._lock:
                offset = self.rows
                self.rows += 1
            at = row.schema.get_field_index("_offset")
            field = row.schema.field(at)
            row = row.set_column(at, field, pa.array([offset], field.type))
            while not self._append(table, row):
                continue

    def _append(self, table, row: pa.Table) -> bool:
        try:
            table.refresh().append(row)
            return True
        except CommitFailedException:
            return False
        except Exception as error:  # whatever it is, the test has to hear of it
            self.failures.append(f"{type(error).__name__}: {error}")
            return True
