"""Apache Iceberg's own sink, for a comparison on the same bed.

Nothing of it is part of Frazil: `gradle :bed:peerLibraries` fetches it as published.
"""

from __future__ import annotations

import os
from pathlib import Path

from .artifacts import BUILD
from .process import BedError

PEER_VERSION = os.environ.get("FRAZIL_PEER_VERSION", "1.12.0")
PEER_CLASS = "org.apache.iceberg.connect.IcebergSinkConnector"


def peer_libraries() -> Path:
    """Returns build/bed/peer-<version>, which `gradle :bed:peerLibraries` lays."""
    folder = BUILD / "bed" / f"peer-{PEER_VERSION}"
    if not folder.is_dir():
        raise BedError(
            f"{folder} is missing: run gradle --no-daemon :bed:peerLibraries -Ppeer={PEER_VERSION}"
        )
    return folder


def lay_peer(plugins: Path) -> None:
    """Lays the peer into a `plugin.path` folder, beside what is there."""
    (plugins / "iceberg-kafka-connect").symlink_to(peer_libraries())


def peer_sink(catalog, topic: str, table: str, control: str, interval_ms: int, tasks: int) -> dict[str, str]:
    """Returns the configuration of the peer; what is not named here is its default."""
    return {
        "connector.class": PEER_CLASS,
        "tasks.max": str(tasks),
        "topics": topic,
        **catalog.connector(),
        "iceberg.tables": table,
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.control.topic": control,
        "iceberg.control.commit.interval-ms": str(interval_ms),
    }
