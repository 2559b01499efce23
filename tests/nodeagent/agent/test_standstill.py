"""What an agent does with a keeper that gives no sign of life."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.nodeagent.agent.keepers import standstill
from dlsched.nodeagent.agent.keepers.link import KeeperLink
from dlsched.nodeagent.agent.keepers.standstill import (
    CONTINUED,
    KILLED,
    REPORTED,
    StandstillWatch,
)
from dlsched.protocol.messages import RunId

RUN = RunId("r1")


class Keeper:
    """A link whose keeper answers when the test says so."""

    pid = 1

    def __init__(self) -> None:
        self.silent, self.signals, self.killed = 0, 0, 0
        self.answers = True

    def look(self, _cgroup: str) -> int:
        self.silent = 0 if self.answers else self.silent + 1
        return self.silent

    def signal(self, _number: int) -> None:
        self.signals += 1

    def kill(self) -> None:
        self.killed += 1


class Watched:
    """A watch of one keeper, and what it has done."""

    def __init__(self) -> None:
        self.keeper, self.is_over = Keeper(), False
        self.problems: dict[str, str] = {}
        self.links = {RUN: cast(KeeperLink, self.keeper)}
        self.watch = StandstillWatch(
            self.links, lambda _run: "", self._is_over, self.problems.__setitem__
        )

    async def _is_over(self, _run: RunId) -> bool:
        return self.is_over

    def look(self, times: int = 1) -> None:
        for _ in range(times):
            asyncio.run(self.watch.look())


@given(steps=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60))
def test_only_a_keeper_that_is_silent_for_long_and_has_no_job_is_killed(
    steps: list[tuple[bool, bool]],
) -> None:
    watched, silent = Watched(), 0
    for answers, is_over in steps:
        watched.keeper.answers, watched.is_over = answers, is_over
        before = watched.keeper.killed
        watched.look()
        silent = 0 if answers else silent + 1
        assert (watched.keeper.killed > before) == (silent >= KILLED and is_over)
        assert bool(watched.problems.get(f"keeper {RUN}")) == (silent >= REPORTED)


def test_a_silent_keeper_is_continued_once_and_its_end_takes_the_problem_away() -> None:
    watched = Watched()
    watched.keeper.answers = False
    watched.look(KILLED + 3)
    assert watched.keeper.signals == 1
    assert watched.keeper.killed == 0  # its job still runs
    watched.is_over = True
    watched.look()
    assert watched.keeper.killed == 1
    watched.links.clear()
    watched.look()
    assert not any(watched.problems.values())
    assert CONTINUED < REPORTED < KILLED


def test_a_keeper_in_a_call_that_no_signal_interrupts_is_not_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck: Any = lambda _pid: True  # noqa: E731
    monkeypatch.setattr(standstill, "_is_in_call", stuck)
    watched = Watched()
    watched.keeper.answers, watched.is_over = False, True
    watched.look(2 * KILLED)
    assert watched.keeper.killed == 0


def test_a_keeper_that_its_cgroup_freezes_is_silent_though_it_never_answered(
    tmp_path: Path,
) -> None:
    """A keeper of another version never answers; that alone says nothing."""
    events = tmp_path / "keeper" / "cgroup.events"
    events.parent.mkdir()

    async def look() -> list[int]:
        ours, theirs = socket.socketpair()
        link = KeeperLink(
            RUN,
            os.getpid(),
            os.pidfd_open(os.getpid()),
            "",
            on_message=lambda _run, _message: None,
            on_end=lambda _run: None,
        )
        link.begin(ours)
        found = []
        for frozen in (0, 0, 1, 1):  # the first look asks
            events.write_text(f"populated 1\nfrozen {frozen}\n")
            found.append(link.look(str(tmp_path)))
        link.close()
        theirs.close()
        return found

    assert asyncio.run(look()) == [0, 0, 1, 2]
