"""One sink under trouble, and the check that every such run ends with."""

from __future__ import annotations

import base64
import contextlib
import random
import threading
import time
from typing import Iterator

from . import data
from .process import BedError, wait_until
from .read import TableView
from .sink import sink, verify

# A dead task leaves its group after 6 s, not after 45.
SHORT_SESSION = {
    "consumer__override__session__timeout__ms": "6000",
    "consumer__override__heartbeat__interval__ms": "1500",
}


class Flow:
    """A topic with orders, a connector that writes them to one or more tables, and the proof.

    Order n is at offset n / P of partition n % P, so that a mix-up shows as well as a loss."""

    def __init__(
        self,
        worker,
        broker,
        catalog,
        name: str,
        *,
        partitions: int = 4,
        tasks: int = 2,
        tables: int = 1,
        reads=None,
        **overrides: str | None,
    ) -> None:
        self.worker, self.broker, self.catalog, self.name = worker, broker, catalog, name
        self.partitions, self.tasks = partitions, tasks
        # Who looks at the tables goes straight to the catalog.
        self.reads = reads if reads is not None else catalog
        self.tables = [f"{name}.t{number}" for number in range(tables)]
        self.views = [TableView(self.reads, table) for table in self.tables]
        self.sent = 0
        settings: dict[str, str | None] = {
            "tasks__max": str(tasks),
            "iceberg__tables__metadata_columns": "_topic,_partition,_offset",
            **SHORT_SESSION,
            **overrides,
        }
        self.config = sink(catalog, name, ",".join(self.tables), **settings)
        self._feeding: threading.Thread | None = None
        self._stop = threading.Event()

    @property
    def view(self) -> TableView:
        return self.views[0]

    @property
    def ends(self) -> dict[tuple[str, int], int]:
        each = self.sent // self.partitions
        return {(self.name, partition): each for partition in range(self.partitions)}

    @contextlib.contextmanager
    def running(self, first: int = 400) -> Iterator[Flow]:
        """Runs the connector for the time of a block, which starts when `first` rows are there."""
        self.broker.create_topic(self.name, self.partitions)
        self.worker.create(self.name, self.config)
        try:
            self.worker.wait_running(self.name, self.tasks)
            if first:
                self.send(first)
                self.settle()
            yield self
        finally:
            self.stop_feed()
            if self.worker.process.running():
                self.worker.delete(self.name)

    def send(self, count: int) -> None:
        if count % self.partitions:
            raise BedError("every partition gets the same number of records")
        orders = data.orders(count, self.sent)
        self.broker.produce_json(self.name, orders, lambda index: index % self.partitions)
        self.sent += count

    def send_noise(self, count: int) -> None:
        """Sends orders with a text that does not compress, 12 kB each: files of several parts."""

        def noisy() -> Iterator[dict]:
            for order in data.orders(count, self.sent):
                dice = random.Random(order["id"])
                yield {**order, "note": base64.b64encode(dice.randbytes(9000)).decode()}

        if count % self.partitions:
            raise BedError("every partition gets the same number of records")
        self.broker.produce_json(self.name, noisy(), lambda index: index % self.partitions)
        self.sent += count

    def send_nothing(self, count: int) -> None:
        """Counts records that the test has sent itself."""
        self.sent += count

    def feed(self, count: int = 400, pause: float = 0.2) -> None:
        """Sends in the background, until `stop_feed`."""
        self._stop.clear()

        def work() -> None:
            while not self._stop.wait(pause):
                self.send(count)

        self._feeding = threading.Thread(target=work, daemon=True)
        self._feeding.start()

    def stop_feed(self) -> None:
        self._stop.set()
        if self._feeding is not None:
            self._feeding.join(180)
            if self._feeding.is_alive():
                raise BedError("the producer hangs")
            self._feeding = None

    def rows(self) -> list[int]:
        return [view.rows() for view in self.views]

    def settle(self, timeout: float = 90, foreign: int = 0) -> None:
        """Waits until all that was sent is in all tables."""
        for view in self.views:
            view.wait_rows(self.sent + foreign, timeout, 0.25)

    def wait_progress(self, timeout: float = 60) -> None:
        """Waits for a commit to the first table."""
        before = len(self.view.snapshots())
        wait_until("a commit", lambda: len(self.view.snapshots()) > before, timeout, 0.2)

    def wait_lag(self, timeout: float = 30) -> None:
        """Waits until the consumer group has read all, as `kafka-consumer-groups` shows it."""
        self.broker.wait_group_offsets(f"connect-{self.name}", self.ends, timeout)

    def check(self, timeout: float = 90, lag: float = 30, foreign: int = 0) -> None:
        """Exactly once, lag 0, and no task that failed. `foreign` counts rows of another writer."""
        self.stop_feed()
        self.settle(timeout, foreign)
        self.wait_lag(lag)
        states = self.worker.task_states(self.name)
        if states != ["RUNNING"] * self.tasks:
            raise AssertionError(f"tasks: {states} {self.worker.failure(self.name)}")
        for view in self.views:
            self.check_table(view, foreign)

    def check_table(self, view: TableView, foreign: int = 0) -> None:
        """Every offset and every order once; no commit twice; and `frazil verify` agrees."""
        each = self.sent // self.partitions
        asked = (
            "SELECT _topic, _partition, count(*), count(DISTINCT _offset), min(_offset),"
            f" max(_offset), count(*) FILTER (id != _offset * {self.partitions} + _partition)"
            f" FROM {{t}} WHERE _topic = '{self.name}' GROUP BY ALL ORDER BY _partition"
        )
        found = view.query(asked)
        expected = [
            (self.name, partition, each, each, 0, each - 1, 0)
            for partition in range(self.partitions)
        ]
        assert found == expected, f"{view.table}: {found}"
        assert view.offsets() == {self.name: [each] * self.partitions}
        ids = [s["summary"].get("frazil.commit-id") for s in view.snapshots()]
        ours = [commit_id for commit_id in ids if commit_id is not None]
        assert len(set(ours)) == len(ours), "a commit was applied twice"
        verified = verify(self.reads, f"{view.namespace}.{view.table}", self.ends)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        sources = self.partitions + (1 if foreign else 0)
        said = f"{self.sent + foreign} rows of {sources} partitions, 0 bad"
        assert said in verified.stdout, verified.stdout

    def revive(self) -> None:
        """Starts the worker again and waits for the tasks."""
        self.worker.start()
        self.worker.wait_running(self.name, self.tasks, 120)

    def kill(self) -> None:
        self.worker.kill()

    def restart_tasks(self, timeout: float = 60) -> None:
        """Restarts what has failed, as a person would, and waits until it runs."""
        path = f"/connectors/{self.name}/restart?includeTasks=true&onlyFailed=true"
        self.worker.insist("POST", path)
        wait_until(
            f"{self.tasks} running tasks of {self.name}",
            lambda: self.worker.task_states(self.name) == ["RUNNING"] * self.tasks,
            timeout,
        )


def pause_for(seconds: float) -> None:
    """Waits, where the length of the wait is what is tested."""
    time.sleep(seconds)
