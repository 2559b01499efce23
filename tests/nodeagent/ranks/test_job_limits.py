"""Limits on their way to ranks that obey them, and processes that can only stand still."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from dlsched.job import messages as words
from dlsched.nodeagent.ranks.job_limits import CAPABILITY, JobLimits
from dlsched.protocol.keeper import Stage


class Rank:
    """A peer that keeps what it is told."""

    def __init__(self, *capabilities: str) -> None:
        self.capabilities = capabilities
        self.told: list[words.Message] = []

    def send_message(self, message: words.Message) -> None:
        self.told.append(message)


class Run:
    """One run: its ranks, its processes, and what its agent hears."""

    def __init__(self) -> None:
        self.ranks: list[Rank] = []
        self.done: list[str] = []
        self.said: list[dict[str, object]] = []
        self.state = SimpleNamespace(stage=Stage.RUNNING, suspended=False)
        self.processes = SimpleNamespace(
            containment=SimpleNamespace(
                freeze=lambda: self.done.append("freeze"), thaw=lambda: self.done.append("thaw")
            )
        )
        self.limits = JobLimits(cast(Any, self), cast(Any, self))

    def send_to_agent(self, message: dict[str, object]) -> bool:
        self.said.append(message)
        return True

    def able_to(self, capability: str) -> list[Rank]:
        return [rank for rank in self.ranks if capability in rank.capabilities]

    def hello(self, *capabilities: str) -> Rank:
        rank = Rank(*capabilities)
        self.ranks.append(rank)
        self.limits.from_job(cast(Any, rank), words.Hello(rank=len(self.ranks) - 1))
        return rank

    def limit(self, share: int, **more: object) -> None:
        self.limits.from_agent({"limit": {"share": share, "memory_bytes": None, **more}})


@pytest.fixture
def run() -> Run:
    return Run()


def test_ranks_are_told_also_those_that_connect_later(run: Run) -> None:
    first = run.hello(CAPABILITY)
    run.limit(40, memory_bytes=7)
    second, deaf = run.hello(CAPABILITY), run.hello("stop")
    expected = [words.Limit(share=0.4, memory_bytes=7)]
    assert (first.told, second.told, deaf.told) == (expected, expected, [])
    assert run.said[0] == {"obeys_limits": True}
    run.limit(0, leaves=True)
    assert first.told[1:] == [words.Limit(share=0.0), words.Stop(reason="memory")]
    assert run.done == []


def test_processes_that_obey_nothing_stand_still_and_go_on(run: Run) -> None:
    run.limit(0)
    assert run.done == [], "they may still say that they obey"
    run.limit(0, stand_still=True)
    run.limit(0, stand_still=True)
    assert run.done == ["freeze"]
    run.limit(100, stand_still=True)
    assert run.done == ["freeze", "thaw"]


def test_a_job_that_stands_still_goes_on_to_be_stopped(run: Run) -> None:
    run.limit(0, stand_still=True)
    run.state.stage = Stage.STOPPING
    run.limits.apply()
    assert run.done == ["freeze", "thaw"]
    run.limits.apply()
    assert run.done == ["freeze", "thaw"]


def test_a_suspension_is_not_undone_by_a_limit(run: Run) -> None:
    run.limit(0, stand_still=True)
    run.limits.let_go()
    run.state.suspended = True
    run.limit(100, stand_still=True)
    run.limit(0, stand_still=True)
    assert run.done == ["freeze", "thaw"]
    run.state.suspended = False
    run.limits.apply()
    assert run.done[2:] == ["freeze"]


@pytest.mark.parametrize("message", [{}, {"limit": None}, {"limit": 3}, {"use_batch": {}}])
def test_other_messages_are_passed_over(run: Run, message: dict[str, object]) -> None:
    run.limits.from_agent(message)
    assert (run.done, run.said) == ([], [])
