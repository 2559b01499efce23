"""What the network sees of jobs with all-reduce, and what it may do: one GPU more, or no more.

DL2's jobs have parameter servers; these have GPUs alone. Of its six features, servers are gone. The
type of a job, by which its network knows how long jobs take and how they scale, is replaced by the
work that is left and by what one more GPU would gain. All features are of the size of 1, so that a
network serves clusters of several sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.core.errors import BadInput
from dlsched.policies.learning.network import Decision, Network, draw

SCHEMA = "dl2-gpus/1"
FEATURES = ("waited", "left", "work_left", "share", "full", "gain")
WAITED, LEFT, WORK_LEFT, SHARE, FULL, GAIN = range(len(FEATURES))


@dataclass(frozen=True, slots=True)
class Asked:
    """The jobs among which GPUs are divided, in order of arrival.

    Attributes:
        waited: rounds since each arrived.
        left: the part of its work that is left, 0 to 1.
        work_left: rounds of work that are left on the GPUs that it asked for.
        least: GPUs of its first grant.
        most: GPUs that it may have.
        speed: on 0, 1, … GPUs, relative to those that it asked for, [job, GPUs].
    """

    waited: Floats
    left: Floats
    work_left: Floats
    least: Ints
    most: Ints
    speed: Floats

    def __len__(self) -> int:
        return len(self.least)


class Window:
    """The jobs that may have more GPUs, as the network sees them.

    Attributes:
        sizes: GPUs of every job so far.
        room: GPUs that are left.
        jobs: of the window, in order of arrival.
        state: [feature, place]; columns without a job are 0.
        allowed: one GPU more for the job of each place, and to end.
    """

    def __init__(self, asked: Asked, gpus: int, size: int) -> None:
        """Give every job its first GPUs, where they fit, so that no job starves."""
        self._asked, self._gpus, self._size = asked, gpus, size
        self.sizes: Ints = np.zeros(len(asked), np.int64)
        self.room = gpus
        for job, least in enumerate(asked.least.tolist()):
            if least <= min(self.room, asked.most.item(job)):
                self.sizes[job] = least
                self.room -= least
        self._seen = np.zeros((len(FEATURES), len(asked)), np.float32)
        self._seen[WAITED], self._seen[LEFT] = np.log1p(asked.waited), asked.left
        self._seen[WORK_LEFT] = np.log1p(asked.work_left)
        self._fill()

    def _fill(self) -> None:
        """Take the first jobs that have GPUs and may have more."""
        growing = (self.sizes > 0) & (self.sizes < self._asked.most)
        found = np.flatnonzero(growing)[: self._size]
        self.jobs: list[int] = found.tolist()
        self.state = np.zeros((len(FEATURES), self._size), np.float32)
        self.state[:, : len(found)] = self._seen[:, found]
        sizes = self.sizes[found]
        self.state[SHARE, : len(found)] = sizes / self._gpus
        self.state[FULL, : len(found)] = sizes / self._asked.most[found]
        speed = self._asked.speed
        self.state[GAIN, : len(found)] = gain(speed[found, sizes], speed[found, sizes + 1])
        self.allowed: Bools = np.zeros(self._size + 1, np.bool_)
        self.allowed[: len(found)] = self.room > 0
        self.allowed[-1] = True

    @property
    def is_over(self) -> bool:
        """Is there no job that could get more?"""
        return not self.jobs or self.room == 0

    def grow(self, job: int) -> None:
        """One GPU more for a job, whether it is in the window or not."""
        self.sizes[job] += 1
        self.room -= 1

    def give(self, place: int) -> None:
        """One GPU more for the job of a place."""
        job = self.jobs[place]
        self.grow(job)
        size = self.sizes.item(job)
        if size == self._asked.most[job] or self.room == 0:
            self._fill()
            return
        self.state[SHARE, place] = size / self._gpus
        self.state[FULL, place] = size / self._asked.most[job]
        speeds = self._asked.speed[job, size : size + 2]
        self.state[GAIN, place] = gain(speeds[:1], speeds[1:])[0]


def gain(now: Floats, then: Floats) -> Floats:
    """How much faster than now, as a part of it, bounded; 0 where nothing is known."""
    gain = np.divide(then, now, out=np.ones(len(now)), where=now > 0) - 1.0
    return np.clip(gain, -1.0, 1.0)


Explore = Callable[[Window, int], int]


def divided(
    window: Window,
    network: Network,
    chance: Callable[[], float] | None,
    explore: Explore | None = None,
) -> list[Decision]:
    """Let a network divide the GPUs of a window until it ends or none are left.

    Args:
        window: the jobs; its `sizes` are the result.
        network: decides.
        chance: random numbers by which actions are drawn; None: the likeliest each time.
        explore: may put another allowed action in the place of one; in training.

    Returns:
        what it decided, in order.
    """
    decisions = []
    while not window.is_over:
        state = window.state.ravel().copy()
        scores = network(state)
        if chance is None:
            action = int(np.where(window.allowed, scores, -np.inf).argmax())
        else:
            action = draw(scores, window.allowed, chance())
        if explore is not None:
            action = explore(window, action)
        decisions.append(Decision(state, action))
        if action == len(window.allowed) - 1:
            break
        window.give(action)
    return decisions


def window_of(network: Network) -> int:
    """How many jobs a network sees.

    Raises:
        BadInput: it was trained for something else.
    """
    jobs = network.outputs - 1
    if network.schema != SCHEMA:
        raise BadInput(
            f"{network.name}: a network for {network.schema}; dl2 on GPUs needs one for {SCHEMA}"
        )
    if network.inputs != len(FEATURES) * jobs:
        raise BadInput(
            f"{network.name}: takes {network.inputs} numbers for {jobs} jobs; "
            f"{len(FEATURES)} of each are needed"
        )
    return jobs
