"""The turns of one run's ranks: together, through lost agents, and one at a time without any."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dlsched.job import messages as words
from dlsched.nodeagent.ranks.run_turns import AWAY_S, PATIENCE_S, RunTurns
from dlsched.protocol.messages import GpuId, NodeName, Share
from dlsched.system import clock


class Rank:
    """A peer that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[words.Message] = []
        self.is_foreign = False

    def send_message(self, message: words.Message) -> None:
        self.told.append(message)


class Keeper:
    """One run, and what it would send to its agent."""

    def __init__(self, folder: Path, *, nodes: int = 1, share: float | None = 0.5) -> None:
        gpus = (GpuId("GPU-1"),)
        layout = tuple(Share(node=NodeName(f"n{k}"), gpus=gpus) for k in range(nodes))
        desired = SimpleNamespace(gpus=gpus, gpu_share=share, layout=layout)
        self.spec = SimpleNamespace(desired=desired, run_dir=str(folder))
        self.state = SimpleNamespace(stop=None)
        self.sent: list[dict[str, Any]] = []
        self.has_agent = True
        self.turns = RunTurns(cast(Any, self))

    def send_to_agent(self, message: dict[str, Any]) -> bool:
        if self.has_agent:
            self.sent.append(message["turn"])
        return self.has_agent

    def begins(self, rank: Rank, held: int = 10) -> None:
        self.turns.from_job(cast(Any, rank), words.StepBegin(held_bytes=held))

    def ends(self, rank: Rank, held: int = 10, most: int = 30) -> None:
        self.turns.from_job(cast(Any, rank), words.StepEnd(held_bytes=held, most_bytes=most))

    def grant(self) -> None:
        self.turns.from_agent({"turn": {"memory": 99, "shared": True}})

    def lose_agent(self) -> None:
        self.has_agent = False
        self.turns.agent_gone()

    def said(self, name: str) -> list[dict[str, Any]]:
        return [each for each in self.sent if each.get(name)]


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    return Keeper(tmp_path)


def test_all_ranks_have_the_turn_together_one_step_each(keeper: Keeper) -> None:
    one, two = Rank(), Rank()
    keeper.begins(one)
    keeper.begins(two, held=12)
    assert len(keeper.said("wants")) == 1
    keeper.grant()
    assert one.told == two.told == [words.Turn(memory_bytes=99, shared=True)]
    keeper.ends(one)
    keeper.begins(one)  # its next step: not in this turn
    assert not keeper.said("ended")
    keeper.ends(two, held=12, most=50)
    assert keeper.said("ended") == [{"ended": True, "held": 24, "most": 100}]  # both on one GPU
    assert len(keeper.said("wants")) == 2
    assert len(one.told) == 1


def test_a_turn_ends_when_a_rank_that_had_its_step_wants_the_next(keeper: Keeper) -> None:
    one, two = Rank(), Rank()
    for rank in (one, two):
        keeper.begins(rank)
    keeper.grant()
    for rank in (one, two):
        keeper.ends(rank)
    keeper.begins(one)
    keeper.grant()
    keeper.ends(one)
    assert len(keeper.said("ended")) == 1  # the other may still begin its step
    keeper.begins(one)
    assert len(keeper.said("ended")) == 2


def test_a_rank_that_dies_ends_its_step_and_the_last_one_leaves(keeper: Keeper) -> None:
    one, two = Rank(), Rank()
    for rank in (one, two):
        keeper.begins(rank)
    keeper.grant()
    keeper.ends(two)
    keeper.turns.closed(cast(Any, one))
    assert len(keeper.said("ended")) == 1
    keeper.turns.closed(cast(Any, two))
    assert keeper.said("gone")


def test_a_new_agent_hears_what_the_old_one_knew(keeper: Keeper) -> None:
    one = Rank()
    keeper.begins(one)
    keeper.grant()
    keeper.ends(one, held=10, most=30)
    keeper.begins(one)
    keeper.lose_agent()
    keeper.has_agent, keeper.sent = True, []
    keeper.turns.new_agent()
    [resumed], [wanted] = keeper.said("resumes"), keeper.said("wants")
    assert resumed == {"resumes": True, "runs": False, "held": 10, "ephemeral": 20}
    assert wanted["held"] == 10


def test_without_an_agent_runs_on_the_same_gpus_take_turns_by_a_lock(tmp_path: Path) -> None:
    first, second = Keeper(tmp_path), Keeper(tmp_path)
    one, two = Rank(), Rank()
    for keeper, rank in ((first, one), (second, two)):
        keeper.lose_agent()
        keeper.begins(rank)
        assert rank.told == []
    later = clock.boottime() + AWAY_S + 1
    first.turns.wake(later)
    second.turns.wake(later)
    assert (len(one.told), len(two.told)) == (1, 0)
    first.ends(one)
    second.turns.wake(later + 1)
    assert len(two.told) == 1
    first.begins(one)
    first.turns.wake(later + 20)
    assert len(one.told) == 1
    second.turns.closed(cast(Any, two))
    first.turns.wake(later + 21)
    assert len(one.told) == 2


def test_a_run_that_hangs_with_the_lock_does_not_hold_up_the_others_for_ever(
    tmp_path: Path,
) -> None:
    first, second = Keeper(tmp_path), Keeper(tmp_path)
    one, two = Rank(), Rank()
    for keeper, rank in ((first, one), (second, two)):
        keeper.lose_agent()
        keeper.begins(rank)
        keeper.turns.wake(clock.boottime() + AWAY_S + 1)
    assert two.told == []
    second.turns.wake(clock.boottime() + AWAY_S + PATIENCE_S + 1)
    assert len(two.told) == 1


def test_a_frozen_run_lets_others_go_on_and_asks_again_when_it_thaws(keeper: Keeper) -> None:
    one = Rank()
    keeper.begins(one)
    keeper.turns.frozen()
    keeper.grant()  # on its way already: the agent learns that it was not taken
    assert one.told == []
    keeper.turns.thawed()
    assert len(keeper.said("wants")) == 2
    keeper.grant()
    assert len(one.told) == 1


@pytest.mark.parametrize("shape", [{"nodes": 2}, {"share": None}], ids=str)
def test_runs_on_several_nodes_or_with_whole_gpus_take_no_turns(
    tmp_path: Path, shape: dict[str, Any]
) -> None:
    keeper, rank = Keeper(tmp_path, **shape), Rank()
    keeper.begins(rank)
    assert rank.told == [words.Turn()]
    assert keeper.sent == []
