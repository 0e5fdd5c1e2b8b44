"""The bed that all end-to-end tests share: one broker, one worker, catalogs made on demand."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Callable, Iterator

import pytest

from bed.artifacts import LOGS
from bed.catalogs import RestCatalog, SeaweedFS, SqlCatalog
from bed.connect import Worker
from bed.kafka import Broker

USUAL_VERSION = "4.3.1"
# What `./x test` runs at the same time, about equally long, and what runs alone afterwards, for it measures
# time. Each folder with tests is in one lane.
LANES = {
    "first": {"bed", "cdc", "chaos", "interop"},
    "second": {"bench", "catalogs", "connect", "coordination", "peer"},
    "alone": {"scale"},
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the long tests too, at full size")
    parser.addoption("--lane", choices=LANES, help="run only the folders of one lane")
    parser.addoption("--peer", action="store_true", help="compare with Apache Iceberg's sink")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def leave_out(left_out: list[pytest.Item]) -> None:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]

    for option, marker in (("--all", "long"), ("--peer", "peer")):
        if not config.getoption(option):
            leave_out([item for item in items if item.get_closest_marker(marker)])
    if lane := config.getoption("--lane"):
        leave_out([item for item in items if lane_of(item) != lane])


def lane_of(item: pytest.Item) -> str:
    folder = item.path.relative_to(item.config.rootpath).parts[0]
    lanes = [lane for lane, folders in LANES.items() if folder in folders]
    if len(lanes) != 1:
        raise pytest.UsageError(f"tests/conftest.py: the folder {folder} has {len(lanes)} lanes")
    return lanes[0]


@pytest.fixture(scope="session")
def full_size(request: pytest.FixtureRequest) -> bool:
    """Tells whether this run was asked for the long form of its tests."""
    return bool(request.config.getoption("--all"))


@pytest.fixture(scope="session")
def scratch(request: pytest.FixtureRequest) -> Iterator[Path]:
    """One folder for everything this run writes. It is removed unless something failed."""
    folder = Path(tempfile.mkdtemp(prefix="frazil-bed-"))
    yield folder
    if request.session.testsfailed and os.environ.get("FRAZIL_KEEP"):
        print(f"\nkept: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def logs(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder of this run's own in build/logs/e2e: another run at the same time has its own. Kept when
    something failed, until the next run."""
    for old in (LOGS / "e2e").glob("*"):
        if not Path("/proc", old.name).exists():
            shutil.rmtree(old, ignore_errors=True)
    folder = LOGS / "e2e" / str(os.getpid())
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder
    if not request.session.testsfailed:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def broker(scratch: Path, logs: Path) -> Iterator[Broker]:
    started = Broker(scratch / "broker", logs)
    try:
        yield started.start()
    finally:
        started.stop()


@pytest.fixture(scope="session")
def make_worker(broker: Broker, scratch: Path, logs: Path) -> Iterator[Callable[..., Worker]]:
    """Makes workers that end with the run. The caller starts them, and may stop them earlier."""
    made: list[Worker] = []

    def make(version: str = USUAL_VERSION, **options) -> Worker:
        folder = scratch / f"worker-{version}-{len(made)}"
        folder.mkdir()
        made.append(Worker(version, broker, folder, logs, **options))
        return made[-1]

    try:
        yield make
    finally:
        for worker in made:
            worker.stop()


@pytest.fixture(scope="session")
def worker(make_worker: Callable[..., Worker]) -> Worker:
    """The worker that most tests share: the usual version, with only the JAR in plugin.path."""
    return make_worker(plugin="jar").start()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topic, connector and namespace that no other test uses."""
    stem = re.sub(r"[^a-z0-9]+", "_", request.node.name.removeprefix("test_").lower())[:40]
    return f"{stem.strip('_')}_{uuid.uuid4().hex[:6]}"


@pytest.fixture
def sql(scratch: Path, name: str) -> SqlCatalog:
    return SqlCatalog(scratch / name)


@pytest.fixture(scope="session")
def rest(scratch: Path, logs: Path) -> Iterator[RestCatalog]:
    """Apache's reference REST catalog over local files."""
    started = RestCatalog(scratch / "rest", logs)
    try:
        yield started.start()
    finally:
        started.stop()


@pytest.fixture(scope="session")
def weed(scratch: Path, logs: Path) -> Iterator[SeaweedFS]:
    """SeaweedFS: an independent REST catalog that vends keys, and the S3 store behind it."""
    started = SeaweedFS(scratch / "weed", logs)
    try:
        yield started.start()
    finally:
        started.stop()


@pytest.fixture
def connectors(worker: Worker) -> Iterator[list[str]]:
    """Names put into this list are deleted from the shared worker when the test ends."""
    made: list[str] = []
    yield made
    for connector in made:
        worker.delete(connector)
