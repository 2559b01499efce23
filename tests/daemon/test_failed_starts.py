"""Whose fault a failed start is, without any cluster: what is counted, and what follows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.daemon import failed_starts
from dlsched.daemon.failed_starts import AGAIN_S, FailedStarts
from dlsched.daemon.settings import FaultsSection
from dlsched.db.reading.outcomes import StoredFailedStarts
from dlsched.db.records import Drained, Event, HoldChanged
from dlsched.protocol.messages import (
    ExitReason,
    ExitRecord,
    JobId,
    NodeName,
    RunId,
    RunKey,
    RunNumber,
    StartFault,
)

N1, N2 = NodeName("n1"), NodeName("n2")
BOBS = range(201, 210)  # his jobs; the others are of one user more
ARRAYS = {101: 1, 102: 2, 103: 3}  # elements of array 100, and their places


class Site:
    """What follows from failed starts, with the site's defaults.

    Attributes:
        avoided: the nodes from which each job is kept.
        held: the jobs that are held.
        drained: the nodes that are drained.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.stored: list[tuple[float, ExitRecord]] = []
        self.events: list[Event] = []
        self.avoided: dict[int, set[str]] = {}
        self.held: list[int] = []
        self.drained: dict[NodeName, Drained] = {}
        specs: dict[int, Any] = {
            job: SimpleNamespace(array=True, index=k, user="ann") for job, k in ARRAYS.items()
        }
        specs |= {job: SimpleNamespace(array=None, user="bob") for job in BOBS}
        live: Any = SimpleNamespace(requests=SimpleNamespace(specs=specs), avoid=self._avoid)
        driver: Any = SimpleNamespace(note=self._note)
        self._parts: Any = (driver, FaultsSection, lambda: live, lambda: self.drained)
        self.starts = FailedStarts(*self._parts)

    def _avoid(self, job: int, nodes: frozenset[str]) -> None:
        self.avoided[job] = set(nodes)

    def _note(self, *rows: object) -> None:
        for row in rows:
            if isinstance(row, HoldChanged):
                self.held.append(row.job)
            if isinstance(row, Event):
                self.events.append(row)
            if isinstance(row, Drained):
                self.drained.pop(row.node, None)
                if row.drained:
                    self.drained[row.node] = row

    def fail(self, job: int, node: NodeName, **record: Any) -> None:
        """A start of a job fails on a node, for the node's sake if the record does not differ."""
        record.setdefault("reason", ExitReason.NOT_STARTED)
        of_node = record["reason"] is ExitReason.NOT_STARTED and not record.get("hook")
        record.setdefault("start_fault", StartFault.NODE if of_node else None)
        key = RunKey(JobId(job), RunNumber(1), RunId(f"r{job}"))
        end = ExitRecord(key=key, node=node, **record)
        self.stored.append((self.now, end))
        self.starts.note(end, self.now)

    def resume(self, node: NodeName) -> None:
        """An operator does it."""
        self.drained.pop(node, None)
        self.events.append(Event(at=self.now, kind="resume", actor="root", node=node))
        self.starts.forget(node)

    def restart(self) -> None:
        """Another daemon leads, which knows what is in the database."""
        self.starts, self.avoided = FailedStarts(*self._parts), {}
        self.starts.term_began(StoredFailedStarts(self.stored, self.events), self.now)


def test_a_job_is_kept_from_the_node_that_failed_it_until_the_window_is_over() -> None:
    site = Site()
    site.fail(1, N1)
    assert site.avoided == {1: {"n1"}}
    site.fail(1, N2)
    assert site.avoided == {1: {"n1", "n2"}}
    assert not site.held
    site.now += 600.1
    site.starts.tick(site.now)
    assert site.avoided == {1: set()}


def test_only_different_jobs_within_the_window_drain_a_node() -> None:
    site = Site()
    for job in (1, 1, 1, 2, 2):
        site.fail(job, N1)
    assert not site.drained
    site.now += 600.1
    site.fail(3, N1)
    assert not site.drained  # the others were too long ago
    site.fail(4, N1, detail="no space")
    site.fail(5, N2)
    site.fail(6, N1, detail="no space on n1")
    assert set(site.drained) == {N1}
    text = "the starts of 3 jobs failed here within 10 min, the last: no space on n1 (job 6)"
    assert site.drained[N1].reason == text


def test_what_a_node_does_not_run_counts_against_no_node() -> None:
    site = Site()
    for job in range(1, 9):
        site.fail(job, N1, start_fault=StartFault.JOB_HERE)
    assert not site.drained
    assert all(nodes == {"n1"} for nodes in site.avoided.values())


