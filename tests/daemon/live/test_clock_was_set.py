"""The wall clock is set while the daemon runs or while it is down: no time lies in the future."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.daemon.job_table import JobTable
from dlsched.daemon.live.live_state import LiveState
from dlsched.db.reading.loading import JobFacts
from dlsched.db.store import Store
from dlsched.protocol.ledger import Attach, Changes, Ledger, Write, apply_all
from dlsched.protocol.messages import ExitReason, JobId
from tests.db.ledgers import assign, ended, node, submit

HOUR_S = 3600.0
JOB = JobId(1)


def submitted(at: float, number: int = 1, **body: object) -> Write:
    """A job that is submitted when the wall clock shows a time."""
    asked = submit(number, **body)
    assert asked.request.spec is not None
    spec = replace(asked.request.spec, submitted_at=at)
    return replace(asked, request=replace(asked.request, spec=spec))


class Lab:
    """A state that follows a ledger, and its database."""

    def __init__(self, store: Store) -> None:
        term = store.contend("d")
        assert term is not None
        self.store, self.epoch, self.number = store, term.epoch, 0
        self.live, self.ledger = LiveState(), store.load().ledger

    def write(self, now: float, *writes: Write) -> None:
        self.ledger = apply_all(self.ledger, writes)
        self.live.apply(Changes(writes), self.ledger, now)
        self.persist(now, *writes)

    def persist(self, now: float, *writes: Write) -> None:
        self.number += 1
        rows = map(Attach, self.live.rows_to_store())
        self.store.persist(self.epoch, self.number, [*writes, *rows], now)

    def begins(self, now: float) -> tuple[LiveState, JobTable]:
        """What a new daemon has."""
        loaded, table = self.store.load(), JobTable()
        table.load(loaded.ledger, loaded.jobs, 50.0, now)
        return self.live.successor(loaded, now), table


def of(live: LiveState, *names: str) -> list[float]:
    return [live.jobs.get(name, live.jobs.row_of[JOB]) for name in names]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Store.open(f"sqlite:///{tmp_path}/a.db") as store:
        yield Lab(store)


# -- while the daemon was down -------------------------------------------------------------------


def test_the_time_of_a_running_job_grows_where_the_clock_was_set_back(lab: Lab) -> None:
    lab.write(10000.0, node("n1"), submitted(10000.0))
    lab.write(10010.0, assign(1, ("n1", (0,))))
    now = 10020.0 - HOUR_S
    live, table = lab.begins(now)
    later = [0.0, 60.0, 1800.0]
    assert [table.facts[JOB].executed_now(now + passed) for passed in later] == later
    rows = [Attach(row) for row in live.rows_to_store()]  # in the next transaction
    assert rows
    table.observe(lab.ledger, lab.ledger, Changes(rows), 60.0, now)
    assert [table.facts[JOB].executed_now(now + passed) for passed in later] == later


def test_usage_is_never_negative_where_the_clock_was_set_back(lab: Lab) -> None:
    lab.write(10000.0, node("n1"), submitted(10000.0))
    lab.write(10010.0, assign(1, ("n1", (0,))))
    now = 10020.0 - HOUR_S
    live, _ = lab.begins(now)
    live.accounting.leave(JOB, now + 100.0, now + 100.0)
    assert live.jobs.usage.as_of(now + 100.0).item(0) == pytest.approx(100.0, rel=1e-3)


def test_a_job_pauses_no_longer_where_the_clock_was_set_back(lab: Lab) -> None:
    lab.write(10000.0, node("n1"), submitted(10000.0))
    lab.write(10010.0, assign(1, ("n1", (0,))))
    over = ended(1, "n1", ran_s=0.0, code=-1, reason=ExitReason.NOT_STARTED, at=10020.0)
    lab.write(10020.0, over)
    assert of(lab.live, "failed_starts", "not_before") == [1, 10021.0]
    live, _ = lab.begins(10020.0 - HOUR_S)
    assert of(live, "failed_starts", "not_before") == [1, 10021.0 - HOUR_S]


def test_a_declined_job_pauses_a_minute_at_most_where_the_clock_was_set_back(lab: Lab) -> None:
    """It was submitted long before, so only its pause shows that the clock was set."""
    lab.write(5000.0, node("n1"), submitted(5000.0))
    lab.live.decline(JOB, "no", 10000.0)
    lab.persist(10000.0)
    live, _ = lab.begins(10000.0 - HOUR_S)
    assert of(live, "not_before")[0] <= 10060.0 - HOUR_S


# -- while the daemon runs -----------------------------------------------------------------------


@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
def test_a_job_waits_since_its_submission(by_s: float) -> None:
    live, wall = LiveState(origin=1.7e9), 1.7e9 + by_s
    live.clock_was_set(by_s)
    asked = submitted(wall + 20.0, begin_at=wall + 80.0)
    live.apply(Changes([asked]), apply_all(Ledger(), [asked]), 20.0)
    assert of(live, "since", "submit_time", "begin_at") == [20.0, 20.0, 80.0]
    live.requests.update(JOB, {"time_limit_s": 60.0})
    assert of(live, "since", "submit_time", "time_limit") == [20.0, 20.0, 60.0]


@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
def test_a_job_of_before_keeps_the_time_of_its_submission(by_s: float) -> None:
    """Also where it is updated, or runs again after its end."""
    live, asked = LiveState(), submitted(20.0)
    ledger = apply_all(Ledger(), [asked])
    live.apply(Changes([asked]), ledger, 20.0)
    live.clock_was_set(by_s)
    live.requests.update(JOB, {"time_limit_s": 60.0})
    assert of(live, "submit_time") == [20.0]
    live.revive({JOB: (ledger.jobs[JOB], JobFacts(job=JOB, moved_s=by_s))}, 50.0)
    assert of(live, "submit_time") == [20.0]
