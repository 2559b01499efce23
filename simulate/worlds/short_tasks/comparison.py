"""The same tasks under several ways of matching."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dlsched.core.sums import ordered_sum
from simulate.worlds.results import Result, check_known, mean, percentile
from simulate.worlds.short_tasks.options import Kind, Options
from simulate.worlds.short_tasks.scheduler import MATCHERS
from simulate.worlds.short_tasks.work import Job
from simulate.worlds.short_tasks.world import World

MATCHINGS = tuple(MATCHERS)


def compare_matchings(
    jobs: Sequence[Job],
    kinds: Sequence[Kind],
    names: Sequence[str],
    options: Options,
    seeds: Sequence[int] = (),
) -> list[Result]:
    """Follow the jobs under each way of matching, with each seed; without seeds, as options say.

    Raises:
        BadInput: an unknown way, or a task that fits on no server.
    """
    check_known("--matching:", names, MATCHINGS)
    return [
        _followed(jobs, kinds, name, replace(options, seed=seed))
        for name, seed in itertools.product(names, seeds or (options.seed,))
    ]


def _followed(jobs: Sequence[Job], kinds: Sequence[Kind], name: str, options: Options) -> Result:
    began = time.process_time()
    outcome = World(jobs, kinds, name, options).run()
    took = time.process_time() - began
    arrivals = np.array([state.job.arrival for state in outcome.jobs])
    ends = np.array([np.nan if s.ended_at is None else s.ended_at for s in outcome.jobs])
    makespan = float(ends.max() - arrivals.min()) if len(ends) else None
    cores = ordered_sum(kind.count * kind.cores for kind in kinds)
    used = outcome.core_s + outcome.wasted_core_s
    figures = {
        "mean_jct_s": mean(ends - arrivals),
        "p95_jct_s": percentile(ends - arrivals, 95),
        "makespan_s": makespan,  # from the first arrival
        "mean_wait_s": mean(outcome.waits),  # of regular tasks, from sending to start
        "p99_wait_s": percentile(outcome.waits, 99),
        "wait_error_s": mean(outcome.errors),  # by which these waits were not as expected
        # core-seconds of useful work in all that there were until the last end
        "utilisation": outcome.core_s / (cores * makespan) if makespan else None,
        "wasted": outcome.wasted_core_s / used if used else 0.0,
        "counts": dict(sorted(outcome.counts.items())),
        "tasks_per_cpu_s": outcome.counts["done"] / max(took, 1e-9),  # of this program
    }
    return Result(
        discipline=name,
        seed=options.seed,
        ends={state.job.id: state.ended_at for state in outcome.jobs},
        figures=figures,
    )
