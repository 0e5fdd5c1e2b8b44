"""MBeans of a worker, read as JConsole reads them, and what the Prometheus JMX exporter makes of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Callable, Iterator

from .artifacts import ROOT, java, libraries
from .process import BedError, wait_until

MONITORING = ROOT / "monitoring"
Read = dict[str, dict[str, float]]


class Metrics:
    """Frazil's MBeans in the JVM of a pid, by their names without the domain."""

    def __init__(self, pid: int) -> None:
        command = [java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        command += ["-cp", str(libraries("reader") / "classes"), "ReadMetrics", str(pid)]
        self._reader = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Metrics:
        return self

    def __exit__(self, *_) -> None:
        self._reader.stdin.close()
        self._reader.wait(30)
        self._reader.stdout.close()

    def read(self, pattern: str = "io.frazil.connect:*") -> Read:
        """Returns the attributes of all beans that `pattern` matches, read now."""
        self._reader.stdin.write(f"{pattern}\n")
        self._reader.stdin.flush()
        found: Read = {}
        for line in self._answer():
            name, attribute, value = line.split("\t")
            found.setdefault(name.partition(":")[2], {})[attribute] = float(value)
        return found

    def wait(self, what: str, condition: Callable[[Read], object], timeout: float = 60) -> Read:
        """Reads until `condition` answers something true of what was read, and returns that."""

        def met() -> tuple[Read] | None:
            read = self.read()
            try:
                # That no bean is left is an answer, too.
                return (read,) if condition(read) else None
            except KeyError:
                return None  # A bean that is not there yet.

        (read,) = wait_until(what, met, timeout, 0.5)
        return read

    def _answer(self) -> Iterator[str]:
        while (line := self._reader.stdout.readline()) != "\n":
            if not line:
                raise BedError("the reader of MBeans has ended")
            yield line.rstrip("\n")


def rules(path: Path = MONITORING / "jmx-exporter.yml") -> list[tuple[re.Pattern[str], str]]:
    """Returns pattern and name of each rule of the exporter's configuration, in its order."""
    found = re.findall(r"- pattern: '(.+)'\n\s+name: (\S+)\n", path.read_text())
    return [(re.compile(pattern), name) for pattern, name in found]


def exported(read: Read) -> set[str]:
    """Returns the names that the exporter gives to what was read: the first rule that matches counts."""
    names = set()
    for bean, attributes in read.items():
        # The exporter writes the keys of a name with a comma and a space between them.
        keys = re.sub(r',(?=[a-z]+=)', ", ", bean)
        for attribute, value in attributes.items():
            line = f"io.frazil.connect<{keys}><>{attribute}: {value}"
            hits = ((pattern.fullmatch(line), name) for pattern, name in rules())
            hit = next(((found, name) for found, name in hits if found), None)
            if hit is None:
                raise BedError(f"no rule matches {line}")
            found, name = hit
            name = re.sub(r"\$(\d)", lambda group: found.group(int(group.group(1))), name)
            names.add(re.sub(r"[^a-zA-Z0-9_]", "_", name).lower())
    return names


def named(file: str) -> set[str]:
    """Returns the metrics that a file of `monitoring/` names."""
    return set(re.findall(r"\bfrazil_[a-z_]+", (MONITORING / file).read_text()))
