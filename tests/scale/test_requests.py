"""How many requests a file and a commit cost, counted by proxies before the store and the catalog."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass
from typing import Iterator

import pytest
from measure import keep, state_of

from bed import data, foreign
from bed.catalogs import RestCatalog, SeaweedFS
from bed.process import wait_until
from bed.proxy import COMMIT, Proxied, Proxy
from bed.sink import running, sink

PARTITIONS, STEPS, INTERVAL_MS = 8, 6, 1000

# What a file in the store is, by its name. The catalog writes the last one itself, through the same
# proxy, for the store's signatures name its host.
KINDS = {
    "data file": r"\.parquet",
    "manifest": r"-m\.avro",
    "manifest list": r"/snap-",
    "of the catalog": r"\.metadata\.json",
}


@dataclass
class Bed:
    """A store and a catalog, each behind a proxy."""

    catalog: Proxied
    store: Proxy

    def mark(self) -> tuple[int, int]:
        return len(self.catalog.proxy.log), len(self.store.log)

    def since(self, mark: tuple[int, int]) -> Counter[str]:
        """Counts what the plugin has asked for since `mark`."""
        found: Counter[str] = Counter()
        for method, path, _ in list(self.catalog.proxy.log)[mark[0] :]:
            commit = method == "POST" and re.search(COMMIT, path)
            found["commit" if commit else f"{method} of the catalog"] += 1
        for method, path, _ in list(self.store.log)[mark[1] :]:
            kind = next((kind for kind, name in KINDS.items() if re.search(name, path)), path)
            if kind != "of the catalog":
                found[f"{method} {kind}"] += 1
        return found


@pytest.fixture(scope="module")
def counted(scratch, logs) -> Iterator[Bed]:
    weed = SeaweedFS(scratch / "weed-counted", logs)
    store = Proxy(weed.s3_port).start()
    weed.s3 = store.uri
    weed.start()
    weed.make_bucket("counted")
    keys = {
        "s3.endpoint": store.uri,
        "s3.region": SeaweedFS.REGION,
        "s3.access-key-id": SeaweedFS.ACCESS_KEY,
        "s3.secret-access-key": SeaweedFS.SECRET_KEY,
        "s3.path-style-access": "true",
    }
    rest = RestCatalog(
        scratch / "rest-counted",
        logs,
        warehouse="s3://counted/wh",
        backend={"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **keys},
        vend=keys,
    ).start()
    catalog = Proxied(rest, rest.port)
    yield Bed(catalog, store)
    catalog.proxy.stop()
    rest.stop()
    weed.stop()
    store.stop()


class Steps:
    """A connector that is given records step by step, each for every partition."""

    def __init__(self, bed: Bed, broker, name: str) -> None:
        self.bed, self.broker, self.name, self.sent = bed, broker, name, 0

    def metadata(self) -> dict:
        return self.bed.catalog.direct.metadata(self.name, "t") or {}

    def step(self) -> None:
        """Sends some records and waits until they are in the table."""
        self.broker.produce_json(self.name, data.orders(80, self.sent), lambda index: index % PARTITIONS)
        self.sent += 80
        ends = [self.sent // PARTITIONS] * PARTITIONS

        def there() -> bool:
            state = state_of(self.metadata())
            return any(entry["o"] == ends for entry in state.get("t", {}).values())

        wait_until("the records of a step", there, 60, 0.1)
        # A proxy notes a request once its answer has passed, which others may see before.
        time.sleep(0.5)

    def settle(self) -> None:
        """Goes on until the group has come together: after a rebalance each task loads its table."""
        self.step()
        for _ in range(10):
            mark = self.bed.mark()
            self.step()
            if not self.bed.since(mark)["GET of the catalog"]:
                return
        raise AssertionError("the tasks load their table again and again")

    def summaries(self) -> list[dict]:
        snapshots = self.metadata()["snapshots"]
        ordered = sorted(snapshots, key=lambda snapshot: snapshot["sequence-number"])
        return [snapshot["summary"] for snapshot in ordered]


def asked(worker, broker, bed: Bed, name: str, tasks: int) -> tuple[Counter[str], Counter[str]]:
    """Returns the requests of some commits, and what these commits were."""
    broker.create_topic(name, PARTITIONS)
    settings = {"tasks__max": str(tasks), "iceberg__control__commit__interval_ms": str(INTERVAL_MS)}
    with running(worker, name, sink(bed.catalog, name, f"{name}.t", **settings), tasks):
        run = Steps(bed, broker, name)
        run.settle()
        before, mark = len(run.summaries()), bed.mark()
        for _ in range(STEPS):
            run.step()
        requests = bed.since(mark)
        new = run.summaries()[before:]
        assert worker.task_states(name) == ["RUNNING"] * tasks
    made = Counter(
        commits=len(new),
        files=sum(int(summary["added-data-files"]) for summary in new),
        segments=sum(int(summary["frazil.segments"]) for summary in new),
    )
    keep(f"requests-{tasks}", {"made": dict(made), "requests": dict(sorted(requests.items()))})
    return requests, made


# Promise: requests are few and counted: one PUT and one HEAD for each data file, manifest and manifest
# list, one request to the catalog for each commit, and nothing is read back; the commit of 8 tasks
# asks for no more than that of one
def test_requests_are_few_and_counted(worker, broker, counted, name):
    commits = {}
    for tasks in (1, 8):
        requests, made = asked(worker, broker, counted, f"{name}_{tasks}", tasks)
        files, segments = made["files"], made["segments"]
        commits[tasks] = made["commits"]
        # A burst may fall on the end of an interval, and be two commits.
        assert STEPS <= commits[tasks] <= STEPS + 4, made
        assert segments >= tasks * STEPS and files == segments, made
        # Looked for again when the commit came late, on a machine that has other things to do.
        late = requests["HEAD manifest"] - segments
        assert 0 <= late <= segments / 4, requests
        assert requests == {
            "PUT data file": files,
            "HEAD data file": files,
            "PUT manifest": segments,
            "HEAD manifest": segments + late,
            "PUT manifest list": commits[tasks],
            "HEAD manifest list": commits[tasks],
            "commit": commits[tasks],
        }, (made, requests)


# Promise: a table that another writer changes costs one more request and one load, and is written once
def test_a_change_by_others_costs_a_request_and_a_load(worker, broker, counted, name):
    broker.create_topic(name, PARTITIONS)
    settings = {"iceberg__control__commit__interval_ms": str(INTERVAL_MS)}
    with running(worker, name, sink(counted.catalog, name, f"{name}.t", **settings)):
        run = Steps(counted, broker, name)
        run.step()
        run.step()
        snapshots, mark = run.summaries(), counted.mark()
        foreign.commit_to_branch(counted.catalog.direct, f"{name}.t", "main")
        run.step()
        requests = counted.since(mark)
        assert len(run.summaries()) == len(snapshots) + 2
        assert (requests["commit"], requests["GET of the catalog"]) == (2, 1), requests
        assert requests["PUT manifest list"] == 2, requests
