"""A catalog that answers late, and then not at all, while records come faster than memory holds."""

from __future__ import annotations

import re
import time

import pytest
from measure import Resident

from bed.exactly import Flow, pause_for
from bed.process import wait_until
from bed.proxy import Hold, Proxied, delay

PAUSED = re.compile(r"Pausing partitions")
RESUMED = re.compile(r"Resuming partitions")
LOGGER = "org.apache.kafka.connect.runtime.WorkerSinkTaskContext"
SILENT_SECONDS = 60
BUDGET = 64 << 20


@pytest.fixture
def slow(rest):
    """The reference catalog behind a proxy of its own."""
    made = Proxied(rest, rest.port)
    yield made
    made.proxy.clear()
    made.proxy.stop()


# Promise (long): a catalog that answers 3 s late, and then not at all for a minute, ends in back-pressure:
# the consumer is paused, memory stays bounded, and all is in the table once when the catalog is back
@pytest.mark.long
def test_a_slow_catalog_pauses_the_consumer(make_worker, broker, slow, name):
    worker = make_worker(heap="512m").start()
    # Connect tells in its own words when a task pauses its consumer.
    worker.call("PUT", f"/admin/loggers/{LOGGER}", {"level": "DEBUG"})
    run = Flow(
        worker,
        broker,
        slow,
        name,
        reads=slow.direct,
        frazil__memory__max__bytes=str(BUDGET),
    )
    proxy = slow.proxy
    with run.running():
        run.send_noise(2000)
        run.settle()
        resident = Resident(worker.process.pid)
        before = resident.now()
        late = proxy.rule(delay(3))
        began, at_first = time.monotonic(), run.sent
        while time.monotonic() - began < 30:
            run.send_noise(400)
            pause_for(0.5)
        late.wait_met(5)
        # Late answers hold nothing up for good.
        wait_until("a commit with late answers", lambda: min(run.rows()) > at_first, 30, 1)
        proxy.clear()
        hold = Hold()
        silent = proxy.rule(hold)
        at_silence = len(PAUSED.findall(worker.log()))
        began = time.monotonic()
        while time.monotonic() - began < SILENT_SECONDS:
            run.send_noise(400)
            pause_for(0.5)
        silent.wait_met()
        stalled = run.rows()
        assert worker.task_states(name) == ["RUNNING"] * run.tasks
        pauses = len(PAUSED.findall(worker.log())) - at_silence
        proxy.clear()
        hold.release()
        most = resident.stop()
        run.check(timeout=180, lag=60)
        assert len(RESUMED.findall(worker.log())) > 0
    print(f"rows at the end of the silence {stalled} of {run.sent}; RSS {before} to {most} MB; {pauses} pauses")
    assert max(stalled) < run.sent, "the catalog was not silent"
    assert pauses > 0, "the consumer was never paused while the catalog was silent"
    assert most - before < 400, f"{before} to {most} MB"
