"""A real distributed Connect worker, and its REST interface."""

from __future__ import annotations

import json
import shutil
import time
import uuid
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import Callable, Mapping

from .artifacts import java, libraries, plugin_jar, plugin_zip
from .kafka import Broker, logging_options
from .process import BedError, Process, free_port, wait_until

# Nothing here that a user would not set: offsets are flushed at Connect's own default of 60 s.
PROPERTIES = """\
bootstrap.servers={bootstrap}
group.id={group}
listeners=http://127.0.0.1:{port}
rest.advertised.host.name=127.0.0.1
rest.advertised.port={port}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
config.storage.topic={group}-configs
offset.storage.topic={group}-offsets
status.storage.topic={group}-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=1
status.storage.partitions=1
connector.client.config.override.policy=All
plugin.path={plugins}
plugin.discovery=service_load
{settings}"""


class RestError(Exception):
    """Connect answered a request with an error."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status
        self.body = body


def lay_plugin(kind: str, plugins: Path) -> None:
    """Lays the plugin into a `plugin.path` folder: `jar` copies only the JAR, `zip` unpacks the zip."""
    plugins.mkdir(parents=True, exist_ok=True)
    if kind == "jar":
        shutil.copy(plugin_jar(), plugins)
    elif kind == "zip":
        with zipfile.ZipFile(plugin_zip()) as archive:
            archive.extractall(plugins)
    elif kind != "none":
        raise BedError(f"plugin kind {kind!r}: jar, zip or none")


class Worker:
    """A distributed worker of one Kafka version; `start` after `stop` or `kill` keeps its group and
    topics. Workers with the same `group` are one cluster. `settings` are further worker properties,
    `classpath` are folders and archives in front of Connect's own, `beside` are folders of other
    plugins."""

    def __init__(
        self,
        version: str,
        broker: Broker,
        folder: Path,
        logs: Path,
        *,
        plugin: str = "jar",
        heap: str = "768m",
        collector: str = "-XX:+UseSerialGC",
        jvm: tuple[str, ...] = (),
        classpath: tuple[Path, ...] = (),
        beside: tuple[Path, ...] = (),
        env: Mapping[str, str] | None = None,
        group: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.version = version
        self.folder = folder
        self.port = free_port()
        self.process = Process(f"worker {version}", logs / f"{folder.name}.log")
        self.plugins = folder / "plugins"
        lay_plugin(plugin, self.plugins)
        for other in beside:
            (self.plugins / other.name).symlink_to(other)
        self._env = dict(env or {})
        self._properties = folder / "connect.properties"
        self._properties.write_text(
            PROPERTIES.format(
                bootstrap=broker.bootstrap,
                group=group or folder.name,
                port=self.port,
                plugins=self.plugins,
                settings="".join(f"{key}={value}\n" for key, value in (settings or {}).items()),
            )
        )
        self._command = [
            java(),
            f"-Xmx{heap}",
            collector,
            *logging_options(folder, version),
            *jvm,
            "-cp",
            ":".join([*map(str, classpath), f"{libraries(f'kafka-{version}')}/*"]),
            "org.apache.kafka.connect.cli.ConnectDistributed",
            str(self._properties),
        ]

    def start(self) -> Worker:
        return self.launch().wait_ready()

    def launch(self) -> Worker:
        """Starts the process and does not wait for it."""
        self.process.start(self._command, env=self._env, cwd=self.folder)
        return self

    def wait_ready(self) -> Worker:
        self.process.wait_ready(self._answers, 180)
        return self

    def _answers(self) -> bool:
        try:
            self.call("GET", "/connectors", timeout=5)
            return True
        except (OSError, RestError):
            return False

    def stop(self) -> None:
        self.process.stop(60)

    def kill(self) -> None:
        self.process.kill()

    def log(self) -> str:
        return self.process.output()

    def call(self, method: str, path: str, body: object = None, timeout: float = 60):
        """Asks Connect's REST interface and returns the decoded answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise RestError(error.code, error.read().decode("utf-8", "replace")) from None
        return json.loads(text) if text else None

    def insist(self, method: str, path: str, body: object = None):
        """As `call`, again while Connect answers 409 because it rebalances."""
        deadline = time.monotonic() + 60
        while True:
            try:
                return self.call(method, path, body)
            except RestError as error:
                if error.status != 409 or time.monotonic() > deadline:
                    raise
                time.sleep(0.3)

    def create(self, name: str, config: Mapping[str, object]) -> None:
        """POSTs a connector."""
        self.insist("POST", "/connectors", {"name": name, "config": dict(config)})

    def configure(self, name: str, config: Mapping[str, object]) -> None:
        """PUTs the whole configuration of a connector, which restarts it."""
        self.insist("PUT", f"/connectors/{name}/config", dict(config))

    def delete(self, name: str) -> None:
        self.insist("DELETE", f"/connectors/{name}")

    def validate(self, config: Mapping[str, object]) -> dict[str, list[str]]:
        """Returns the errors that `validate` gives, by key."""
        plugin = str(config["connector.class"])
        answer = self.call("PUT", f"/connector-plugins/{plugin}/config/validate", dict(config))
        values = (entry["value"] for entry in answer["configs"])
        return {value["name"]: value["errors"] for value in values if value["errors"]}

    def status(self, name: str) -> dict:
        return self.call("GET", f"/connectors/{name}/status")

    def task_workers(self, name: str) -> dict[int, str]:
        """Returns the REST address of the worker that has each task."""
        return {task["id"]: task["worker_id"] for task in self.status(name)["tasks"]}

    @property
    def worker_id(self) -> str:
        """The name under which `task_workers` knows this worker."""
        return f"127.0.0.1:{self.port}"

    def task_states(self, name: str) -> list[str]:
        try:
            return [task["state"] for task in self.status(name)["tasks"]]
        except RestError as error:
            if error.status == 404:  # the connector is not yet known
                return []
            raise

    def wait_running(self, name: str, tasks: int = 1, timeout: float = 60) -> None:
        """Waits until all tasks run; a failed one ends the wait with its trace."""

        def check() -> bool:
            states = self.task_states(name)
            if "FAILED" in states:
                raise BedError(f"task of {name} failed: {self.failure(name)}")
            return states.count("RUNNING") >= tasks

        wait_until(f"{tasks} running tasks of {name}", check, timeout, 0.25)

    def wait_failed(self, name: str, timeout: float = 60) -> str:
        """Waits until a task (or the connector) has failed, and returns its trace."""
        return wait_until(f"{name} to fail", lambda: self.failure(name), timeout, 0.25)

    def failure(self, name: str) -> str | None:
        """Returns the trace of the first failed task or of the connector, if there is one."""
        try:
            status = self.status(name)
        except RestError as error:
            if error.status == 404:
                return None
            raise
        for part in (*status["tasks"], status["connector"]):
            if part["state"] == "FAILED":
                return part["trace"]
        return None


# A worker that is gone gives up its tasks after seconds, not after 5 minutes.
CLUSTER_SETTINGS = {"scheduled.rebalance.max.delay.ms": "5000"}


def start_cluster(
    make_worker: Callable[..., Worker],
    count: int,
    *,
    settings: Mapping[str, str] | None = None,
    **options,
) -> list[Worker]:
    """Starts `count` workers of one new cluster at once and waits until all of them serve."""
    group = f"cluster-{uuid.uuid4().hex[:6]}"
    merged = {**CLUSTER_SETTINGS, **(settings or {})}
    workers = [make_worker(group=group, settings=merged, **options) for _ in range(count)]
    for worker in workers:
        worker.launch()
    return [worker.wait_ready() for worker in workers]
