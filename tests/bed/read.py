"""Other engines' eyes: DuckDB, pyiceberg and Iceberg's Java library."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import duckdb
from pyiceberg.table import StaticTable

from .artifacts import java, libraries
from .catalogs import SeaweedFS
from .process import BedError, wait_until

EXTENSIONS = ("parquet", "avro", "httpfs", "iceberg")


def connect_duckdb(store: SeaweedFS | None = None) -> duckdb.DuckDBPyConnection:
    """Opens DuckDB with its extensions from wheels, and with the keys of `store` for s3:// paths."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    packages = Path(duckdb.__file__).parents[1]
    for name in EXTENSIONS:
        found = list(
            packages.glob(f"duckdb_extension_{name}/extensions/*/{name}.duckdb_extension")
        )
        if len(found) != 1:
            raise BedError(f"DuckDB's extension {name} is missing from the environment")
        connection.execute(f"LOAD '{found[0]}'")
    if store is not None:
        endpoint = store.s3.removeprefix("http://")
        connection.execute(
            f"CREATE SECRET s3 (TYPE s3, KEY_ID '{store.ACCESS_KEY}', SECRET '{store.SECRET_KEY}',"
            f" REGION '{store.REGION}', ENDPOINT '{endpoint}', URL_STYLE 'path', USE_SSL false)"
        )
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def local(location: str) -> str:
    """Returns a file: location as a path, any other as it is."""
    return location.removeprefix("file://").removeprefix("file:")


class TableView:
    """One table as DuckDB sees it now; each query finds the newest metadata file first."""

    def __init__(self, catalog, name: str) -> None:
        self.catalog = catalog
        self.namespace, self.table = name.rsplit(".", 1)
        self.connection = connect_duckdb(catalog if isinstance(catalog, SeaweedFS) else None)

    def location(self) -> str | None:
        found = self.catalog.metadata_location(self.namespace, self.table)
        return None if found is None else local(found)

    def metadata(self) -> dict:
        found = self.catalog.metadata(self.namespace, self.table)
        if found is None:
            raise BedError(f"there is no table {self.namespace}.{self.table}")
        return found

    def query(self, sql: str) -> list[tuple]:
        """Runs SQL in which `{t}` stands for the table."""
        location = self.location()
        if location is None:
            raise BedError(f"there is no table {self.namespace}.{self.table}")
        return self.connection.execute(sql.replace("{t}", f"iceberg_scan('{location}')")).fetchall()

    def rows(self) -> int:
        """Counts the rows; a table that is not there or has no snapshot has none."""
        metadata = self.catalog.metadata(self.namespace, self.table)
        if metadata is None or metadata.get("current-snapshot-id") in (None, -1):
            return 0
        return self.query("SELECT count(*) FROM {t}")[0][0]

    def wait_rows(self, count: int, timeout: float, pause: float = 0.5) -> None:
        """Waits until there are at least `count` rows, and refuses more."""
        wait_until(
            f"{count} rows in {self.namespace}.{self.table}",
            lambda: self.rows() >= count,
            timeout,
            pause,
        )
        rows = self.rows()
        if rows != count:
            raise AssertionError(f"{rows} rows in {self.namespace}.{self.table}, not {count}")

    def wait_rows_at_least(self, count: int, timeout: float, pause: float = 0.5) -> None:
        """Waits until there are at least `count` rows, while more come."""
        what = f"{count} rows or more in {self.namespace}.{self.table}"
        wait_until(what, lambda: self.rows() >= count, timeout, pause)

    def snapshots(self) -> list[dict]:
        return self.metadata().get("snapshots", [])

    def offsets(self) -> dict[str, list[int]]:
        """Returns topic -> next offset per partition out of the state property `frazil.w.<wid>`."""
        found: dict[str, list[int]] = {}
        for key, value in self.metadata()["properties"].items():
            if key.startswith("frazil.w."):
                for entry in json.loads(value)["t"].values():
                    if "z" not in entry:  # what a deleted topic of that name left
                        found[entry["n"]] = entry["o"]
        return found


def pyiceberg_table(view: TableView) -> StaticTable:
    """Opens a table with pyiceberg, which reads the same metadata file."""
    location = view.catalog.metadata_location(view.namespace, view.table)
    properties = {}
    if isinstance(view.catalog, SeaweedFS):
        properties = {
            "s3.endpoint": view.catalog.s3,
            "s3.access-key-id": view.catalog.ACCESS_KEY,
            "s3.secret-access-key": view.catalog.SECRET_KEY,
            "s3.region": view.catalog.REGION,
        }
    return StaticTable.from_metadata(location, properties)


def _unescape(text: str) -> str | None:
    if text in ("null", "none"):
        return None
    out, escaped = [], False
    for character in text:
        if escaped:
            out.append({"t": "\t", "n": "\n", "r": "\r"}.get(character, character))
            escaped = False
        elif character == "\\":
            escaped = True
        else:
            out.append(character)
    return "".join(out)


@dataclass(frozen=True)
class Question:
    """What Iceberg's Java library is asked: `rows` or planned `files`, under a filter, or what was
    `appended:` after a snapshot."""

    location: str
    what: str
    filter: dict | None = None


def ask_java(questions: list[Question]) -> list[list[dict]]:
    """Reads tables on local disk with Iceberg's Java library, all in one JVM."""
    library = libraries("reader")
    command = [java(), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
    command += ["-cp", f"{library}/classes:{library}/*", "ReadTable"]
    asked = "".join(
        f"{q.location}\t{q.what}\t{'' if q.filter is None else json.dumps(q.filter)}\n"
        for q in questions
    )
    done = subprocess.run(
        command, input=asked, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != 0:
        raise AssertionError(f"Iceberg Java cannot read the table:\n{done.stderr[-3000:]}")
    answers: list[list[dict]] = [[]]
    for line in done.stdout.splitlines():
        if line == "":
            answers.append([])
            continue
        cells = (cell.partition("=") for cell in line.split("\t"))
        answers[-1].append({key: _unescape(value) for key, _, value in cells})
    return answers[:-1]


def read_with_java(location: str, what: str, filter: dict | None = None) -> list[dict]:
    """Asks one question."""
    return ask_java([Question(location, what, filter)])[0]
