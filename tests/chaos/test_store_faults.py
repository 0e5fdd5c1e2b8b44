"""A proxy in front of the object store that refuses, stalls and cuts; and files that vanish."""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
import urllib.parse
from pathlib import Path
from typing import Iterator

import boto3
import pytest
from botocore.config import Config

from bed.catalogs import RestCatalog, SeaweedFS, SqlCatalog
from bed.exactly import Flow, pause_for
from bed.process import wait_until
from bed.proxy import Answer, Asked, Hold, Proxied, Proxy, delay
from bed.read import local
from bed.sink import small_tmp

long = pytest.mark.long


def s3_error(status: int, code: str) -> Answer:
    """An error as S3 words it."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>"
    return Answer(status, [("Content-Type", "application/xml")], body.encode())


def refuse(status: int, code: str):
    return lambda asked, forward: s3_error(status, code)


class Store:
    """SeaweedFS whose S3 port is behind a proxy for everybody, for signatures name the host."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self.weed = SeaweedFS(folder, logs)
        self.proxy = Proxy(self.weed.s3_port).start()
        self.weed.s3 = self.proxy.uri
        self.weed.start()

    def client(self):
        return boto3.client(
            "s3",
            endpoint_url=self.proxy.uri,
            aws_access_key_id=SeaweedFS.ACCESS_KEY,
            aws_secret_access_key=SeaweedFS.SECRET_KEY,
            region_name=SeaweedFS.REGION,
            config=Config(s3={"addressing_style": "path"}),
        )

    def stop(self) -> None:
        self.weed.stop()
        self.proxy.stop()


@pytest.fixture(scope="module")
def store_process(scratch, logs) -> Iterator[Store]:
    started = Store(scratch / "weed-proxied", logs)
    yield started
    started.stop()


@pytest.fixture
def store(store_process) -> Iterator[Store]:
    yield store_process
    store_process.proxy.clear()


@pytest.fixture
def stored(cut_worker, broker, store, points, name):
    """Makes flows whose files go through the store's proxy."""
    def make(**options) -> Flow:
        options.setdefault("catalog", store.weed)
        return Flow(cut_worker, broker, name=name, **options)

    return make


# Injection: 24
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(refuse(503, "SlowDown"), id="24-503"),
        pytest.param(refuse(500, "InternalError"), id="24-500", marks=long),
        pytest.param(delay(6), id="24-late", marks=long),
    ],
)
def test_a_store_fails_every_fifth_write(stored, store, fault):
    with stored().running() as run:
        rule = store.proxy.rule(fault, method="PUT|POST", share=0.2)
        run.feed(count=200, pause=0.5)
        rule.wait_met(3, 90)
        run.stop_feed()
        store.proxy.clear()
        run.check(timeout=120)


class CutPut:
    """Stores only half of a body, and acknowledges all of it."""

    def __init__(self, store: Store) -> None:
        self._client = store.client()

    def __call__(self, asked: Asked, forward) -> Answer:
        path = urllib.parse.unquote(asked.path.split("?")[0]).lstrip("/")
        bucket, _, key = path.partition("/")
        body = asked.body[: len(asked.body) // 2]
        tag = self._client.put_object(Bucket=bucket, Key=key, Body=body)["ETag"]
        return Answer(200, [("ETag", tag)])


# Promise (long): a file that is cut on its way to the store, and acknowledged, is written again under
# another name: no table names it
# Injection: 25
@pytest.mark.long
@pytest.mark.parametrize(
    "files",
    [
        pytest.param(r"\.parquet", id="25-data-file"),
        pytest.param(r"-m\.avro", id="25-manifest"),
        pytest.param(r"/snap-", id="25-manifest-list"),
    ],
)
def test_a_body_is_cut_on_its_way(stored, store, files):
    with stored().running() as run:
        rule = store.proxy.rule(CutPut(store), method="PUT", path=files, count=1)
        run.send(400)
        rule.wait_met()
        run.settle()
        run.send(400)
        run.check()


# Injection: 28
@pytest.mark.long
def test_keys_are_revoked_for_one_table(stored, store):
    with stored(tables=2, tasks=1).running() as run:
        path = f"/{run.name}/t0[/-]"
        rule = store.proxy.rule(refuse(403, "AccessDenied"), path=path)
        run.send(400)
        rule.wait_met()
        run.views[1].wait_rows(run.sent, 60)
        assert run.worker.task_states(run.name) == ["RUNNING"]
        store.proxy.clear()
        run.check(timeout=120)


@pytest.fixture
def short_keys(scratch, logs, store, name) -> Iterator[Proxied]:
    """The reference catalog, which vends keys that end after some seconds, behind a proxy."""
    store.weed.make_bucket(f"keys-{name[-6:]}")
    keys = {
        "s3.endpoint": store.proxy.uri,
        "s3.region": SeaweedFS.REGION,
        "s3.access-key-id": SeaweedFS.ACCESS_KEY,
        "s3.secret-access-key": SeaweedFS.SECRET_KEY,
        "s3.path-style-access": "true",
    }
    catalog = RestCatalog(
        scratch / f"rest-{name[-6:]}",
        logs,
        warehouse=f"s3://keys-{name[-6:]}/wh",
        backend={"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", **keys},
        vend={**keys, "ttl": "5"},
    ).start()
    made = Proxied(catalog, catalog.port)
    yield made
    made.proxy.stop()
    catalog.stop()


# Injection: 27
@pytest.mark.long
def test_keys_end_while_files_are_written(stored, store, short_keys):
    """The keys live 5 s, and for 10 s no new ones are given out. The store would still take the old
    ones: that they are not used is what is tested, and that nothing is lost for it."""
    run = stored(catalog=short_keys, reads=Stored(short_keys.direct, store), tasks=1)
    with run.running():
        run.feed(count=80, pause=0.3)
        pause_for(6)
        rule = short_keys.proxy.rule(
            lambda asked, forward: Answer(500, [], b"{}"),
            method="GET",
            path=r"/tables/[^/]+$|/credentials$",
        )
        pause_for(10)
        assert rule.met > 0, "nobody asked for new keys"
        assert run.worker.task_states(run.name) == ["RUNNING"]
        short_keys.proxy.clear()
        run.check(timeout=120, lag=60)


class Stored(SeaweedFS):
    """A catalog of the bed whose files are in a store: what readers need of both."""

    def __init__(self, catalog: RestCatalog, store: Store) -> None:
        self._catalog = catalog
        self.s3 = store.weed.s3

    def connector(self) -> dict[str, str]:
        return self._catalog.connector()

    def metadata_location(self, namespace: str, table: str) -> str | None:
        return self._catalog.metadata_location(namespace, table)

    def metadata(self, namespace: str, table: str) -> dict | None:
        return self._catalog.metadata(namespace, table)


def files_of(run) -> set[Path]:
    """All files of the table's folder, on local disk."""
    location = local(run.view.metadata()["location"])
    return {path for path in Path(location).rglob("*") if path.is_file()}


# Promise (long): files that an orphan cleaner removes before they are committed are never committed; their
# rows are written again
# Injection: 26, 62
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param("-m.avro", id="26-manifest", marks=long),
        pytest.param("", id="62-all", marks=long),
    ],
)
def test_files_vanish_before_they_are_committed(flow, points, kinds):
    run = flow(tasks=1)
    with run.running():
        run.wait_lag()
        before = files_of(run)
        points.arm(seal__after_manifest="wait:4000*1")
        run.send(400)
        points.wait_cut("seal.after-manifest")
        points.disarm()
        fresh = {path for path in files_of(run) - before if path.name.endswith(kinds)}
        fresh = {path for path in fresh if not path.name.endswith(".metadata.json")}
        assert fresh, "there was nothing to remove"
        for path in fresh:
            path.unlink()
        run.settle()
        run.send(400)
        run.check()


