"""The same jobs under several disciplines: how long they take, and how full the cluster is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlsched.core.errors import not_known
from dlsched.policies.scheduling.carbyne.stages import Number
from simulate.dags.artifact2016 import artifact2016
from simulate.dags.disciplines import (
    BestFit,
    Carbyne,
    CriticalPath,
    FurthestBelow,
    InOrder,
    ShortestFirst,
)
from simulate.dags.exact import exact
from simulate.dags.following import Discipline, Profile, follow
from simulate.dags.tetris import Tetris
from simulate.dags.workload import Workload

MAKERS: Mapping[str, Callable[[Profile], Discipline]] = {
    "drf-cp": lambda profile: InOrder(FurthestBelow(profile.shares), CriticalPath()),
    "drf-tetris": lambda profile: InOrder(FurthestBelow(profile.shares), BestFit()),
    "srtf-cp": lambda profile: InOrder(ShortestFirst(), CriticalPath()),
    "srtf-tetris": lambda profile: InOrder(ShortestFirst(), BestFit()),
    "tetris": lambda profile: Tetris(shares=profile.shares),
}
PROFILES: Mapping[str, Callable[[Workload], Profile]] = {
    "exact": exact,
    "artifact2016": artifact2016,
}
DISCIPLINES = ("carbyne", *MAKERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of the jobs under one discipline.

    Attributes:
        discipline: its name.
        ends: of each job, in seconds.
        mean_jct_s: from arrival to end.
        median_jct_s: of the same.
        p95_jct_s: of the same.
        last_end_s: when the last job ends, from the first arrival.
        fullest: the part of the cluster's most used resource that is used until then.
    """

    discipline: str
    ends: Mapping[str, Number]
    mean_jct_s: float
    median_jct_s: float
    p95_jct_s: float
    last_end_s: float
    fullest: float

    def figures(self) -> dict[str, Any]:
        """All but the ends, for JSON."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "ends"}


def compare(
    workload: Workload,
    names: Sequence[str],
    *,
    compat: str = "exact",
    altruism: float = 1.0,
    seed: int = 0,
) -> list[Result]:
    """Follow jobs under each discipline.

    Args:
        workload: the jobs and their cluster.
        names: of disciplines.
        compat: the profile: `exact`, or `artifact2016`.
        altruism: the probability that a job under Carbyne leaves what it can leave, at each event.
        seed: of these draws.

    Raises:
        BadInput: an unknown discipline or profile, or jobs that never end.
    """
    if compat not in PROFILES:
        raise not_known("--compat:", compat, sorted(PROFILES))
    for name in names:
        if name not in DISCIPLINES:
            raise not_known("--discipline:", name, DISCIPLINES)
    results = []
    for name in names:
        profile = PROFILES[compat](workload)
        discipline = (
            Carbyne(profile.shares, altruism=altruism, seed=seed)
            if name == "carbyne"
            else MAKERS[name](profile)
        )
        results.append(_result(name, workload, follow(profile, discipline)))
    return results


def _result(name: str, workload: Workload, ends: Mapping[str, Number]) -> Result:
    took = [float(ends[job.id] - job.arrival) for job in workload.jobs]
    span = float(max(ends.values()) - min(job.arrival for job in workload.jobs))
    stages = [stage for job in workload.jobs for stage in job.graph.stages]
    work = [
        sum(float(stage.demand[each] * stage.duration) * stage.tasks for stage in stages)
        / float(size)
        for each, size in enumerate(workload.capacity)
    ]
    return Result(
        discipline=name,
        ends=ends,
        mean_jct_s=float(np.mean(took)),
        median_jct_s=float(np.median(took)),
        p95_jct_s=float(np.percentile(took, 95)),
        last_end_s=span,
        fullest=max(work) / span,
    )
