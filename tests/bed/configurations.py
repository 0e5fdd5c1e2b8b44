"""Connectors of other sinks, `tests/configurations/`, and what `docs/migration.md` says of their keys."""

from __future__ import annotations

import json
import re
from pathlib import Path

from .artifacts import ROOT
from .sink import CLASS

FOLDER = ROOT / "tests" / "configurations"
GUIDE = ROOT / "docs" / "migration.md"
# Values of these keys must not be shown; the files mark them so.
SECRET = "S3CRET"


def files() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def theirs(file: str) -> tuple[str, dict[str, str]]:
    """Returns the name and the configuration of another sink's connector, as it is."""
    whole = json.loads((FOLDER / f"{file}.json").read_text())
    return whole["name"], whole["config"]


def ours(file: str) -> dict[str, str]:
    """Returns the same with `connector.class` changed, and nothing else."""
    _, config = theirs(file)
    assert config["connector.class"] != CLASS
    return {**config, "connector.class": CLASS}


class Guide:
    """The tables of `docs/migration.md`."""

    def __init__(self, path: Path = GUIDE) -> None:
        row = re.compile(r"^\| `([^`]+)` \| (?:`([^`]+)`)? ?\| (same|renamed|inert|refused) \|", re.M)
        self.rows = [match.groups() for match in row.finditer(path.read_text())]
        assert len(self.rows) > 100, "the guide has lost its tables"

    def outcome(self, key: str, value: str) -> str:
        """Returns what becomes of `key`: the row of its value, else its own, else the longest pattern."""
        best, rank = None, (-1, -1)
        for name, decides, word in self.rows:
            if decides is not None and not self._is_value(decides, value):
                continue
            pattern = re.escape(name).replace(re.escape("<name>"), ".+").replace(re.escape("*"), ".+")
            if re.fullmatch(pattern, key) is None:
                continue
            plain = 1_000 if "*" not in name and "<" not in name else len(name)
            found = (plain, 0 if decides is None else 1)
            if found > rank:
                best, rank = word, found
        if best is None:
            raise AssertionError(f"{key} is not in docs/migration.md")
        return best

    @staticmethod
    def _is_value(decides: str, value: str) -> bool:
        return value.startswith(decides) if decides.endswith(":") else value == decides

    def refused(self, config: dict[str, str]) -> set[str]:
        """Returns the keys of `config` that are refused."""
        return {
            key
            for key, value in config.items()
            if key.startswith(("iceberg.", "frazil.")) and self.outcome(key, value) == "refused"
        }