def test_lost_keepers_of_different_jobs_drain_their_node_and_keep_no_job_away() -> None:
    site = Site()
    for job in (1, 1, 1, 2):
        site.fail(job, N1, reason=ExitReason.KEEPER_LOST)
    assert not site.drained
    site.fail(4, N2)
    site.fail(3, N1, reason=ExitReason.KEEPER_LOST, detail="killed by signal 9")
    assert set(site.drained) == {N1}
    text = "3 jobs could not start or lost their keepers here within 10 min, the last: "
    assert site.drained[N1].reason == text + "killed by signal 9 (job 3)"
    assert site.avoided == {1: set(), 2: set(), 3: set(), 4: {"n2"}}
    assert site.starts.awaits_check(N1)
    site.starts.checked(N1, "", site.now)
    assert not site.drained


def test_the_prologs_of_an_array_count_as_those_of_one_job() -> None:
    site = Site()
    for job in ARRAYS:
        site.fail(job, N1, hook="prolog ended with 1")
    assert not site.drained
    for job in ARRAYS:
        site.fail(job, N2)  # these are the node's own
    assert set(site.drained) == {N2}


def test_a_prolog_that_fails_on_a_second_node_gives_back_the_node_that_it_drained() -> None:
    site = Site()
    for job in (1, 2, 3):
        site.fail(job, N1, hook="prolog ended with 1")
    assert set(site.drained) == {N1}
    assert not site.starts.awaits_check(N1)  # the agent's check has no prolog
    site.fail(1, N2, hook="prolog ended with 1")
    assert site.held == [1]
    assert not site.drained  # two jobs are left that failed there
    for job in (2, 3):
        site.fail(job, N2, hook="prolog ended with 1")
    assert (site.held, site.drained) == ([1, 2, 3], {})


def test_the_prologs_of_one_user_drain_one_node_at_most() -> None:
    site = Site()
    for job in (1, 2, 3):
        site.fail(job, N1, hook="prolog ended with 1")
    assert set(site.drained) == {N1}
    site.fail(4, N2, hook="prolog ended with 1")  # it may run there only
    assert not site.drained
    for job in (5, 6, 7):
        site.fail(job, N2, hook="prolog ended with 1")
    assert not site.drained
    for job in BOBS[:3]:
        site.fail(job, N2, hook="prolog ended with 1")
    assert set(site.drained) == {N2}  # those of another user tell of the node


def test_a_user_who_waits_drains_no_second_node_by_prologs() -> None:
    site = Site()
    for job in (1, 2, 3):
        site.fail(job, N1, hook="prolog ended with 1")
    site.now += 600.1
    for job in (4, 5, 6):
        site.fail(job, N2, hook="prolog ended with 1")
    assert set(site.drained) == {N1}  # an operator has to look
    for job in (7, 8, 9):
        site.fail(job, N2)  # the node's own
    assert set(site.drained) == {N1, N2}


def test_prologs_of_one_user_are_told_from_the_node_s_fault_when_its_check_had_passed() -> None:
    site = Site()
    for job in (1, 2, 3):
        site.fail(job, N1)
    site.starts.checked(N1, "", site.now)
    for job in BOBS[:3]:
        site.fail(job, N1, hook="prolog ended with 1")
    assert set(site.drained) == {N1}
    site.fail(BOBS[3], N2, hook="prolog ended with 1")
    assert not site.drained


def test_what_failed_before_an_operator_resumed_a_node_counts_no_more() -> None:
    site = Site()
    for job in (1, 2, 3):
        site.fail(job, N1)
    site.resume(N1)
    site.fail(4, N1)
    assert not site.drained


def test_a_job_at_fault_gives_back_no_node_that_was_drained_for_other_reasons() -> None:
    again = Site()
    for _ in range(2):
        for job in (1, 2, 3):
            again.fail(job, N1)
        again.starts.checked(N1, "", again.now)
    assert set(again.drained) == {N1}  # its check had passed: an operator has to resume it
    long_ago = Site()
    for job in (1, 2, 3):
        long_ago.fail(job, N1, hook="prolog ended with 1")
    long_ago.now += 600.1  # what these three would have told is forgotten
    for site in (again, long_ago):
        for node in (N1, N2):
            site.fail(4, node, hook="prolog ended with 1")
        assert site.held == [4]
        assert set(site.drained) == {N1}


def test_what_no_longer_counts_keeps_no_job_away() -> None:
    site = Site()
    for job in (1, 2, 3):
        site.fail(job, N1)
    site.starts.checked(N1, "", site.now)
    assert site.avoided == {1: set(), 2: set(), 3: set()}
    site.fail(102, N1)
    for job in (101, 102):
        site.fail(job, N1, hook="prolog ended with 1")
    site.fail(101, N2, hook="prolog ended with 1")
    assert site.held == [101]
    assert site.avoided[101] == set()
    assert site.avoided[102] == {"n1"}  # it has failed there for the node's sake, too
    site.fail(103, N1, hook="prolog ended with 1")
    site.fail(101, N2, hook="prolog ended with 1")
    site.fail(101, N1, hook="prolog ended with 1")
    assert site.avoided[103] == set()


