"""The profile of the published simulator (2016): two decimals, steps of a second, its own shares.

For comparison with its output only. Its oddities: every sum is rounded, so a task whose score is
below 0.005 never begins; it plans anew in every step up to the last arrival; shares are made anew
only when a job arrives or the last one of the jobs that were touched is done; and a share that
cannot be served at once is replaced by what can (`_served`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from dlsched.core.errors import BadInput
from dlsched.core.sums import ordered_sum
from dlsched.policies.scheduling.carbyne.stages import Graph, Number, Vector
from simulate.worlds.dags.cluster import Amounts, Cluster, Live
from simulate.worlds.dags.following import Moment, Profile
from simulate.worlds.dags.workload import Dag, Workload

RESOURCES = 6  # of its machine, whatever the workload has
SLACK = 1e-4  # by which a task may exceed what is free in a plan


def _rounded(value: Number) -> float:
    return math.floor(100 * value + 0.5) / 100


class RoundedRoom:
    """A virtual machine that counts with two decimals."""

    def __init__(self, size: Vector) -> None:
        """An empty machine."""
        self._size, self._free = size, size
        self._used: Vector = (0.0,) * len(size)

    def need(self, demand: Vector) -> Vector:
        """The demand as it is."""
        return demand

    def holds(self, need: Vector) -> bool:
        """Whether a task fits where nothing else runs."""
        return all(part <= size for part, size in zip(need, self._size, strict=True))

    def score(self, need: Vector) -> Number | None:
        """The rounded product, above 0; None: it is 0, or the task does not fit."""
        if any(part > free + SLACK for part, free in zip(need, self._free, strict=True)):
            return None
        score = _rounded(
            ordered_sum(part * free for part, free in zip(need, self._free, strict=True))
        )
        return score if score > 0 else None

    def take(self, need: Vector) -> None:
        """A task begins."""
        self._use(AMOUNTS.plus(self._used, need))

    def give(self, need: Vector) -> None:
        """A task ends."""
        self._use(AMOUNTS.minus(self._used, need))

    def _use(self, used: Vector) -> None:
        self._used, self._free = used, AMOUNTS.difference(self._size, used)


AMOUNTS = Amounts(room=RoundedRoom, counted=_rounded)  # every sum has two decimals


class KeptShares:
    """Dominant shares that are kept between events, and cut to what is free."""

    def __init__(self) -> None:
        """No shares yet."""
        self._kept: dict[str, Vector] = {}

    def __call__(self, cluster: Cluster, moment: Moment) -> list[Vector]:
        """Resources of each job of the cluster, in its order."""
        if moment.arriving or (moment.touched and moment.touched[-1].is_done):
            self._kept = _dominant(cluster.jobs, cluster.capacity)
        self._kept |= _served(cluster, self._kept)
        return [self._kept[job.dag.id] for job in cluster.jobs]


def _dominant(jobs: Sequence[Live], capacity: Vector) -> dict[str, Vector]:
    if not jobs:
        return {}
    wanted = {job.dag.id: _profile(job.graph, capacity) for job in jobs}
    total: Vector = (0.0,) * len(capacity)
    for each in wanted.values():
        total = AMOUNTS.plus(total, each)
    share = capacity[0] / max(total)
    return {name: tuple(part * share for part in each) for name, each in wanted.items()}


def _profile(graph: Graph, capacity: Vector) -> Vector:
    total: Vector = (0.0,) * len(capacity)
    for stage in graph.stages:
        total = AMOUNTS.plus(total, tuple(stage.tasks * part for part in stage.demand))
    count = sum(stage.tasks for stage in graph.stages)
    mean = [part / count / size for part, size in zip(total, capacity, strict=True)]
    return tuple(part / max(mean) for part in mean)


def _served(cluster: Cluster, shares: dict[str, Vector]) -> dict[str, Vector]:
    """Shares that are replaced since the free resources do not suffice, the largest need first."""
    needs: list[tuple[str, Vector]] = []
    for job in cluster.jobs:
        need = AMOUNTS.difference(quota := shares[job.dag.id], job.held)
        pairs = list(zip(quota, job.held, strict=True))
        if any(max(a - b, b - a) > SLACK for a, b in pairs) and any(a > b for a, b in pairs):
            needs.append((job.dag.id, need))
    needs.sort(key=lambda each: -ordered_sum(each[1]))
    free, replaced = cluster.free, dict[str, Vector]()
    for name, need in needs:
        if not any(part > 0 for part in free):
            break
        given = need
        if any(part < asked for part, asked in zip(free, need, strict=True)):
            given = replaced[name] = tuple(min(a, b) for a, b in zip(free, need, strict=True))
        free = AMOUNTS.minus(free, given)
    return replaced


def steps(now: Number | None, arrival: Number | None, end: Number | None) -> Number | None:
    """Every second up to the last arrival, then the next whole second with an ended task."""
    if arrival is not None:
        return 0 if now is None else now + 1
    return None if end is None else math.ceil(end)


def artifact2016(workload: Workload) -> Profile:
    """The profile.

    Raises:
        BadInput: the workload is none that the published simulator can read.
    """
    if len(set(workload.capacity)) > 1 or len(workload.capacity) > RESOURCES:
        raise BadInput(
            f"compat artifact2016: at most {RESOURCES} resources, and the same capacity of each"
        )
    late = [job for job in workload.jobs if job.arrival != int(job.arrival)]
    if late:
        raise BadInput(
            f"compat artifact2016: job {late[0].id} arrives at {float(late[0].arrival):g}; "
            "arrivals are whole seconds"
        )
    for job in workload.jobs:
        for number, stage in enumerate(job.graph.stages, 1):
            if any(Fraction(part) * 100 % 1 for part in stage.demand):
                raise BadInput(
                    f"compat artifact2016: job {job.id}: stage {number}: demands have two decimals"
                )
    more = RESOURCES - len(workload.capacity)
    return Profile(
        amounts=AMOUNTS,
        shares=KeptShares(),
        clock=steps,
        workload=replace(
            workload,
            capacity=(float(workload.capacity[0]),) * RESOURCES,
            jobs=[_padded(job, more) for job in workload.jobs],
        ),
    )


def _padded(job: Dag, more: int) -> Dag:
    stages = [
        replace(stage, demand=(*map(float, stage.demand), *(0.0,) * more))
        for stage in job.graph.stages
    ]
    return replace(job, graph=Graph(stages))
