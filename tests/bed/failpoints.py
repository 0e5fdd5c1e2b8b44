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
        self.disarm()

    def worker_options(self) -> dict[str, object]:
        """What a worker is started with, so that it loads the library and reads this file."""
        return {
            "jvm": (f"-Dfrazil.native.path={library()}",),
            "env": {"FRAZIL_FAILPOINTS": str(self._file)},
        }

    def arm(self, **points: str) -> None:
        """Sets what happens at each point; `__` stands for a dot and `_` for a dash."""
        lines = [
            f"{name.replace('__', '.').replace('_', '-')}={action}\n"
            for name, action in points.items()
        ]
        fresh = self._file.with_suffix(".new")
        fresh.write_text("".join(lines))
        fresh.replace(self._file)

    def disarm(self) -> None:
        self.arm()


def cuts(worker) -> list[str]:
    """Returns the points that happened in a worker so far, as `name: action`."""
    said = "failpoint "
    lines = worker.log().splitlines()
    return [line.split(said, 1)[1] for line in lines if line.startswith(said)]


def wait_cut(worker, point: str, already: int = 0, timeout: float = 60) -> None:
    """Waits until a point happened once more than `already`."""
    wait_until(
        f"the failpoint {point}",
        lambda: sum(cut.startswith(f"{point}:") for cut in cuts(worker)) > already,
        timeout,
    )
