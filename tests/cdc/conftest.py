"""The bed of the change data tests: a worker that has Debezium's connectors beside the sink."""

from __future__ import annotations

from typing import Callable, Iterator

import pytest

from bed import debezium
from bed.connect import Worker
from bed.databases import Maria, Postgres


@pytest.fixture(scope="session")
def postgres(scratch, logs) -> Iterator[Postgres]:
    started = Postgres(scratch / "postgresql", logs)
    try:
        yield started.start()
    finally:
        started.stop()


@pytest.fixture(scope="session")
def maria(scratch, logs) -> Iterator[Maria]:
    started = Maria(scratch / "mariadb", logs)
    try:
        yield started.start()
    finally:
        started.stop()


@pytest.fixture(scope="session")
def debezium_worker(make_worker: Callable[..., Worker]) -> Worker:
    """A worker with Debezium's connectors; a test that kills it starts it again."""
    # A source that is killed before its first offset is kept takes another snapshot, and then never tells
    # of rows that were deleted in between.
    settings = {"offset.flush.interval.ms": "1000"}
    worker = make_worker(plugin="jar", heap="640m", beside=debezium.plugins(), settings=settings)
    return worker.start()
