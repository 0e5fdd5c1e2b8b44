"""What a run of the benchmark runs on: one broker, one catalog for all sinks, topics that are filled
once, and for each scenario one worker a sink."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

from bed.artifacts import java, libraries
from bed.catalogs import RestCatalog, SeaweedFS
from bed.connect import Worker
from bed.kafka import Broker
from bed.peer import PEER_VERSION, peer_libraries
from bed.process import BedError
from bed.read import local

from .registry import Registry
from .scenarios import (
    AVRO,
    AVRO_SCHEMA,
    FLOOR,
    FRAZIL,
    PEER,
    PROTOBUF_SCHEMA,
    REGISTRY,
    Scenario,
    Variant,
    table_schema,
    table_spec,
)

WORKER_VERSION = "4.3.1"
PARTITIONS = 4
NAMESPACE = "bench"
# The peer reads its control topic only when Connect calls it, so its commits wait for Connect's
# flush of offsets; at Connect's default of 60 s it would sit idle for most of a round.
SETTINGS = {"offset.flush.interval.ms": "2000"}


@dataclass(frozen=True)
class Topic:
    name: str
    records: int
    bytes: int


class Sitting:
    """The parts that all scenarios share. Call `stop` at the end, whatever happened."""

    def __init__(self, folder: Path, logs: Path, records: int | None) -> None:
        self.folder, self.logs, self._records = folder, logs, records
        self.classes = libraries("bench") / "classes"
        self.broker = Broker(folder / "broker", logs)
        self.rest = RestCatalog(folder / "rest", logs)
        self.registry = Registry()
        self._weed: SeaweedFS | None = None
        self._workers: dict[str, Worker] = {}
        self._topics: dict[tuple[str, str, int], Topic] = {}
        self._namespaces: set[int] = set()

    def start(self) -> Sitting:
        self.broker.start()
        self.rest.start()
        return self

    def stop(self) -> None:
        self.end_workers()
        if self._weed is not None:
            self._weed.stop()
        self.rest.stop()
        self.broker.stop()
        self.registry.stop()

    def catalog(self, scenario: Scenario) -> RestCatalog | SeaweedFS:
        if not scenario.s3:
            return self.rest
        if self._weed is None:
            self._weed = SeaweedFS(self.folder / "weed", self.logs).start()
        return self._weed

    def records(self, scenario: Scenario) -> int:
        return self._records or scenario.records

    def pids(self) -> list[int]:
        """Returns the processes of this run besides this one."""
        parts = [self.broker, self.rest, *self._workers.values()]
        if self._weed is not None:
            parts.append(self._weed)
        return [part.process.pid for part in parts]

    def topic(self, scenario: Scenario) -> Topic:
        """Returns the topic of a scenario; the first that asks for it has it filled."""
        count = self.records(scenario)
        key = (scenario.kind, scenario.format, count)
        if key not in self._topics:
            name = "-".join(map(str, key))
            self.broker.create_topic(name, PARTITIONS)
            command = [java(), "-Xmx768m", "-XX:+UseSerialGC", "-cp"]
            command += [f"{self.classes}:{libraries(f'kafka-{WORKER_VERSION}')}/*"]
            command += ["io.frazil.bench.Generate", self.broker.bootstrap, name, str(PARTITIONS)]
            command += [*map(str, key), str(self._schema(name, scenario.format))]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise BedError(f"{name} was not filled:\n{done.stderr[-3000:]}")
            self._topics[key] = Topic(name, count, int(done.stdout))
        return self._topics[key]

    def _schema(self, topic: str, form: str) -> int:
        if form == "avro":
            return self.registry.register(f"{topic}-value", "AVRO", json.dumps(AVRO_SCHEMA))
        if form == "protobuf":
            return self.registry.register(f"{topic}-value", "PROTOBUF", PROTOBUF_SCHEMA)
        return 0

    def workers(self, scenario: Scenario) -> dict[str, Worker]:
        """Starts a fresh worker for each sink of a scenario, all alike but for the plugin."""
        for side in dict.fromkeys(variant.side for variant in scenario.variants.values()):
            folder = self.folder / f"{scenario.name}-{side}"
            folder.mkdir()
            worker = Worker(
                WORKER_VERSION,
                self.broker,
                folder,
                self.logs,
                plugin="jar" if side == FRAZIL else "none",
                heap=scenario.heap,
                collector="-XX:+UseG1GC",
                jvm=(f"-Xlog:gc:file={self.gc_log(scenario, side)}:time",),
                classpath=(self.classes,),
                settings=SETTINGS,
            )
            self._workers[side] = worker
            if side == PEER:
                lay_peer(worker.plugins, scenario.s3)
            if any(variant.config.items() >= AVRO.items() for variant in scenario.variants.values()):
                lay_apicurio(worker.plugins)
            worker.launch()
        for worker in self._workers.values():
            worker.wait_ready()
        return self._workers

    def gc_log(self, scenario: Scenario, side: str) -> Path:
        return self.logs / f"gc-{scenario.name}-{side}.log"

    def end_workers(self) -> None:
        for worker in self._workers.values():
            worker.stop()
        self._workers.clear()

    def config(self, scenario: Scenario, variant: Variant, topic: Topic, table: str, probe: Path, interval_ms: int) -> dict[str, str]:
        """Returns the whole configuration of a connector."""
        config = {
            "connector.class": CLASSES[variant.side],
            "tasks.max": str(variant.tasks),
            "topics": topic.name,
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "consumer.override.interceptor.classes": "io.frazil.bench.Probe",
            "consumer.override.frazil.bench.file": str(probe),
            "consumer.override.frazil.bench.records": str(topic.records),
        }
        if variant.side != FLOOR:
            config |= self.catalog(scenario).connector()
            config["iceberg.tables"] = table
            config["iceberg.control.commit.interval-ms"] = str(interval_ms)
        if variant.side == PEER:
            config["iceberg.control.topic"] = control_topic(table)
            if scenario.s3:
                config["iceberg.catalog.io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
                config["iceberg.catalog.client.region"] = SeaweedFS.REGION
        for key, value in variant.config.items():
            config[key] = value.replace(REGISTRY, self.registry.url)
        return config

    def make_table(self, scenario: Scenario, table: str) -> None:
        """Makes an empty table; every sink of a scenario gets one of the same layout."""
        catalog, base = self.catalog(scenario), self._base(scenario)
        if id(catalog) not in self._namespaces:
            self._insist(catalog, "POST", f"{base}/namespaces", {"namespace": [NAMESPACE]})
            self._namespaces.add(id(catalog))
        body = {
            "name": table.rpartition(".")[2],
            "schema": table_schema(scenario.kind),
            "partition-spec": table_spec(scenario.kind, scenario.partition),
        }
        self._insist(catalog, "POST", f"{base}/namespaces/{NAMESPACE}/tables", body)

    def drop_table(self, scenario: Scenario, table: str) -> None:
        """Drops a table, and its files where they are local."""
        catalog = self.catalog(scenario)
        name = table.rpartition(".")[2]
        location = (catalog.metadata(NAMESPACE, name) or {})["location"]
        self._insist(catalog, "DELETE", f"{self._base(scenario)}/namespaces/{NAMESPACE}/tables/{name}")
        if location.startswith("file:"):
            shutil.rmtree(local(location))

    def _base(self, scenario: Scenario) -> str:
        return f"/v1/{SeaweedFS.WAREHOUSE}" if scenario.s3 else "/v1"

    @staticmethod
    def _insist(catalog, method: str, path: str, body: object = None) -> None:
        status, answer = catalog.call(method, path, body)
        if status not in (200, 204):
            raise BedError(f"{method} {path}: {status} {answer}")


CLASSES = {
    FLOOR: "io.frazil.bench.NoopSinkConnector",
    PEER: "org.apache.iceberg.connect.IcebergSinkConnector",
    FRAZIL: "io.frazil.connect.FrazilSinkConnector",
}


def control_topic(table: str) -> str:
    """Names the control topic of the peer; each of its connectors gets its own."""
    return f"control-{table.rpartition('.')[2]}"


def lay_peer(plugins: Path, s3: bool) -> None:
    """Lays the peer, with its part for S3 where that is needed."""
    folder = plugins / "iceberg-kafka-connect"
    folder.mkdir()
    parts = [peer_libraries()]
    if s3:
        parts.append(libraries(f"peer-s3-{PEER_VERSION}"))
    # Both bring some of the same libraries.
    for name, jar in {jar.name: jar for part in parts for jar in part.glob("*.jar")}.items():
        (folder / name).symlink_to(jar)


def lay_apicurio(plugins: Path) -> None:
    """Lays Apicurio's converters, with the entry by which Connect finds a plugin without a scan."""
    folder = plugins / "apicurio"
    folder.mkdir()
    for jar in libraries("apicurio").glob("*.jar"):
        (folder / jar.name).symlink_to(jar)
    with zipfile.ZipFile(folder / "services.jar", "w") as archive:
        archive.writestr(
            "META-INF/services/org.apache.kafka.connect.storage.Converter", AVRO["value.converter"] + "\n"
        )
