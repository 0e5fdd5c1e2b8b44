"""A worker that is killed with -9, again and again, while it writes."""

from __future__ import annotations

import threading
import time

from pyiceberg.catalog import load_catalog

from bed import data
from bed.process import wait_until
from bed.read import TableView
from bed.sink import running, sink, verify

PARTITIONS = 4
CHUNK = 10_000


class Feed:
    """Produces orders in the background at a pace that leaves time to kill somebody."""

    def __init__(self, broker, topic: str) -> None:
        self.sent = 0
        self._broker, self._topic = broker, topic
        self._thread: threading.Thread | None = None

    def start(self, count: int) -> None:
        self._thread = threading.Thread(target=self._send, args=(self.sent + count,), daemon=True)
        self._thread.start()

    def _send(self, end: int) -> None:
        while self.sent < end:
            chunk = data.orders(CHUNK, self.sent)
            self._broker.produce_json(self._topic, chunk, lambda index: index % PARTITIONS)
            self.sent += CHUNK
            time.sleep(0.3)

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join(180)
        assert not self._thread.is_alive(), "the producer hangs"


# Promise: 1,000,000 records on 4 partitions, to S3 with vended keys, are each in the table exactly
# once although the worker is killed with -9 three times
def test_no_record_is_lost_or_doubled_by_kill_9(make_worker, broker, weed, name):
    count = 1_000_000
    broker.create_topic(name, PARTITIONS)
    table = f"{name}.orders"
    config = sink(
        weed,
        name,
        table,
        tasks__max="2",
        iceberg__tables__metadata_columns="_topic,_partition,_offset",
        # A dead task leaves its group after 6 s, not after 45.
        consumer__override__session__timeout__ms="6000",
        consumer__override__heartbeat__interval__ms="2000",
    )
    view, feed = TableView(weed, table), Feed(broker, name)
    worker = make_worker(plugin="jar", heap="1g").start()
    worker.create(name, config)
    committed = 0
    for kill in range(3):
        feed.start(count // 4)
        wait_until("a commit", lambda: view.rows() > committed, 120, 0.1)
        time.sleep(0.35 * kill)  # another moment of the commit interval each time
        worker.kill()
        committed = view.rows()
        assert 0 < committed < count * (kill + 1) // 4, f"kill {kill} came too late to matter"
        feed.join()
        worker.start()
    feed.start(count // 4)
    feed.join()
    view.wait_rows(count, 240, 1)
    exactly_once(view, name, count)
    worker.delete(name)
    ends = {(name, partition): count // PARTITIONS for partition in range(PARTITIONS)}
    broker.wait_group_offsets(f"connect-{name}", ends)
    worker.stop()
    assert view.offsets() == {name: [count // PARTITIONS] * PARTITIONS}
    verified = verify(weed, table, ends)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert f"{count} rows of {PARTITIONS} partitions, 0 bad" in verified.stdout


def exactly_once(view: TableView, topic: str, count: int) -> None:
    """Checks every (topic, partition, offset) and every order."""
    per_partition = count // PARTITIONS
    asked = (
        "SELECT _topic, _partition, count(*), count(DISTINCT _offset), min(_offset), max(_offset)"
        " FROM {t} GROUP BY ALL ORDER BY _partition"
    )
    assert view.query(asked) == [
        (topic, partition, per_partition, per_partition, 0, per_partition - 1)
        for partition in range(PARTITIONS)
    ]
    # Order n is at offset n / 4 of partition n % 4, so a mix-up shows as well.
    asked = f"SELECT count(*) FROM {{t}} WHERE id != _offset * {PARTITIONS} + _partition"
    assert view.query(asked) == [(0,)]
    assert view.query("SELECT count(DISTINCT id), sum(id) FROM {t}") == [
        (count, count * (count - 1) // 2)
    ]


# Promise: `frazil verify` finds a doubled row
def test_verify_finds_a_doubled_row(worker, broker, rest, name):
    broker.create_topic(name)
    broker.produce_json(name, data.orders(100))
    table = f"{name}.orders"
    config = sink(
        rest, name, table, iceberg__tables__metadata_columns="_topic,_partition,_offset"
    )
    view = TableView(rest, table)
    with running(worker, name, config):
        view.wait_rows(100, 60)
    ends = {(name, 0): 100}
    sound = verify(rest, table, ends)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    assert "100 rows of 1 partitions, 0 bad" in sound.stdout
    other = load_catalog("bed", type="rest", uri=rest.uri).load_table(table)
    other.append(other.scan(row_filter="_offset = 42").to_arrow())
    verified = verify(rest, table, ends)
    assert verified.returncode == 1, verified.stdout + verified.stderr
    assert "42" in verified.stdout + verified.stderr
