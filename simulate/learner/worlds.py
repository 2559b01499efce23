"""Worlds to learn in: what a learner needs of them, and the one of slots."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.policies.learning.network import Decision, Network, Singles
from simulate.learner.exploring import JobAware
from simulate.worlds.slots.baselines import drf
from simulate.worlds.slots.jobs import SlotJobs
from simulate.worlds.slots.learned import FEATURES, ROLES, SCHEMA, Imitation, LearnedSlots
from simulate.worlds.slots.speeds import SpeedSurface
from simulate.worlds.slots.world import Conditions, SlotWorld, run_slots


@dataclass(frozen=True, slots=True)
class Lesson:
    """The decisions of one slot, and what they brought.

    Attributes:
        states: what was seen, [decision, input].
        actions: what was done.
        rewards: of each decision.
    """

    states: Singles
    actions: Ints
    rewards: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How fast a learner learns.

    Attributes:
        imitation: step size while it imitates.
        reward: step size while it learns by rewards.
        batch: decisions of one update.
        memory: decisions that it remembers.
    """

    imitation: float = 0.005
    reward: float = 1e-4
    batch: int = 256
    memory: int = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Usual:
    """What does well in a world, where the user says nothing else.

    Attributes:
        shared: does one small network serve every job? Else one network sees them all at once.
        warmup: imitate the baseline first (`sl`), or not.
        hidden: sizes of the network's layers; empty: one, as large as the input.
        rates: how fast it learns.
    """

    shared: bool = False
    warmup: Literal["sl", "none"] = "none"
    hidden: tuple[int, ...] = ()
    rates: Rates = field(default_factory=Rates)


class Enough(Exception):
    """A learner has had enough lessons: the episode ends here."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How well a policy did on the traces that are kept for this.

    Attributes:
        jct: average completion time, over the jobs of a trace and then over traces.
        makespan: likewise.
        reward: of a slot on average, likewise.
    """

    jct: float
    makespan: float
    reward: float


class World(Protocol):
    """What a learner needs of a world; an episode is one trace from its beginning to its end.

    Where `on_slot` raises `Enough`, an episode ends there, with it or without.
    """

    schema: str
    inputs: int
    outputs: int
    usual: Usual

    def show(self, episode: int, on_slot: Callable[[Lesson], None]) -> None:
        """Let the baseline play an episode, and hand over what it does slot by slot."""
        ...

    def play(
        self, episode: int, network: Callable[[], Network], on_slot: Callable[[Lesson], None]
    ) -> None:
        """Let a network play an episode with exploration; it is asked for before each slot."""
        ...

    def validate(self, network: Network | None) -> Verdict:
        """How well a network does, or with None the baseline."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What it remembers between episodes."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        ...


class SlotTraces:
    """Traces of the slot world; the baseline is its `drf`."""

    schema = SCHEMA
    usual = Usual()

    def __init__(
        self,
        training: Sequence[SlotJobs],
        validation: Sequence[SlotJobs],
        speeds: SpeedSurface,
        conditions: Conditions,
        *,
        window: int = 20,
        seed: int = 0,
    ) -> None:
        """Learn from some traces and be judged by others; a network sees `window` jobs."""
        self.inputs, self.outputs = FEATURES * window, ROLES * window + 1
        self._training, self._validation = training, validation
        self._speeds, self._conditions = speeds, conditions
        self._window, self._seed = window, seed
        self._explore = JobAware(np.random.default_rng((seed, 2)))

    def show(self, episode: int, on_slot: Callable[[Lesson], None]) -> None:
        """Let `drf` play an episode."""
        world = self._world(episode)
        rng = np.random.default_rng((self._seed, 3, episode))
        while not world.is_over:
            world.begin()
            watched = Imitation(world, self._window, rng)
            drf(world, watched)
            reward = world.end()
            on_slot(lesson_of(watched.decisions, np.full(len(watched.decisions), reward)))

    def play(
        self, episode: int, network: Callable[[], Network], on_slot: Callable[[Lesson], None]
    ) -> None:
        """Let a network play an episode with job-aware exploration."""
        world = self._world(episode)
        rng = np.random.default_rng((self._seed, 4, episode))
        self._explore.rng = np.random.default_rng((self._seed, 5, episode))
        divide = LearnedSlots(network(), rng, self._explore)
        while not world.is_over:
            world.begin()
            self._explore.begin_slot()
            divide.network = network()
            divide(world)
            reward = world.end()
            on_slot(lesson_of(divide.decisions, np.full(len(divide.decisions), reward)))

    def validate(self, network: Network | None) -> Verdict:
        """How well a network does without exploration; the same draws each time."""
        found = []
        for number, jobs in enumerate(self._validation):
            rng = np.random.default_rng((self._seed, 6, number))
            divide = drf if network is None else LearnedSlots(network, rng)
            outcome = run_slots(SlotWorld(jobs, self._speeds, self._conditions), divide)
            rewards = outcome.rewards.mean()
            found.append((outcome.completion.mean(), outcome.makespan, rewards))
        return Verdict(*np.mean(found, axis=0).tolist())

    def _world(self, episode: int) -> SlotWorld:
        jobs = self._training[episode % len(self._training)]
        return SlotWorld(jobs, self._speeds, self._conditions)

    def state_dict(self) -> dict[str, Any]:
        """What was tried so far."""
        return self._explore.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self._explore.load_state_dict(state)


def lesson_of(decisions: Sequence[Decision], rewards: Floats) -> Lesson:
    """A slot with its decisions, of which there may be none, and their rewards."""
    states = [each.state for each in decisions] or [np.zeros(0, np.float32)]
    actions = np.array([each.action for each in decisions], np.int64)
    return Lesson(np.stack(states), actions, rewards)
