"""Connector configurations as a user would write them, and what tests ask about a running sink."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Iterator

from .artifacts import ROOT, frazil_cli
from .connect import Worker
from .process import BedError

CLASS = "io.frazil.connect.FrazilSinkConnector"
CONFIGURATIONS = ROOT / "connector-config"


def sink(catalog, topics: str, tables: str, **overrides: str | None) -> dict[str, str]:
    """Returns the configuration of a sink with one-second commits. In the names of `overrides`
    `__` stands for a dot and `_` for a dash; a value of None takes the key away."""
    config = {
        "connector.class": CLASS,
        "tasks.max": "1",
        "topics": topics,
        **catalog.connector(),
        "iceberg.tables": tables,
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.control.commit.interval-ms": "1000",
    }
    for name, value in overrides.items():
        key = name.replace("__", ".").replace("_", "-")
        if value is None:
            config.pop(key, None)
        else:
            config[key] = value
    return config


def configuration(file: str, catalog, **more: str) -> tuple[str, dict[str, str]]:
    """Reads a file of `connector-config/` as it is shipped, with the placeholders filled in for
    `catalog`, and `more` of them, and returns the connector's name and configuration."""
    text = (CONFIGURATIONS / file).read_text()
    for name, value in {**catalog.placeholders(), **more}.items():
        text = text.replace(f"@{name}@", value)
    left = re.findall(r"@[A-Z_]+@", text)
    if left:
        raise BedError(f"{file}: nothing stands for {left}")
    whole = json.loads(text)
    return whole["name"], whole["config"]


ENVELOPE = {
    "value__converter": "org.apache.kafka.connect.json.JsonConverter",
    "value__converter__schemas__enable": "true",
}


@contextlib.contextmanager
def running(worker: Worker, name: str, config: dict[str, str], tasks: int = 1) -> Iterator[None]:
    """Runs a connector for the time of a block."""
    worker.create(name, config)
    try:
        worker.wait_running(name, tasks)
        yield
    finally:
        worker.delete(name)


def envelope(fields: list[dict], payload: dict) -> bytes:
    """Returns one record as JSON with Connect's schema envelope."""
    schema = {"type": "struct", "optional": False, "fields": fields}
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


@contextlib.contextmanager
def small_tmp(folder: Path, *options: str) -> Iterator[Path]:
    """Mounts a tmpfs with mount options such as `size=5m` or `noexec`."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BedError(f"cannot mount a tmpfs (are you root?): {done.stderr}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def verify(
    catalog, table: str, ends: dict[tuple[str, int], int]
) -> subprocess.CompletedProcess[str]:
    """Runs `frazil verify`: every offset below `ends` has to be in the table once."""
    config = sink(catalog, "any", table)
    config["iceberg.tables.metadata-columns"] = "_topic,_partition,_offset"
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"name": "verify", "config": config}, file)
        file.flush()
        command = [str(frazil_cli()), "verify", "--config", file.name, "--table", table]
        for (topic, partition), end in ends.items():
            command += ["--expect", f"{topic}:{partition}=0-{end}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
