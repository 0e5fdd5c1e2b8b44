"""Two tables from one topic, each on its own commit interval."""

from __future__ import annotations

import time

from bed import data
from bed.read import TableView
from bed.sink import running, sink


# Promise: tables of one topic commit each on its own interval; the slow one does not hold up the
# fast one, and the consumer group follows the slow one
def test_two_tables_commit_on_their_own_intervals(worker, broker, sql, name, full_size):
    seconds, long_interval = (300, 60) if full_size else (40, 15)
    fast, slow = f"{name}.fast", f"{name}.slow"
    config = sink(sql, name, f"{fast},{slow}")
    config[f"iceberg.table.{fast}.commit-interval-ms"] = "2000"
    config[f"iceberg.table.{slow}.commit-interval-ms"] = str(long_interval * 1000)
    broker.create_topic(name)
    views = [TableView(sql, fast), TableView(sql, slow)]
    sent, lags = 0, []
    with running(worker, name, config):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            broker.produce_json(name, data.orders(500, sent))
            sent += 500
            assert worker.task_states(name) == ["RUNNING"]
            lags.append(sent - views[0].rows())
            time.sleep(0.5)
        views[0].wait_rows(sent, 10)
        passed = broker.group_offsets(f"connect-{name}").get((name, 0), 0)
        durable = views[1].offsets().get(name, [0])[0]
        assert passed <= durable <= sent
        views[1].wait_rows(sent, long_interval + 15)
    snapshots = [len(view.snapshots()) for view in views]
    assert seconds / 2 * 0.5 <= snapshots[0] <= seconds / 2 + 6, snapshots
    rounds = seconds // long_interval
    assert rounds <= snapshots[1] <= rounds + 3, snapshots
    # Under the same load all the time, the fast table never falls behind by more than some seconds.
    assert max(lags[5:]) < 500 * 2 * 8, max(lags)
    for view in views:
        assert view.query("SELECT count(*), count(DISTINCT id) FROM {t}") == [(sent, sent)]
        times = sorted(snapshot["timestamp-ms"] for snapshot in view.snapshots())
        assert len(set(times)) == len(times)
    broker.wait_group_offsets(f"connect-{name}", {(name, 0): sent})
