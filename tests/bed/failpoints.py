"""Arms the places where a worker with the failpoint library may be cut."""

from __future__ import annotations

import os
from pathlib import Path

from .artifacts import BUILD
from .process import BedError, wait_until


def library() -> Path:
    """Returns the library with failpoints, which `./x chaos` builds."""
    given = os.environ.get("FRAZIL_CHAOS_LIBRARY")
    path = Path(given) if given else BUILD / "chaos" / "libfrazil.so"
    if not path.is_file():
        raise BedError(f"{path} is missing: run ./x test --only failpoints")
    return path


class Failpoints:
    """The file that a worker reads at each point."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._armed = 0
        self._before: dict[str, int] = {}
        # Whose output tells what happened.
        self.worker = None
        self.disarm()

    def worker_options(self) -> dict[str, object]:
        """What a worker is started with, so that it loads the library and reads this file."""
        return {
            "jvm": (f"-Dfrazil.native.path={library()}",),
            "env": {"FRAZIL_FAILPOINTS": str(self._file)},
        }

    def arm(self, **points: str) -> None:
        """Sets what happens at each point; `__` stands for a dot and `_` for a dash."""
        # Each line has a count of its own in the process, so that none may be like an earlier one.
        self._armed += 1
        lines = []
        for name, action in points.items():
            point = name.replace("__", ".").replace("_", "-")
            lines.append(f"{point}={action}{' ' * self._armed}\n")
            self._before[point] = self._count(point)
        fresh = self._file.with_suffix(".new")
        fresh.write_text("".join(lines))
        fresh.replace(self._file)

    def disarm(self) -> None:
        self.arm()

    def _count(self, point: str) -> int:
        """Counts how often a point has happened so far."""
        said = f"failpoint {point}:"
        return 0 if self.worker is None else self.worker.log().count(said)

    def wait_cut(self, point: str, timeout: float = 60) -> None:
        """Waits until a point has happened since it was armed."""
        wait_until(
            f"the failpoint {point}", lambda: self._count(point) > self._before[point], timeout
        )
