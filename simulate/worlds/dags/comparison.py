"""The same jobs under several disciplines: how long they take, and how full the cluster is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from dlsched.core.sums import ordered_sum
from dlsched.policies.scheduling.carbyne.stages import Number
from simulate.worlds.dags.artifact2016 import artifact2016
from simulate.worlds.dags.disciplines import (
    Carbyne,
    best_fit,
    critical_path,
    furthest_below,
    in_order,
    shortest_first,
)
from simulate.worlds.dags.following import Discipline, Profile, exact, follow
from simulate.worlds.dags.tetris import tetris
from simulate.worlds.dags.workload import Workload
from simulate.worlds.results import Result, check_known, mean, percentile

MAKERS: Mapping[str, Callable[[Profile], Discipline]] = {
    "drf-cp": lambda profile: in_order(furthest_below(profile.shares), critical_path),
    "drf-tetris": lambda profile: in_order(furthest_below(profile.shares), best_fit),
    "srtf-cp": lambda profile: in_order(shortest_first, critical_path),
    "srtf-tetris": lambda profile: in_order(shortest_first, best_fit),
    "tetris": lambda profile: tetris(profile.shares),
}
PROFILES: Mapping[str, Callable[[Workload], Profile]] = {
    "exact": exact,
    "artifact2016": artifact2016,
}
DISCIPLINES = ("carbyne", *MAKERS)


def compare(
    workload: Workload,
    names: Sequence[str],
    *,
    compat: str = "exact",
    altruism: float = 1.0,
    seeds: Sequence[int] = (0,),
) -> list[Result]:
    """Follow jobs under each discipline.

    Args:
        workload: the jobs and their cluster.
        names: of disciplines.
        compat: the profile: `exact`, or `artifact2016`.
        altruism: the probability that a job under Carbyne leaves what it can leave, at each event.
        seeds: of these draws; each discipline is followed once with each.

    Raises:
        BadInput: an unknown discipline or profile, or jobs that never end.
    """
    check_known("--compat:", [compat], PROFILES)
    check_known("--discipline:", names, DISCIPLINES)
    results = []
    for name, seed in itertools.product(names, seeds):
        profile = PROFILES[compat](workload)
        discipline = (
            Carbyne(profile.shares, altruism=altruism, seed=seed)
            if name == "carbyne"
            else MAKERS[name](profile)
        )
        ends = follow(profile, discipline)
        figures = _figures(workload, ends)
        results.append(Result(discipline=name, seed=seed, ends=ends, figures=figures))
    return results


def _figures(workload: Workload, ends: Mapping[str, Number]) -> dict[str, float | None]:
    took = [float(ends[job.id] - job.arrival) for job in workload.jobs]
    span = float(max(ends.values()) - min(job.arrival for job in workload.jobs)) if ends else None
    stages = [stage for job in workload.jobs for stage in job.graph.stages]
    work = [
        ordered_sum(float(stage.demand[each] * stage.duration) * stage.tasks for stage in stages)
        / float(size)
        for each, size in enumerate(workload.capacity)
    ]
    return {
        "mean_jct_s": mean(took),
        "median_jct_s": percentile(took, 50),
        "p95_jct_s": percentile(took, 95),
        "last_end_s": span,  # from the first arrival
        "fullest": max(work) / span if span else None,  # of the most used resource, until then
    }