# Injection: 29
@pytest.mark.long
def test_a_disk_is_full_and_then_read_only(flow, scratch, name):
    with small_tmp(scratch / f"{name}-small", "size=6m") as folder:
        catalog = SqlCatalog(folder)
        run = flow(catalog=catalog, reads=catalog, tasks=1)
        with run.running():
            filler = folder / "filler"
            fill(filler)
            run.send(400)
            wait_until("a full disk", lambda: "STORAGE_FULL" in tail_of(run), 60)
            assert run.rows() == [run.sent - 400]
            filler.unlink()
            run.settle()
            remount(folder, "ro")
            run.send(400)
            pause_for(5)
            assert run.worker.task_states(run.name) == ["RUNNING"]
            remount(folder, "rw")
            run.check(timeout=120)


def fill(file: Path) -> None:
    """Writes until there is no room."""
    with file.open("wb", buffering=0) as out, contextlib.suppress(OSError):
        while out.write(b"\0" * 4096):
            continue


def remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


def tail_of(run) -> str:
    """What the worker has said about this connector's tables."""
    lines = run.worker.log().splitlines()
    return "\n".join(line for line in lines if run.name in line or "STORAGE" in line)


# Injection: 24
@pytest.mark.long
def test_a_store_stalls_in_the_middle_of_a_file(stored, store):
    """A PUT that hangs for longer than a commit interval, and is then done."""
    with stored(tasks=1).running() as run:
        hold = Hold()
        store.proxy.rule(hold, method="PUT", path=r"\.parquet", count=1)
        run.send(400)
        hold.wait_held()
        pause_for(5)
        assert run.rows() == [run.sent - 400]
        hold.release()
        run.check()


# Injection: 24
@pytest.mark.long
def test_a_silent_store_pauses_the_consumer(stored, store):
    """Every request for a file is taken and none is answered, for most of a minute, under a steady load."""
    logger = "org.apache.kafka.connect.runtime.WorkerSinkTaskContext"
    with stored(tasks=1, frazil__memory__max__bytes=str(32 << 20)).running() as run:
        run.worker.call("PUT", f"/admin/loggers/{logger}", {"level": "DEBUG"})
        said = len(re.findall("Pausing partitions", run.worker.log()))
        hold = Hold()
        store.proxy.rule(hold, path=r"\.(parquet|avro)")
        began = time.monotonic()
        # Shorter than the time after which a silent request counts as failed.
        while time.monotonic() - began < 40:
            run.send_noise(400)
            pause_for(0.5)
        hold.wait_held()
        assert run.rows() == [400]
        assert run.worker.task_states(run.name) == ["RUNNING"]
        pauses = len(re.findall("Pausing partitions", run.worker.log())) - said
        store.proxy.clear()
        hold.release()
        run.check(timeout=180, lag=60)
        run.worker.call("PUT", f"/admin/loggers/{logger}", {"level": "INFO"})
    assert pauses > 0, "the consumer was never paused while the store was silent"
