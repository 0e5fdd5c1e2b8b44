"""What the long runs begin and end with: a connector under a steady load, and a watch over it."""

from __future__ import annotations

from dataclasses import dataclass

from measure import Load, Times, Watch, exactly_once, state_of, wait_lag_zero

from bed.connect import Worker
from bed.kafka import Broker
from bed.process import wait_until
from bed.sink import sink, verify


@dataclass
class Scenario:
    """One connector on a cluster, which writes each record into every table."""

    workers: list[Worker]
    broker: Broker
    catalog: object
    name: str
    tables: list[str]
    load: Load
    watch: Watch

    @classmethod
    def begin(
        cls,
        workers: list[Worker],
        broker: Broker,
        catalog,
        name: str,
        tables: list[str],
        *,
        tasks: int,
        partitions: int,
        per_second: int,
        interval_ms: int,
        seconds: float = 120,
        **settings: str,
    ) -> Scenario:
        """Starts load, connector and watch. `seconds` is the time that the tasks have to run."""
        config = sink(
            catalog,
            name,
            ",".join(tables),
            tasks__max=str(tasks),
            iceberg__tables__metadata_columns="_topic,_partition,_offset",
            iceberg__control__commit__interval_ms=str(interval_ms),
            **settings,
        )
        broker.create_topic(name, partitions)
        load = Load(broker, name, partitions, per_second).start()
        workers[0].create(name, config)
        workers[0].wait_running(name, tasks, seconds)
        watch = Watch(catalog, tables[0], load).start()
        return cls(workers, broker, catalog, name, tables, load, watch)

    def wait_begun(self) -> None:
        """Waits for the first commit of every table."""

        def all_begun() -> bool:
            found = (self.catalog.metadata(*table.rsplit(".", 1)) for table in self.tables)
            return all(state_of(metadata or {}) for metadata in found)

        wait_until("the first commit of every table", all_begun, 180, 1)

    def wait_lag_zero(self, timeout: float) -> float | None:
        """Waits until the group has committed all that was sent; the watch ends then."""
        lag = wait_lag_zero(self.broker, f"connect-{self.name}", self.load, timeout)
        self.watch.stop()
        return lag

    def times(self) -> Times:
        return Times.read(self.catalog, self.tables)

    def end(self, through: Worker | None = None) -> None:
        """Deletes the connector, through a worker that is surely up, and stops the workers."""
        (through or self.workers[0]).delete(self.name)
        for worker in self.workers:
            worker.stop()

    def wrong(self, reader) -> dict[str, list[tuple]]:
        """Counts all tables in SQL and returns what is wrong, by table."""
        return exactly_once(reader, self.catalog, self.tables, self.load)

    def verify(self, shares: int) -> list:
        """Runs `frazil verify` on about so many of the tables."""
        ends = {(self.name, partition): end for partition, end in enumerate(self.load.ends)}
        some = self.tables[:: max(1, len(self.tables) // shares)]
        return [verify(self.catalog, table, ends) for table in some]
