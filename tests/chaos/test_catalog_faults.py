"""A proxy in front of the catalog that refuses, lies, stalls and repeats."""

from __future__ import annotations

import pytest

from bed import foreign
from bed.exactly import pause_for
from bed.process import wait_until
from bed.proxy import Answer, Hold, after, delay, error, refuse, replay, reset, rewrite

long = pytest.mark.long

# How commits fail, one after the other in one life of a task.
FAILURES = [
    pytest.param([refuse(status) for status in (500, 502, 503, 504)], id="14-before"),
    pytest.param([after(status) for status in (500, 502, 503, 504)], id="15-after"),
    pytest.param([reset(applied=True), reset(applied=False)], id="16-reset"),
    pytest.param([replay(), replay()], id="18-replayed"),
]


# Promise: a commit that fails with 500, 502, 503 or 504 before or after it was applied, whose
# connection is reset, or that a proxy sends twice, is in the table once
# Injection: 14, 15, 16, 18
@pytest.mark.parametrize("faults", FAILURES)
def test_a_commit_fails(flow, proxy, faults):
    with flow().running() as run:
        for fault in faults:
            rule = proxy.on_commit(fault, count=1)
            run.send(200)
            rule.wait_met()
            run.settle()
        run.check()


# Injection: 17
@pytest.mark.parametrize(
    ("early", "timeout"),
    [
        pytest.param(error(504), "30000", id="17-given-up"),
        pytest.param(None, "3000", id="17-timed-out", marks=long),
    ],
)
def test_a_commit_is_applied_long_after_it_was_given_up(flow, proxy, early, timeout):
    """Meanwhile it was sent again: only one of the two may be applied."""
    socket = {"iceberg__catalog__rest__client__socket_timeout_ms": timeout}
    with flow(**socket).running() as run:
        hold = Hold(early)
        proxy.on_commit(hold, count=1)
        run.send(400)
        hold.wait_held()
        run.settle()
        assert hold.wait_answers() == [409]
        run.send(400)
        run.check()


# Injection: 13
@pytest.mark.long
def test_a_foreign_writer_commits_all_the_time(flow, proxied):
    with flow().running() as run:
        other = foreign.Appender(proxied.direct.uri, run.tables[0], threads=1).start()
        storm = foreign.Storm(run.reads, run.tables[0]).start()
        for _ in range(10):
            run.send(200)
            wait_until("rows", lambda: run.view.rows() >= run.sent, 60, 0.2)
        statuses, rows = storm.stop(), other.stop()
        assert statuses.count(200) > 20, f"the other writer was slow: {statuses}"
        run.check(foreign=rows)
        asked = f"SELECT count(*), count(DISTINCT _offset) FROM {{t}} WHERE _topic = '{foreign.TOPIC}'"
        assert run.view.query(asked) == [(rows, rows)]


# Injection: 19
@pytest.mark.long
def test_a_token_expires_in_the_middle_of_a_commit(flow, proxy):
    with flow().running() as run:
        rule = proxy.on_commit(refuse(401, "NotAuthorizedException"), count=1)
        run.send(400)
        rule.wait_met()
        run.check()


# Injection: 19
# Case: 37
@pytest.mark.long
def test_a_table_that_is_forbidden_stops_no_other(flow, proxy):
    with flow(tables=2, tasks=1).running() as run:
        rule = proxy.rule(refuse(403, "ForbiddenException"), method="POST", path="/tables/t0$")
        run.send(400)
        rule.wait_met()
        run.views[1].wait_rows(run.sent, 30)
        assert run.views[0].rows() == run.sent - 400
        wait_until("words", lambda: "grant the connector's identity the right" in run.worker.log(), 30)
        assert run.worker.task_states(run.name) == ["RUNNING"]
        proxy.clear()
        run.check()


# Injection: 20
@pytest.mark.long
def test_a_catalog_asks_for_patience(flow, proxy):
    with flow().running() as run:
        rule = proxy.rule(refuse(429, "TooManyRequests", Retry_After="2"), count=6)
        run.send(400)
        rule.wait_met(6, 90)
        run.check()


# Injection: 20
@pytest.mark.long
def test_a_catalog_is_down_for_long(flow, proxy):
    """Longer than a table may be blocked: an outage is no refusal, and no reason to fail."""
    run = flow(frazil__table__block__max_ms="5000")
    with run.running():
        proxy.rule(reset(applied=False))
        run.feed(count=80)
        pause_for(60)
        assert run.worker.task_states(run.name) == ["RUNNING", "RUNNING"]
        proxy.clear()
        run.stop_feed()
        run.check(timeout=150, lag=90)


# Injection: 21
@pytest.mark.long
@pytest.mark.parametrize("status", [pytest.param(400, id="21-400"), pytest.param(422, id="21-422")])
def test_a_catalog_refuses_a_commit(flow, proxy, status):
    """The table waits, with the catalog's words in the log, and is not stormed with requests."""
    with flow(tables=2, tasks=1).running() as run:
        rule = proxy.rule(
            refuse(status, "UnknownRequirement"), method="POST", path="/tables/t0$"
        )
        run.send(400)
        pause_for(8)
        run.views[1].wait_rows(run.sent, 30)
        assert 1 <= rule.met <= 10, f"{rule.met} requests in 8 s"
        assert "UnknownRequirement" in run.worker.log()
        assert run.worker.task_states(run.name) == ["RUNNING"]
        proxy.clear()
        run.check(timeout=120)


