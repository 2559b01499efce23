"""Jobs whose iterations use one resource after another, interleaved on the same GPUs.

An iteration reads and prepares data, computes on the GPU, and exchanges gradients; each resource is
idle most of the time. Jobs on the same GPUs rotate, so that at any time each uses another resource,
and each makes one iteration in an iteration of the group.

Source: Zhao et al., "Multi-Resource Interleaving for Deep Learning Training" (Muri), SIGCOMM 2022,
and its artifact.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.speed.interference import limited

MOST_TOGETHER = 4  # there are as many slots as kinds of resources
MEASURED_FACTORS = (1.015, 1.33, 1.5, 1.37)  # what measuring and 1, 2, … 4 jobs together cost
SLOTS = 8  # of the wheel that are followed
STEADY = 1e-3  # relative change at which the wheel turns evenly


class Stages(NamedTuple):
    """Seconds of each stage of an iteration: storage and processors, GPU, network."""

    data: float
    gpu: float
    network: float


def wheel_time(jobs: Sequence[Stages]) -> float:
    """Seconds of an iteration of up to four jobs that rotate in this order.

    The wheel has four slots, of which reading data takes two.
    """
    count, ends = len(jobs), [0.0] * (SLOTS + 1)
    for slot in range(SLOTS):
        found = 0.0
        one, two, three = ((slot + k) % MOST_TOGETHER for k in (1, 2, 3))
        if one < count:
            found = max(found, ends[slot] + jobs[one].network)
        if two < count:
            found = max(found, ends[slot] + jobs[two].gpu)
        if slot >= 1 and three < count:
            found = max(found, ends[slot - 1] + jobs[three].data)
        ends[slot + 1] = found
        if slot >= MOST_TOGETHER:
            turn, before = found - ends[slot - 3], ends[slot] - ends[slot - 4]
            if abs(turn - before) <= STEADY * max(abs(turn), abs(before)):
                return turn
    return ends[SLOTS] - ends[SLOTS - MOST_TOGETHER]


def group_time(jobs: Sequence[Stages]) -> float:
    """Seconds of an iteration of up to four jobs in the best order, without what sharing costs."""
    times = [wheel_time(order) for order in permutations(jobs)]
    if len(jobs) == 2:
        one, other = jobs
        times.append(
            max(one.data, other.gpu + other.network) + max(other.data, one.gpu + one.network)
        )
    return min(times)


class StagedJobs:
    """Groups of up to four units, each with the stages of its iteration."""

    name = "stages"

    def __init__(
        self, stages: Floats, iteration_s: Floats, factors: Sequence[float] = MEASURED_FACTORS
    ) -> None:
        """Take what was measured of each unit alone, on its own gang.

        Args:
            stages: seconds, [unit, stage] in the order of `Stages`; NaN where not known.
            iteration_s: seconds of an iteration.
            factors: what 1, 2, … jobs together cost beside the plan.
        """
        self._stages, self._iteration_s, self._factors = stages, iteration_s, factors
        self._known: dict[tuple[Stages, ...], float] = {}

    def relative(self, rows: Sequence[int], limits: Floats, gpu_type: str, gpus: int) -> Floats:
        """Iterations alone over those in a group."""
        count = len(rows)
        if count == 1:
            return limits
        picked = list(rows)
        stages, alone = self._stages[picked], self._iteration_s[picked]
        if count > MOST_TOGETHER or np.isnan(stages).any() or np.isnan(alone).any():
            return np.full(count, np.nan)
        group = tuple(sorted(Stages(*each) for each in stages.tolist()))
        if group not in self._known:
            self._known[group] = group_time(group)
        costs = self._factors[count - 1] / self._factors[0]
        return limited(alone * self._factors[0] / (self._known[group] * costs), limits)
