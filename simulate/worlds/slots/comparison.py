"""The same jobs divided by several policies, slot by slot."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from dlsched.policies.learning.network import Network
from simulate.worlds.results import Result, check_known, mean
from simulate.worlds.slots.baselines import BASELINES
from simulate.worlds.slots.jobs import SlotJobs
from simulate.worlds.slots.learned import LearnedSlots
from simulate.worlds.slots.speeds import SpeedSurface
from simulate.worlds.slots.world import Conditions, SlotWorld, run_slots

LEARNED = "dl2"
POLICIES = (*BASELINES, LEARNED)


def compare(
    jobs: SlotJobs,
    speeds: SpeedSurface,
    conditions: Conditions,
    names: Sequence[str],
    *,
    network: Network | None = None,
    seeds: Sequence[int] = (0,),
) -> list[Result]:
    """Divide the slots by each policy.

    Args:
        jobs: of the trace.
        speeds: of their models.
        conditions: of the cluster.
        names: of policies.
        network: of `dl2`; None: it does not take part.
        seeds: of the actions that `dl2` draws.

    Raises:
        BadInput: an unknown policy, a model without speeds, or a job that never ends.
    """
    check_known("--policy:", names, POLICIES)
    results = []
    for name, seed in itertools.product(names, seeds):
        divide = BASELINES.get(name)
        if divide is None:
            assert network is not None
            divide = LearnedSlots(network, np.random.default_rng(seed))
        outcome = run_slots(SlotWorld(jobs, speeds, conditions), divide)
        figures = {
            "avg_jct_slots": mean(outcome.completion),
            "makespan_slots": outcome.makespan,
            "avg_reward": mean(outcome.rewards),
            "slots": len(outcome.rewards),
        }
        ends = dict(zip(jobs.number.tolist(), outcome.completion.tolist(), strict=True))
        results.append(Result(discipline=name, seed=seed, ends=ends, figures=figures))
    return results