def test_a_job_is_kept_from_a_node_as_long_as_its_failure_there_counts() -> None:
    site = Site()
    site.fail(1, N1)
    site.now += 300.0
    site.fail(1, N2)
    site.now += 300.1
    site.starts.tick(site.now)
    assert site.avoided == {1: {"n2"}}


def test_a_prolog_that_fails_three_times_on_the_only_node_holds_its_job() -> None:
    site = Site()
    for _ in range(3):
        assert not site.held
        site.fail(1, N1, hook="prolog ended with 1")
    assert (site.held, site.drained) == ([1], {})


def test_a_node_comes_back_once_by_its_check_and_then_by_an_operator() -> None:
    site = Site()
    for round_ in range(2):
        for job in (1, 2, 3):
            site.fail(job, N1)
        assert site.starts.awaits_check(N1) is (round_ == 0)
        site.starts.checked(N1, "no space", site.now)
        assert N1 in site.drained
        site.starts.checked(N1, "", site.now)
        assert (N1 in site.drained) is (round_ == 1)
    site.drained.clear()  # an operator resumes it
    site.now += AGAIN_S + 1
    for job in (1, 2, 3):
        site.fail(job, N1)
    assert site.starts.awaits_check(N1)


def test_a_check_changes_nothing_of_a_node_that_an_operator_has_drained() -> None:
    site = Site()
    site.drained[N1] = Drained(node=N1, drained=True, reason="new fan", actor="root", at=0.0)
    for job in (1, 2, 3):
        site.fail(job, N1)
    site.starts.checked(N1, "", site.now)
    assert site.drained[N1].reason == "new fan"


JOBS, NODES = st.sampled_from([1, 2, 3, *ARRAYS, *BOBS[:3]]), st.sampled_from([N1, N2])
KINDS = st.sampled_from(
    [
        {},
        {"hook": "prolog: exit 1"},
        {"reason": ExitReason.KEEPER_LOST},
        {"start_fault": StartFault.JOB_HERE},
    ]
)
FAILS = st.tuples(st.just("fail"), JOBS, NODES, KINDS)
STEPS = st.one_of(
    *(FAILS,) * 6,
    st.tuples(st.just("check"), NODES),
    st.tuples(st.just("resume"), NODES),
    st.tuples(st.just("wait"), st.sampled_from([5.0, 200.0, 601.0])),
)


@settings(max_examples=400)
@given(before=st.lists(STEPS, max_size=25), after=st.lists(STEPS, min_size=1, max_size=15))
def test_a_new_daemon_knows_what_the_one_before_knew(
    before: list[tuple[Any, ...]], after: list[tuple[Any, ...]]
) -> None:
    sites = Site(), Site()
    for number, (what, *given_) in enumerate((*before, *after)):
        for site in sites:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(failed_starts, "wall", lambda site=site: site.now)
                if number == len(before) and site is sites[1]:
                    site.restart()
                site.now += 0.5
                if what == "fail":
                    job, node, record = given_
                    site.fail(job, node, **record)
                elif what == "check":
                    site.starts.checked(given_[0], "", site.now)
                elif what == "resume":
                    site.resume(given_[0])
                else:
                    site.now += given_[0]
                site.starts.tick(site.now)
        stayed, restarted = sites
        assert restarted.held == stayed.held
        assert restarted.drained == stayed.drained
        for job in stayed.avoided:
            assert restarted.avoided.get(job, set()) == stayed.avoided[job]


def drained_and_checked() -> Site:
    """Three jobs have failed on a node, whose check has passed since."""
    site = Site()
    for job in (1, 2, 3):
        site.fail(job, N1)
    site.now += 1
    site.starts.checked(N1, "", site.now)
    site.now += 1
    return site


def test_a_new_daemon_knows_that_a_check_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site()
    monkeypatch.setattr(failed_starts, "wall", lambda: site.now)
    site = drained_and_checked()
    site.restart()
    site.fail(4, N1)
    site.fail(5, N1)
    assert not site.drained  # by what failed before the check
    site.fail(6, N1)
    assert site.drained[N1].actor == failed_starts.BY_OPERATOR  # it is the second time


def test_a_new_daemon_knows_which_nodes_were_blamed_for_prologs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    monkeypatch.setattr(failed_starts, "wall", lambda: site.now)
    for job in (1, 2, 3):
        site.fail(job, N1, hook="prolog: exit 1")
    assert set(site.drained) == {N1}
    site.now += 1
    site.restart()
    site.fail(3, N2, hook="prolog: exit 1")
    assert site.held == [3]
    assert not site.drained  # the prolog of job 3 fails wherever it is
    site.now += 1
    site.restart()
    site.fail(3, N1, hook="prolog: exit 1")
    assert site.held == [3]  # released, and tried once more