class Stale:
    """Answers a table as it was when it was asked for first."""

    def __init__(self) -> None:
        self.first: Answer | None = None

    def __call__(self, asked, forward) -> Answer:
        if self.first is None:
            self.first = forward(asked)
        return self.first


# Injection: 22
@pytest.mark.long
def test_a_catalog_answers_old_metadata(flow, proxy):
    with flow().running() as run:
        rule = proxy.rule(Stale(), method="GET", path="/tables/t0")
        # Whoever alone writes a table does not look at it; somebody else moves it, so that it is.
        foreign.commit_to_branch(run.reads, run.tables[0], "main")
        run.send(400)
        run.settle()
        rule.wait_met()
        # The next look is needed too, and is wrong.
        foreign.commit_to_branch(run.reads, run.tables[0], "main")
        met = rule.met
        run.send(400)
        rule.wait_met(met + 1)
        pause_for(3)
        assert run.worker.task_states(run.name) == ["RUNNING", "RUNNING"]
        proxy.clear()
        run.check()


def cut(body: bytes) -> bytes:
    return body[: len(body) // 2]


def garbage(_: bytes) -> bytes:
    return b'{"metadata": [{]'


def huge(_: bytes) -> bytes:
    return b'{"metadata-location": "' + b"x" * (300 << 20) + b'"}'


# Injection: 23
@pytest.mark.long
@pytest.mark.parametrize("how", [cut, garbage, huge], ids=["23-cut", "23-garbage", "23-huge"])
def test_a_catalog_answers_nonsense(flow, proxy, how):
    with flow().running() as run:
        commits = proxy.on_commit(rewrite(how), count=1)
        loads = proxy.rule(rewrite(how), method="GET", path="/tables/t0", count=1)
        run.send(400)
        commits.wait_met()
        loads.wait_met()
        run.check()
        resident = resident_megabytes(run.worker.process.pid)
        assert resident < 1500, f"{resident} MB"


def resident_megabytes(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii") as lines:
        found = next(line for line in lines if line.startswith("VmRSS:"))
    return int(found.split()[1]) // 1024


class Between:
    """Does something else between the load and the submission of a commit."""

    def __init__(self, what) -> None:
        self._what = what
        self.statuses: list[int] = []

    def __call__(self, asked, forward) -> Answer:
        self._what()
        answer = forward(asked)
        self.statuses.append(answer.status)
        return answer


# Promise: a commit of somebody else to another branch, between load and commit of ours, costs one
# more attempt
# Injection: 71
@pytest.mark.parametrize(
    "version", [pytest.param("2", id="71-v2"), pytest.param("3", id="71-v3", marks=long)]
)
def test_another_branch_moves_between_load_and_commit(flow, proxy, version):
    run = flow(iceberg__tables__auto_create_props__format_version=version)
    with run.running():
        assert run.view.metadata()["format-version"] == int(version)
        table = run.tables[0]
        between = Between(lambda: foreign.commit_to_branch(run.reads, table, "audit"))
        proxy.on_commit(between, count=2)
        run.send(400)
        run.settle()
        assert between.statuses and between.statuses[0] != 200, between.statuses
        run.send(400)
        run.check()
        assert "the table refuses commits" not in run.worker.log().split(run.name)[-1]


# Injection: 72
def test_a_commit_is_held_back_over_a_rollback_to_its_base(flow, proxy):
    """The branch is where it was, but the sequence number is not: the catalog has to refuse."""
    with flow().running() as run:
        run.wait_lag()
        base = run.view.metadata()["current-snapshot-id"]
        hold = Hold(early=error(504))
        proxy.on_commit(hold, count=1)
        run.send(400)
        hold.wait_held()
        run.settle()
        run.wait_lag()
        state = run.view.offsets()
        foreign.rollback(run.reads, run.tables[0], base)
        statuses = hold.wait_answers()
        assert statuses[0] in (400, 409), statuses
        assert run.view.metadata()["current-snapshot-id"] == base
        assert run.view.offsets() == state
        # What was rolled back stays away, and what comes next is there once.
        run.send(400)
        run.view.wait_rows(run.sent - 400, 60)
        asked = "SELECT count(DISTINCT id), min(id), max(id) FROM {t}"
        assert run.view.query(asked) == [(run.sent - 400, 0, run.sent - 1)]
        run.wait_lag()
        assert run.worker.task_states(run.name) == ["RUNNING"] * run.tasks


# Injection: 22
@pytest.mark.long
def test_a_catalog_is_slow(flow, proxy):
    with flow().running() as run:
        proxy.rule(delay(3))
        run.send(400)
        run.check(timeout=120)
