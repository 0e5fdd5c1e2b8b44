"""The demonstration of `./x demo`: a topic becomes a table, and DuckDB prints it."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bed import data
from bed.artifacts import LOGS, plugin_jar, plugin_zip
from bed.catalogs import SeaweedFS, SqlCatalog
from bed.connect import Worker
from bed.kafka import Broker
from bed.process import BedError
from bed.read import TableView
from bed.sink import CONFIGURATIONS, configuration

ORDERS = 10_000


class Steps:
    """Says what is being done and how long it took."""

    def __init__(self) -> None:
        self.started = time.monotonic()

    def __call__(self, what: str) -> None:
        print(f"[{time.monotonic() - self.started:5.1f} s] {what}", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rest", action="store_true", help="a REST catalog with vended keys, and S3")
    parser.add_argument("--data", choices=("orders", "flights"), default="orders")
    plugin = parser.add_mutually_exclusive_group()
    plugin.add_argument("--jar-only", action="store_true", help="only the JAR in plugin.path (usual)")
    plugin.add_argument("--zip", action="store_true", help="the unpacked zip in plugin.path")
    return parser.parse_args()


def load(kind: str, broker: Broker) -> dict[str, int]:
    """Produces the records and returns how many each topic got."""
    if kind == "orders":
        broker.create_topic("orders", 2)
        broker.produce_json("orders", data.orders(ORDERS), lambda index: index % 2)
        return {"orders": ORDERS}
    counts = {}
    for topic in ("flights", "weather"):
        broker.create_topic(topic)
        counts[topic] = sum(broker.produce(topic, ((0, None, row) for row in data.enveloped(topic))))
    return counts


def print_table(view: TableView, elapsed: float) -> None:
    """Prints what DuckDB reads: rows, snapshots, files and the offsets of the state property."""
    metadata = view.metadata()
    print(f"\n== {view.namespace}.{view.table}: {view.rows()} rows after {elapsed:.1f} s")
    location = view.location()
    view.connection.sql(f"SELECT * FROM iceberg_scan('{location}') LIMIT 5").show(max_width=110)
    print("snapshots")
    view.connection.sql(
        "SELECT sequence_number AS commit, snapshot_id, timestamp_ms AS committed"
        f" FROM iceberg_snapshots('{location}') ORDER BY 1 LIMIT 12"
    ).show(max_width=110)
    print("files")
    view.connection.sql(
        "SELECT count(*) AS files, sum(record_count) AS rows, min(record_count) AS fewest,"
        f" max(record_count) AS most FROM iceberg_metadata('{location}')"
    ).show(max_width=110)
    for spec in metadata["partition-specs"]:
        fields = [f"{field['transform']}({field['name']})" for field in spec["fields"]]
        print("partitioned by " + (", ".join(fields) or "nothing"))
    for topic, offsets in view.offsets().items():
        print(f"offsets in the table's own state: {topic} {offsets}")


def shipped(topic: str, rest: bool, catalog) -> tuple[str, dict[str, str]]:
    """Returns the shipped configuration of a topic, moved to the REST catalog where it has none."""
    file = f"{topic}-rest.json" if rest else f"{topic}.json"
    if (CONFIGURATIONS / file).exists():
        return configuration(file, catalog)
    whole = json.loads((CONFIGURATIONS / f"{topic}.json").read_text())
    kept = {k: v for k, v in whole["config"].items() if not k.startswith("iceberg.catalog.")}
    return whole["name"], {**kept, **catalog.connector()}


def wait(worker: Worker, connector: str, view: TableView, count: int, step: Steps) -> None:
    """Shows the rows as they come; a task that fails ends the demo with its own words."""
    deadline = time.monotonic() + 300
    shown = -1
    while True:
        rows = view.rows()
        if rows != shown:
            step(f"{view.namespace}.{view.table}: {rows} of {count} rows")
            shown = rows
        if rows >= count:
            return
        failure = worker.failure(connector)
        if failure:
            raise BedError(f"{connector} failed: {failure}")
        if time.monotonic() > deadline:
            raise BedError(f"only {rows} rows after 300 s")
        time.sleep(1)


def show(options: argparse.Namespace, folder: Path, logs: Path, stops: list) -> None:
    step = Steps()
    step("starting a Kafka broker (KRaft)")
    broker = Broker(folder / "broker", logs)
    stops.append(broker.stop)
    broker.start()
    catalog: SeaweedFS | SqlCatalog
    if options.rest:
        step("starting SeaweedFS: a REST catalog that vends keys, and its S3 store")
        catalog = SeaweedFS(folder / "weed", logs)
        stops.append(catalog.stop)
        catalog.start()
    else:
        catalog = SqlCatalog(folder / "sql")
    kind = "zip" if options.zip else "jar"
    plugin = plugin_zip() if options.zip else plugin_jar()
    step(f"starting a Connect worker 4.3.1 with {plugin.name} in its plugin.path")
    (folder / "worker").mkdir()
    worker = Worker("4.3.1", broker, folder / "worker", logs, plugin=kind)
    stops.append(worker.stop)
    worker.start()
    step(f"producing {options.data}")
    counts = load(options.data, broker)
    views: dict[str, list[TableView]] = {}
    posted = time.monotonic()
    for topic, count in counts.items():
        name, config = shipped(topic, options.rest, catalog)
        step(f"POST {name} to Connect: {count} records to {config['iceberg.tables']}")
        worker.create(name, config)
        tables = config["iceberg.tables"].split(",")
        views[topic] = [TableView(catalog, table) for table in tables]
    for topic, tables in views.items():
        for view in tables:
            wait(worker, topic, view, counts[topic], step)
    elapsed = time.monotonic() - posted
    for topic, tables in views.items():
        for view in tables:
            print_table(view, elapsed)
            if sum(next(iter(view.offsets().values()), [0])) != counts[topic]:
                raise BedError(f"the offsets of {topic} are not those of its records")
    print()
    step("stopping everything")


def main() -> int:
    options = arguments()
    folder = Path(tempfile.mkdtemp(prefix="frazil-demo-"))
    logs = LOGS / "demo"
    shutil.rmtree(logs, ignore_errors=True)
    stops: list = []
    good = False
    try:
        show(options, folder, logs, stops)
        good = True
    except (BedError, AssertionError) as error:
        print(f"\nthe demo failed: {error}\nlogs: {logs}", file=sys.stderr)
    finally:
        for stop in reversed(stops):
            stop()
        shutil.rmtree(folder, ignore_errors=True)
        if good:
            shutil.rmtree(logs, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
