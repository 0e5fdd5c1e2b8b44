"""A real schema registry: Apicurio, whose compatible interface speaks as Confluent's does."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from .artifacts import java, libraries
from .process import BedError, Process, free_port


class Registry:
    """One Apicurio registry that keeps its schemas in memory."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process = Process("schema registry", logs / "registry.log")

    @property
    def confluent(self) -> str:
        """The interface of Confluent's registry."""
        return f"{self.url}/apis/ccompat/v7"

    def own(self, version: int) -> str:
        """Apicurio's own interface."""
        return f"{self.url}/apis/registry/v{version}"

    def start(self) -> Registry:
        self.folder.mkdir(parents=True, exist_ok=True)
        runners = list(libraries("registry").glob("*-runner.jar"))
        if len(runners) != 1:
            raise BedError(f"{len(runners)} programs in build/bed/registry: run ./x bed")
        self.process.start(
            [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
            + ["-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={self.port}"]
            + ["-jar", runners[0]],
            cwd=self.folder,
        )
        self.process.wait_ready(self._answers, 180)
        return self

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.confluent}/schemas/types", timeout=5) as answer:
                return answer.status == 200
        except (OSError, urllib.error.HTTPError):
            return False

    def stop(self) -> None:
        self.process.stop()


def produce_with_java(
    broker, registry: Registry, topic: str, form: str, count: int, first: int = 0
) -> None:
    """Sends orders `first` to `first + count` by Apicurio's Java serializers, each in the way of `form`:
    see `java/serde`."""
    classes = libraries("serde")
    places = [classes / "classes", f"{libraries('apicurio')}/*", f"{libraries('kafka-4.3.1')}/*"]
    command = [java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, places))]
    command += ["io.frazil.serde.Produce", broker.bootstrap, registry.own(2), topic, form]
    command += [str(count), str(first)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise BedError(f"the Java producer failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
