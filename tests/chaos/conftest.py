"""The bed of the chaos runs: a worker that can be cut, and a catalog behind a proxy."""

from __future__ import annotations

from typing import Callable, Iterator

import pytest

from bed.connect import Worker, start_cluster
from bed.exactly import Flow
from bed.failpoints import Failpoints
from bed.proxy import Proxied, Proxy


@pytest.fixture(scope="session")
def failpoints(scratch) -> Failpoints:
    return Failpoints(scratch / "failpoints")


@pytest.fixture(scope="session")
def cut_worker(make_worker: Callable[..., Worker], failpoints: Failpoints) -> Worker:
    """The worker with the failpoint library, which chaos runs share."""
    return make_worker(plugin="jar", heap="512m", **failpoints.worker_options()).start()


@pytest.fixture(scope="session")
def proxied(rest) -> Iterator[Proxied]:
    """The reference catalog behind a proxy."""
    made = Proxied(rest, rest.port)
    yield made
    made.proxy.stop()


@pytest.fixture
def proxy(proxied: Proxied) -> Iterator[Proxy]:
    """The proxy in front of the catalog; its rules end with the test."""
    yield proxied.proxy
    proxied.proxy.clear()


@pytest.fixture
def points(failpoints: Failpoints, cut_worker: Worker) -> Iterator[Failpoints]:
    """The failpoints, disarmed when the test ends; a worker that was killed is started again."""
    failpoints.worker = cut_worker
    yield failpoints
    failpoints.disarm()
    if not cut_worker.process.running():
        cut_worker.start()


@pytest.fixture
def flow(cut_worker, broker, proxied, proxy, points, name) -> Callable[..., Flow]:
    """Makes a flow through the shared worker and the proxied catalog."""

    def make(**options) -> Flow:
        options.setdefault("catalog", proxied)
        options.setdefault("reads", proxied.direct)
        return Flow(cut_worker, broker, name=name, **options)

    return make


@pytest.fixture(scope="session")
def cluster(make_worker, failpoints) -> Iterator[list[Worker]]:
    """Two workers of one cluster."""
    settings = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1500"}
    workers = start_cluster(
        make_worker, 2, plugin="jar", heap="384m", settings=settings, **failpoints.worker_options()
    )
    yield workers
    for worker in workers:
        worker.stop()


@pytest.fixture
def spread(cluster, broker, proxied, proxy, points, name) -> Callable[..., Flow]:
    """Makes flows whose two tasks run on the two workers of the cluster."""

    def make(**options) -> Flow:
        return Flow(cluster[0], broker, proxied, name, reads=proxied.direct, **options)

    return make
