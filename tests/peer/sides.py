"""The two sinks of a comparison: each with its own topic, table, catalog and control topic."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bed import data
from bed.artifacts import BUILD
from bed.connect import RestError, Worker
from bed.kafka import Broker
from bed.peer import PEER_VERSION, peer_sink
from bed.process import wait_until
from bed.read import TableView
from bed.sink import sink

RESULTS = BUILD / "peer" / "results.jsonl"
INTERVAL_MS = 5000
FRAZIL, APACHE = "Frazil", f"Apache {PEER_VERSION}"
# One word of these in FRAZIL_PEER_SIDES runs only that sink; the results of the other stay.
WANTED = os.environ.get("FRAZIL_PEER_SIDES", "frazil apache").split()


@dataclass
class Outcome:
    """What one sink did in one scenario."""

    scenario: str
    sink: str
    sent: int = 0
    rows: int = 0
    distinct: int = 0
    stall: float | None = None
    """Seconds from the last record until all were in the table without help; None: never."""
    waited: float = 0
    notes: list[str] = field(default_factory=list)

    @property
    def lost(self) -> int:
        return self.sent - self.distinct

    @property
    def doubled(self) -> int:
        return self.rows - self.distinct

    def write(self) -> None:
        """Adds this to the results of the run."""
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        with RESULTS.open("a") as out:
            out.write(json.dumps(asdict(self)) + "\n")
        print(f"\n{self}")


class Side:
    """One of the sinks, running."""

    def __init__(
        self, sink_name: str, catalog, broker: Broker, worker: Worker, name: str, through=None
    ) -> None:
        # What the sink talks to; tests go to the catalog itself.
        self.through = catalog if through is None else through
        self.sink, self.catalog, self.broker, self.worker = sink_name, catalog, broker, worker
        self.short = sink_name.split()[0].lower()
        self.topic = f"{name}_{self.short}"
        self.table = f"{name}.{self.short}"
        self.connector = f"{name}-{self.short}"
        self.control = f"control-{name}" if self.short == "apache" else "frazil-control"
        self.branch: str | None = None
        self.interval_ms = INTERVAL_MS
        self.view = TableView(catalog, self.table)
        self.sent = 0
        """What has to be in the table."""
        self.produced = 0
        self.sent_at = time.monotonic()
        self.outcome = Outcome(name.rsplit("_", 1)[0], sink_name)

    def config(self, tasks: int = 1, **extra: str) -> dict[str, str]:
        if self.short == "apache":
            config = peer_sink(self.through, self.topic, self.table, self.control, self.interval_ms, tasks)
        else:
            config = sink(self.through, self.topic, self.table, tasks__max=str(tasks))
            config["iceberg.control.commit.interval-ms"] = str(self.interval_ms)
        return config | {key.replace("__", ".").replace("_", "-"): value for key, value in extra.items()}

    def start(self, partitions: int = 1, tasks: int = 1) -> None:
        self.broker.create_topic(self.topic, partitions)
        if self.short == "apache":
            self.broker.create_topic(self.control)
        self.worker.create(self.connector, self.config(tasks))
        self.worker.wait_running(self.connector, tasks, 120)

    def send(self, count: int, partitions: int = 1) -> None:
        """Sends orders round robin over `partitions`; the ids go on where the last call ended."""
        self.broker.produce_json(
            self.topic, data.orders(count, self.produced), lambda index: index % partitions
        )
        self.sent += count
        self.produced += count
        self.sent_at = time.monotonic()

    def counts(self) -> tuple[int, int]:
        """Returns the rows and the distinct ids of the table, or of its branch `self.branch`."""
        metadata = self.catalog.metadata(*self.table.rsplit(".", 1))
        if metadata is None or metadata.get("current-snapshot-id") in (None, -1):
            return 0, 0
        scanned = "{t}"
        if self.branch is not None:
            # A branch that does not exist would begin with what is on main.
            refs = metadata.get("refs", {})
            ref = refs.get(self.branch) or refs["main"]
            location = self.view.location()
            scanned = f"iceberg_scan('{location}', snapshot_from_id => {ref['snapshot-id']})"
        # Rows with an id below 0 are those of a foreign writer.
        asked = f"SELECT count(*), count(DISTINCT id) FROM {scanned} WHERE id >= 0"
        return self.view.query(asked)[0]

    def on_branch(self) -> bool:
        """Tells whether the branch that is written to is there."""
        metadata = self.catalog.metadata(*self.table.rsplit(".", 1)) or {}
        return (self.branch or "main") in metadata.get("refs", {})

    def settle(self, wanted: int, limit: float) -> float | None:
        """Waits until `wanted` distinct rows are there and returns the seconds, or None."""
        start = time.monotonic()
        while True:
            if self.counts()[1] >= wanted and self.on_branch():
                return time.monotonic() - start
            if time.monotonic() - start > limit:
                return None
            time.sleep(0.5)

    def state(self) -> str:
        """Returns the states of the tasks, and of a failed one the error's class and first words."""
        states = " ".join(sorted(set(self.worker.task_states(self.connector))))
        failure = self.worker.failure(self.connector)
        if failure is None:
            return states
        causes = [line for line in failure.splitlines() if line.startswith("Caused by: ")]
        return f"{states}: {(causes or failure.splitlines())[-1].removeprefix('Caused by: ')[:160]}"

    def restart(self) -> None:
        """What a human does: restarts connector and tasks."""
        path = f"/connectors/{self.connector}/restart?includeTasks=true"
        self.worker.insist("POST", path)
        self.note("restarted by hand")

        def running() -> bool:
            states = self.worker.task_states(self.connector)
            return bool(states) and all(state in ("RUNNING", "FAILED") for state in states)

        time.sleep(1)
        wait_until(f"{self.connector} to restart", running, 60, 0.5)

    def recreate_control(self) -> None:
        """Deletes the control topic and makes it anew, where this sink has one."""
        if self.control not in self.broker.admin.list_topics(timeout=10).topics:
            self.note("has no control topic")
            return
        self.broker.delete_topic(self.control)
        self.broker.create_topic(self.control)

    def passed(self) -> int:
        """Returns the sum of the source offsets that the consumer group has committed."""
        return sum(self.broker.group_offsets(f"connect-{self.connector}").values())

    def note(self, text: str) -> None:
        self.outcome.notes.append(text)

    def end(self) -> Outcome:
        """Counts once more, keeps the outcome and deletes the connector."""
        outcome = self.outcome
        outcome.sent = self.sent
        outcome.rows, outcome.distinct = self.counts()
        outcome.notes.append(f"the group has passed {self.passed()} of {self.produced} records")
        outcome.notes.append(f"at the end {self.state()}")
        outcome.write()
        self.delete()
        return outcome

    def delete(self) -> None:
        try:
            self.worker.delete(self.connector)
        except RestError as error:
            if error.status != 404:
                raise
