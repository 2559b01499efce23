"""What jobs got done in each round, and what they would have got done under the teacher.

A round's reward is the sum, over jobs, of the part of the whole job that was done in it. The guard
follows an imagined cluster with the same arrivals in which the teacher divides the GPUs. When the
rewards of the last rounds are well below those of the imagined one, the teacher decides in truth,
too, until they are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.policies.scheduling.dl2.shares import equal_shares

ROUNDS = 20  # that count
ENOUGH = 0.9  # of the teacher's reward


@dataclass(slots=True)
class Imagined:
    """A job in the imagined cluster.

    Attributes:
        left: the part of it that is left.
        least: GPUs of its first grant.
        per_round: the part that is done in a round on 0, 1, … GPUs.
    """

    left: float
    least: int
    per_round: Sequence[float]


class Guard:
    """Both rewards of the last rounds.

    Attributes:
        rewards: in truth and under the teacher, of each of the last rounds.
    """

    def __init__(self) -> None:
        self.rewards: list[tuple[float, float]] = []
        self._rows: Rows = np.zeros(0, np.int64)
        self._done: Floats = np.zeros(0)  # part of each row's work that is done
        self._imagined = 0.0  # of the present round
        self._there: dict[int, Imagined] = {}  # in the imagined cluster, by row
        self._known: set[int] = set()  # rows that have arrived there

    @property
    def prefers_teacher(self) -> bool:
        """Has the network done worse than the teacher would have?"""
        if len(self.rewards) < ROUNDS:
            return False
        true, imagined = np.sum(self.rewards, axis=0).tolist()
        return bool(true < ENOUGH * imagined)

    @property
    def rows(self) -> Rows:
        """The rows of the round before."""
        return self._rows

    def note(self, before: Floats, rows: Rows, done: Floats, imagined: float) -> None:
        """A round is over.

        Args:
            before: parts done by now of the rows of the round before.
            rows: of the new round.
            done: parts of their work that are done.
            imagined: what the new round brings in the imagined cluster.
        """
        reward = float(np.maximum(before - self._done, 0.0).sum())
        if len(self._rows):
            self.rewards = [*self.rewards, (reward, self._imagined)][-ROUNDS:]
        self._rows, self._done, self._imagined = rows, done, imagined

    def imagine(self, gpus: int, coming: Mapping[int, Imagined]) -> float:
        """Let the teacher divide a round in the imagined cluster; returns its reward.

        Args:
            gpus: of the cluster.
            coming: the units of the round by row; those that are there already stay as they are.
        """
        for row, each in coming.items():
            if row not in self._known:
                self._known.add(row)
                self._there[row] = each
        there = list(self._there.values())
        least = np.array([each.least for each in there], np.int64)
        most = np.array([len(each.per_round) - 1 for each in there], np.int64)
        reward = 0.0
        for each, size in zip(there, equal_shares(least, most, gpus).tolist(), strict=True):
            done = min(each.per_round[size], each.left)
            each.left -= done
            reward += done
        self._there = {row: each for row, each in self._there.items() if each.left > 0}
        return reward

    def state_dict(self) -> dict[str, Any]:
        """All that it knows."""
        return {
            "rewards": [list(each) for each in self.rewards],
            "rows": self._rows,
            "done": self._done,
            "imagined": self._imagined,
            "known": sorted(self._known),
            "there": [
                [row, each.left, each.least, list(each.per_round)]
                for row, each in self._there.items()
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.rewards = [(float(true), float(other)) for true, other in state["rewards"]]
        self._rows, self._done = np.asarray(state["rows"]), np.asarray(state["done"])
        self._imagined = float(state["imagined"])
        self._known = {int(row) for row in state["known"]}
        self._there = {
            int(row): Imagined(float(left), int(least), list(map(float, per_round)))
            for row, left, least, per_round in state["there"]
        }

    def renumber(self, old: Rows) -> None:
        """Follow a table that was packed; rows that have ended in truth go on being imagined."""
        place = {before: row for row, before in enumerate(old.tolist()) if before >= 0}
        kept = np.array([row in place for row in self._rows.tolist()], np.bool_)
        self._rows = np.array([place[r] for r in self._rows[kept].tolist()], np.int64)
        self._done = self._done[kept]
        self._known = {place[row] for row in self._known if row in place}
        gone = min([0, *self._there])
        there = {}
        for row, each in self._there.items():
            if row not in place:
                gone -= 1
            there[place.get(row, gone)] = each
        self._there = there
