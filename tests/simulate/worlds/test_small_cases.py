"""What holds in every small world under every discipline: no jobs, one, ties, gaps, all at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest

from dlsched.policies.scheduling.carbyne.stages import Graph
from dlsched.policies.scheduling.carbyne.stages import Stage as DagStage
from simulate.worlds.dags import comparison as dags
from simulate.worlds.dags.workload import Dag, Workload
from simulate.worlds.network import comparison as network
from simulate.worlds.network.disciplines import DISCIPLINES, Queues
from simulate.worlds.network.flows import Flow
from simulate.worlds.plans.iteration import Graph as Operations
from simulate.worlds.plans.iteration import Network, Operation, iterate
from simulate.worlds.results import Result
from simulate.worlds.short_tasks.comparison import MATCHINGS, compare_matchings
from simulate.worlds.short_tasks.options import Kind, Options
from simulate.worlds.short_tasks.work import Job, Stage
from simulate.worlds.slots import comparison as slots
from simulate.worlds.slots.baselines import BASELINES
from simulate.worlds.slots.jobs import SlotJobs
from simulate.worlds.slots.speeds import SpeedSurface
from simulate.worlds.slots.world import Conditions

# equal jobs that arrive at these times, under a discipline; the first is also the first in the file
World = Callable[[Sequence[int], str], Result]


def in_dags(arrivals: Sequence[int], name: str) -> Result:
    """Two tasks one after the other, each a half of the cluster for 2 s."""
    stages = [DagStage(2, (1,), 1), DagStage(2, (1,), 1, (0,))]
    jobs = [Dag(id=str(n), arrival=at, graph=Graph(stages)) for n, at in enumerate(arrivals)]
    workload = Workload(resources=("gpu",), capacity=(2,), jobs=jobs)
    discipline, _, compat = name.partition(" ")
    [found] = dags.compare(workload, [discipline], compat=compat)
    return found


def in_network(arrivals: Sequence[int], name: str) -> Result:
    """Six units over a link that carries three a second; half of the flows of unknown size."""
    flows = [
        Flow(id=str(n), kind="unknown" if n % 2 else "known", path=("nic",), size=6.0, arrival=at)
        for n, at in enumerate(arrivals)
    ]
    [found] = network.compare(flows, {"nic": 3.0}, [name], Queues(alpha=(2.0,), beta=(4.0,)))
    return found


def in_short_tasks(arrivals: Sequence[int], name: str) -> Result:
    """Two tasks of 2 s on two servers of one core."""
    stage = Stage(
        name="1", tasks=2, runtime=2.0, spread=0.0, expected=2.0, cores=1, memory=0, parents=()
    )
    jobs = [Job(id=str(n), arrival=at, stages=(stage,)) for n, at in enumerate(arrivals)]
    options = Options(opportunistic=False, corrections=False, spread=0.0)
    [found] = compare_matchings(jobs, [Kind(count=2, cores=1, memory=1)], [name], options)
    return found


def in_slots(arrivals: Sequence[int], name: str) -> Result:
    """Bundles of four slots on a node that has room for two, each an epoch in a slot."""
    count = len(arrivals)
    jobs = SlotJobs(
        number=np.arange(count),
        type=np.ones(count, np.int64),
        model=("net",) * count,
        arrival=np.array(arrivals, np.int64),
        epochs=np.full(count, 4.0),
        batches=np.ones(count),
        worker=np.full((count, 2), 2, np.int64),
        server=np.full((count, 2), 2, np.int64),
    )
    speeds = np.add.outer(np.arange(4.0), np.arange(4.0))
    speeds[0] = speeds[:, 0] = 0.0
    surface = SpeedSurface({"net": speeds / 2})
    [found] = slots.compare(jobs, surface, Conditions(1, 1.0, 2), [name])
    ends = {str(n): arrivals[n] + took for n, took in found.ends.items()}
    return Result(discipline=name, ends=ends, figures=found.figures)


WORLDS: list[tuple[World, str]] = [
    *((in_dags, f"{name} {compat}") for name in dags.DISCIPLINES for compat in dags.PROFILES),
    *((in_network, name) for name in DISCIPLINES),
    *((in_short_tasks, name) for name in MATCHINGS),
    *((in_slots, name) for name in BASELINES),
]
each_world = pytest.mark.parametrize(
    ("world", "name"), WORLDS, ids=[f"{world.__name__}: {name}" for world, name in WORLDS]
)


@each_world
def test_without_jobs_nothing_ends_and_no_figure_is_invented(world: World, name: str) -> None:
    found = world([], name)
    assert found.ends == {}
    told = json.loads(json.dumps(dict(found.figures), allow_nan=False))
    assert not any(value for value in told.values())


@each_world
def test_one_job_takes_as_long_whenever_it_comes(world: World, name: str) -> None:
    now, later = world([0], name), world([7], name)
    assert float(now.ends["0"]) > 0
    assert float(later.ends["0"]) == pytest.approx(7 + float(now.ends["0"]))
    json.dumps(dict(now.figures), allow_nan=False)


@each_world
def test_time_without_any_job_is_passed_over(world: World, name: str) -> None:
    alone = float(world([0], name).ends["0"])
    found = world([0, 40], name)
    assert [float(found.ends[n]) for n in "01"] == pytest.approx([alone, 40 + alone])


@each_world
def test_equal_jobs_at_once_all_end_and_none_before_it_would_alone(world: World, name: str) -> None:
    alone = float(world([0], name).ends["0"])
    found = world([0] * 5, name)
    ends = sorted(float(end) for end in found.ends.values())
    assert len(ends) == 5
    assert ends[0] >= alone - 1e-9
    # five jobs of which two run at once, or one on the whole link or cluster
    assert ends[-1] >= 2 * alone - 1e-9


@each_world
def test_ties_fall_the_same_way_each_time(world: World, name: str) -> None:
    arrivals = [0, 0, 1, 1, 1]
    assert world(arrivals, name).ends == world(arrivals, name).ends


@each_world
def test_more_jobs_end_no_earlier(world: World, name: str) -> None:
    last = [max(map(float, world([0] * count, name).ends.values())) for count in range(1, 6)]
    assert all(before <= after + 1e-9 for before, after in pairwise(last))


def test_an_iteration_of_nothing_takes_no_time_and_equal_operations_take_turns() -> None:
    network = Network({}, [])
    assert iterate(Operations([], []), network).makespan_us == 0
    for count in (1, 5):
        equal = [Operation(f"f{n}", 0, 10) for n in range(count)]
        found = iterate(Operations(equal, []), network)
        assert found.finish_us == [10 * (n + 1) for n in range(count)]
