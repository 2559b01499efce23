"""What a learner remembers: the last decisions, drawn evenly or by how much there is to learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.policies.learning.network import Singles

LEAST_PRIORITY, MOST_PRIORITY, EXPONENT = 0.01, 4.0, 0.9
FIRST_CORRECTION, CORRECTION_STEP = 0.1, 1e-4


class Batch(NamedTuple):
    """Decisions to learn from.

    Attributes:
        places: in the memory.
        states: what was seen, [decision, input].
        actions: what was done.
        rewards: of their slots.
        weights: correct for decisions that are drawn more often than others.
    """

    places: Ints
    states: Singles
    actions: Ints
    rewards: Floats
    weights: Singles


class Memory:
    """The last decisions, each with the reward of its slot and a priority.

    Attributes:
        stored: decisions so far, those that were forgotten included.
    """

    def __init__(self, size: int, inputs: int) -> None:
        """Remember up to `size` decisions."""
        self._states = np.zeros((size, inputs), np.float32)
        self._actions = np.zeros(size, np.int64)
        self._rewards = np.zeros(size)
        self._priorities = np.zeros(size)
        self._correction = FIRST_CORRECTION
        self.stored = 0

    @property
    def is_full(self) -> bool:
        """Has it as many decisions as it can have?"""
        return self.stored >= len(self._actions)

    def store(self, states: Singles, actions: Ints, rewards: Floats) -> None:
        """Remember decisions; the oldest are forgotten.

        Their priority is by how much their reward is above the usual, and at least 1.
        """
        size = len(self._actions)
        states, actions, rewards = states[-size:], actions[-size:], rewards[-size:]
        count, known = len(actions), min(self.stored, size)
        if not count:
            return
        usual = float(self._rewards[:known].mean()) if known else float(rewards.mean())
        places = np.arange(self.stored, self.stored + count) % size
        self._states[places], self._actions[places] = states, actions
        self._rewards[places] = rewards
        self._priorities[places] = np.maximum(rewards - usual, 1.0)
        self.stored += count

    def drawn_evenly(self, count: int, rng: np.random.Generator) -> Batch:
        """Some decisions, none twice."""
        places = rng.choice(min(self.stored, len(self._actions)), count, replace=False)
        return self._batch(places, np.ones(count, np.float32))

    def drawn_by_priority(self, count: int, rng: np.random.Generator) -> Batch:
        """One decision from each of `count` equal parts of the sum of priorities."""
        total = self._priorities.cumsum()
        spots = (np.arange(count) + rng.random(count)) * (total[-1] / count)
        last = min(self.stored, len(total)) - 1
        places = np.minimum(total.searchsorted(spots, side="right"), last)
        likely = self._priorities[places]
        least = self._priorities[: last + 1].min()
        weights = (likely / least) ** -self._correction
        self._correction = min(self._correction + CORRECTION_STEP, 1.0)
        return self._batch(places, weights.astype(np.float32))

    def learned(self, places: Ints, surprises: Singles) -> None:
        """How far off decisions were: those that surprised most are drawn more often."""
        found = np.abs(surprises.astype(np.float64)) + LEAST_PRIORITY
        self._priorities[places] = np.minimum(found, MOST_PRIORITY) ** EXPONENT

    def _batch(self, places: Ints, weights: Singles) -> Batch:
        return Batch(
            places, self._states[places], self._actions[places], self._rewards[places], weights
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything, as arrays."""
        return {
            "states": self._states,
            "actions": self._actions,
            "rewards": self._rewards,
            "priorities": self._priorities,
            "counts": np.array([self.stored, self._correction]),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self._states, self._actions = state["states"].copy(), state["actions"].copy()
        self._rewards, self._priorities = state["rewards"].copy(), state["priorities"].copy()
        stored, self._correction = state["counts"].tolist()
        self.stored = int(stored)
