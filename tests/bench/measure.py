"""What a process used, what the machine did besides, and what the garbage collector says."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from bed.artifacts import java

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Returns the user and system time of a process and all its threads, to the nanosecond."""
    # The number of a process's own clock, as clock_getcpuclockid makes it.
    return time.clock_gettime((~pid << 3) | 2)


def peak_rss_mb(pid: int) -> int:
    """Returns the most memory that a process has ever had resident."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    if found is None:
        raise OSError(f"no VmHWM of {pid}")
    return int(found[1]) // 1024


def busy_seconds() -> float:
    """Returns the CPU time that all processes together have used, and what the host took away."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    user, nice, system, _idle, _wait, irq, softirq, steal = map(int, words)
    return (user + nice + system + irq + softirq + steal) / TICKS


@dataclass(frozen=True)
class Pauses:
    """What a garbage collector's log says of a span of time."""

    seconds: float
    heap_mb: int
    """The largest heap after a collection."""


PAUSE = re.compile(r"^\[(\S+?)\].*\bPause\b.*\b\d+M->(\d+)M\(\d+M\) ([\d.]+)ms")


def pauses(log: str, begin: float, end: float) -> Pauses:
    """Adds up the pauses of a log (`-Xlog:gc:file=…:time`) between two times of the clock."""
    seconds, heap = 0.0, 0
    for line in log.splitlines():
        found = PAUSE.match(line)
        if found is None:
            continue
        when = datetime.datetime.strptime(found[1], "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
        if begin <= when <= end:
            seconds += float(found[3]) / 1000
            heap = max(heap, int(found[2]))
    return Pauses(seconds, heap)


@dataclass(frozen=True)
class Polled:
    """What `Probe` said: when the first and the last record came, and the CPU time at the first."""

    first: float
    last: float
    first_cpu: float
    records: int
    polls: int


def polled(file: Path, wanted: int) -> Polled | None:
    """Reads the file of a probe; None until all records have been polled."""
    if not file.exists():
        return None
    lines = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
    if not lines or lines[-1]["records"] < wanted:
        return None
    # More than wanted means that records came twice; the first time that all were there counts.
    last = next(line for line in lines if line["records"] >= wanted)
    return Polled(
        lines[0]["ms"] / 1000,
        last["ms"] / 1000,
        lines[0]["cpu_ns"] / 1e9,
        lines[-1]["records"],
        lines[-1]["polls"],
    )


def machine() -> dict[str, str]:
    """Says what this runs on."""
    info = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.+)", info)
    memory = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    version = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True)
    return {
        "cpu": f"{os.cpu_count()} x {model[1] if model else platform.machine()}",
        "memory": f"{int(memory[1]) // (1 << 20)} GiB" if memory else "unknown",
        "kernel": platform.release().partition("-")[0],
        "java": version.stderr.splitlines()[-2].partition("(build ")[2].partition(")")[0]
        or version.stderr.splitlines()[0],
        "date": datetime.date.today().isoformat(),
    }
