"""Where the things under test and the things they are tested with lie."""

from __future__ import annotations

import os
from pathlib import Path

from .process import BedError

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
LOGS = BUILD / "logs"
BROKER_VERSION = "4.4.0"
WORKER_VERSIONS = ("3.9.1", "4.3.1", "4.4.0")


def libraries(name: str) -> Path:
    """Returns build/bed/<name>, which `gradle :bed:libraries` lays."""
    folder = BUILD / "bed" / name
    if not folder.is_dir():
        raise BedError(f"{folder} is missing: run ./x test --only bed, or gradle :bed:libraries")
    return folder


def java() -> str:
    """Returns the Java launcher."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else "java"


def _one(variable: str, pattern: str) -> Path:
    given = os.environ.get(variable)
    if given:
        return Path(given).resolve()
    found = sorted((BUILD / "dist").glob(pattern))
    if len(found) != 1:
        raise BedError(f"{len(found)} files match build/dist/{pattern}: run ./x dist")
    return found[0]


def plugin_jar() -> Path:
    """Returns the one JAR that is a whole plugin."""
    return _one("FRAZIL_JAR", "*.jar")


def plugin_zip() -> Path:
    """Returns the zip that has the native library beside the JAR."""
    return _one("FRAZIL_ZIP", "*.zip")


def frazil_cli() -> Path:
    """Returns the command line program."""
    given = os.environ.get("FRAZIL_CLI")
    program = Path(given) if given else ROOT / "target" / "release" / "frazil"
    if not program.is_file():
        raise BedError(f"{program} is missing: run cargo build --release -p frazil-cli")
    return program
