"""Jobs whose iterations use one resource after another, interleaved on the same GPUs.

An iteration reads and prepares data, computes on the GPU, and exchanges gradients; each resource is
idle most of the time. Up to four jobs rotate, so that at any time each uses another resource, and
each makes one iteration in an iteration of the group. The functions take many groups of one size at
once.

Source: Zhao et al., "Multi-Resource Interleaving for Deep Learning Training" (Muri), SIGCOMM 2022,
sections 3 and 4, and its artifact's simulator, which has three stages on a wheel of four slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Literal, NamedTuple

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.speed.interference import limited

MOST_TOGETHER = 4  # there are as many slots as kinds of resources
RESOURCES = 4  # storage, processors, GPU, network
MEASURED_FACTORS = (1.015, 1.33, 1.5, 1.37)  # how many times longer 1, 2, … jobs take
SLOTS = 8  # of the wheel that are followed
STEADY = 1e-3  # relative change at which the wheel turns evenly

Ordering = Literal["best", "worst", "given"]


class Stages(NamedTuple):
    """Seconds of each stage of an iteration: storage and processors, GPU, network."""

    data: float
    gpu: float
    network: float


def wheel_times(stages: Floats) -> Floats:
    """Seconds of an iteration of groups whose jobs rotate in the given order.

    The wheel has four slots; reading and preparing data takes two of them.

    Args:
        stages: seconds, [group, job, stage]: data, GPU, network; one to four jobs.
    """
    jobs = stages.shape[1]
    ends = np.zeros((SLOTS + 1, len(stages)))
    found = np.full(len(stages), np.nan)
    for slot in range(SLOTS):
        on_network, on_gpu, on_data = ((slot + k) % MOST_TOGETHER for k in (1, 2, 3))
        end = ends[slot + 1]
        if on_network < jobs:
            np.maximum(end, ends[slot] + stages[:, on_network, 2], out=end)
        if on_gpu < jobs:
            np.maximum(end, ends[slot] + stages[:, on_gpu, 1], out=end)
        if slot and on_data < jobs:
            np.maximum(end, ends[slot - 1] + stages[:, on_data, 0], out=end)
        if slot >= MOST_TOGETHER:
            turn = end - ends[slot - 3]
            before = ends[slot] - ends[slot - 4]
            even = np.abs(turn - before) <= STEADY * np.maximum(turn, before)
            found = np.where(np.isnan(found) & even, turn, found)
    whole = ends[SLOTS] - ends[SLOTS - MOST_TOGETHER]
    return np.asarray(np.where(found > 0, found, whole))


def interleaved_times(stages: Floats, ordering: Ordering = "best") -> Floats:
    """Seconds of an iteration of groups, without what sharing costs.

    Two jobs may also take turns in two phases: one reads data while the other computes and
    exchanges gradients.

    Args:
        stages: as for `wheel_times`.
        ordering: of all orders of a group's jobs the best or the worst, or the given one.
    """
    if ordering == "given":
        return wheel_times(stages)
    groups, count, _ = stages.shape
    orders = np.array(list(permutations(range(count))))
    turned = stages[:, orders].reshape(groups * len(orders), count, -1)  # all orders at once
    times = wheel_times(turned).reshape(groups, len(orders))
    if count == 2:
        data, rest = stages[:, :, 0], stages[:, :, 1] + stages[:, :, 2]
        phases = np.maximum(data[:, 0], rest[:, 1]) + np.maximum(data[:, 1], rest[:, 0])
        times = np.column_stack([times, phases])
    return np.asarray(times.min(axis=1) if ordering == "best" else times.max(axis=1))


def group_times(
    stages: Floats,
    alone_s: Floats,
    factors: tuple[float, ...] = MEASURED_FACTORS,
    ordering: Ordering = "best",
) -> Floats:
    """Seconds of an iteration of groups; a job that is alone takes what was measured.

    Args:
        stages: as for `wheel_times`.
        alone_s: seconds of an iteration of each job alone, [group, job], with what measuring adds.
        factors: how much longer than planned 1, 2, … jobs on the same GPUs take.
        ordering: as for `interleaved_times`.
    """
    count = stages.shape[1]
    if count == 1:
        return np.asarray(alone_s[:, 0])
    return np.asarray(interleaved_times(stages, ordering) * (factors[count - 1] / factors[0]))


def efficiencies(stages: Floats, times: Floats) -> Floats:
    """The part of an iteration for which the four resources are busy, on average.

    Args:
        stages: as for `wheel_times`.
        times: seconds of an iteration of each group; where it is 0, nothing is ever busy.
    """
    busy = stages.sum(axis=(1, 2))
    found: Floats = np.zeros(len(busy))
    np.divide(busy, RESOURCES * times, out=found, where=times > 0)
    return found


class StagedJobs:
    """Groups of up to four units, each with the stages of its iteration."""

    name = "stages"
    most_together = float(MOST_TOGETHER)

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
            self._known[group] = float(interleaved_times(np.array([group]))[0])
        costs = self._factors[count - 1] / self._factors[0]
        return limited(alone * self._factors[0] / (self._known[group] * costs), limits)
