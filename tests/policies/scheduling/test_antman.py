"""AntMan: owners as if they were alone, and others in what owners leave."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlsched.core.cluster.description import Cluster
from dlsched.policies.scheduling.antman.leftovers import best, candidates, score
from simulate.clusters.cluster_files import read_cluster_file

GUARANTEED, OPPORTUNISTIC, AUTO = "guaranteed", "opportunistic", "auto"


def test_the_sheets_gpus() -> None:
    used, memory = np.array([70.0, 30.0, 10.0, 85.0]), np.array([8.0, 15.9, 16.0, 1.0])
    allowed = candidates(used, memory, 80.0, 16.0)
    assert allowed.tolist() == [True, True, False, False]
    assert best(used, allowed) == [1]
    assert score(used, allowed) == 70.0
    full = candidates(np.array([80.0, 95.0]), np.zeros(2), 80.0, 16.0)
    assert (best(used[:2], full), score(used[:2], full)) == ([], 0.0)


def test_use_that_is_not_known_is_no_room() -> None:
    assert candidates(np.array([math.nan]), np.zeros(1), 80.0, 16.0).tolist() == [False]


def run(lab: Any, jobs: Any, kinds: list[str], use: Any, cluster: Any = "1x1", **more: Any) -> Any:
    trace = lab.trace(jobs, guarantee=kinds, gpu_util=use, **more.pop("columns", {}))
    return lab.run(trace, "antman", cluster=cluster, **{"interference": "utilisation", **more})


def test_an_owner_starts_at_once_on_a_gpu_that_another_uses(lab: Any) -> None:
    result = run(lab, [(0, 1, 100), (10, 1, 50)], [OPPORTUNISTIC, GUARANTEED], [60, 30])
    assert lab.spans(result)["B"] == (10, pytest.approx(60, rel=0.05))
    assert lab.spans(result)["A"][1] > 110  # it stood still until the owner's time was known
    assert result.jobs.preemptions.tolist() == [0, 0]


def test_an_opportunistic_job_waits_while_no_gpu_leaves_enough(lab: Any) -> None:
    result = run(lab, [(0, 1, 100), (10, 1, 50)], [GUARANTEED, OPPORTUNISTIC], [80, 10])
    assert lab.spans(result)["B"][0] == 100
    unknown = run(lab, [(0, 1, 100), (10, 1, 50)], [GUARANTEED, OPPORTUNISTIC], [math.nan, 10])
    assert lab.spans(unknown)["B"][0] == 100


def test_a_gpu_has_room_for_an_owner_beside_as_many_as_the_interference_knows(lab: Any) -> None:
    """`stages` knows four on a GPU: the place of the fourth is kept for an owner."""
    columns = {"data_ms": [5.0] * 5, "gpu_ms": [5.0] * 5, "network_ms": [5.0] * 5}
    jobs = [(k, 1, 100) for k in range(5)]
    result = run(
        lab,
        jobs,
        [OPPORTUNISTIC] * 4 + [GUARANTEED],
        [10] * 5,
        columns={**columns, "iteration_ms": [15.0] * 5},
        interference="stages",
    )
    starts = result.jobs.first_start_time.tolist()
    assert (starts[:3], starts[4]) == ([0, 1, 2], 4)
    assert starts[3] > 100
    assert (result.jobs.status == "completed").all()


def cluster_of(folder: Path, text: str) -> Cluster:
    file = folder / "cluster.toml"
    file.write_text(text)
    return read_cluster_file(file)


def test_an_opportunistic_job_takes_the_least_used_gpu_and_only_where_its_memory_fits(
    lab: Any, tmp_path: Path
) -> None:
    kinds = [GUARANTEED, GUARANTEED, OPPORTUNISTIC]
    result = run(lab, [(0, 1, 500), (0, 1, 500), (10, 1, 50)], kinds, [70, 30, 90], "1x2:v100")
    # beside the second owner it takes longer alone than the 50 s of its work, and slows none
    assert lab.spans(result)["A"][1] == 500
    assert 500 < lab.spans(result)["B"][1] <= 525
    small = cluster_of(
        tmp_path, "[[nodes]]\ncount = 1\ngpus = 1\ngpu_type = 'v100'\ngpu_memory_gib = 16\n"
    )
    full = run(
        lab,
        [(0, 1, 100), (10, 1, 50)],
        [GUARANTEED, OPPORTUNISTIC],
        [30, 30],
        small,
        columns={"gpu_memory_gib": [14.0, 4.0]},
    )
    assert lab.spans(full)["B"][0] == 100


def test_an_opportunistic_job_of_one_gpu_beside_an_owner_of_several(lab: Any) -> None:
    kinds = [GUARANTEED, OPPORTUNISTIC, OPPORTUNISTIC]
    result = run(lab, [(0, 4, 300), (10, 1, 50), (10, 2, 50)], kinds, [20, 20, 20], "1x4")
    assert lab.spans(result)["B"][0] == lab.spans(result)["C"][0] == 10
    assert result.summary["gpu_utilization"] <= 1.0


def test_opportunistic_jobs_on_different_gpus_of_an_owner_are_not_beside_each_other(
    lab: Any,
) -> None:
    """On each GPU the owner and one opportunistic job fit; all five together would be 1.6 GPUs."""
    kinds = [GUARANTEED, *[OPPORTUNISTIC] * 4]
    jobs = [(0, 4, 300), *[(10, 1, 50)] * 4]
    result = run(lab, jobs, kinds, [40, 30, 30, 30, 30], "1x4")
    assert lab.spans(result)["A"] == (0, 300)
    stages = {"iteration_ms": [100.0] * 5, "data_ms": [40.0] * 5}
    stages |= {"gpu_ms": [40.0] * 5, "network_ms": [10.0] * 5}
    known = run(
        lab, jobs, kinds, [40, 30, 30, 30, 30], "1x4", columns=stages, interference="stages"
    )
    assert (known.jobs.status == "completed").all()


def test_quotas_are_for_guaranteed_jobs_alone(lab: Any, tmp_path: Path) -> None:
    nodes, vcs = "[[nodes]]\ncount = 1\ngpus = 4\n", "[[vcs]]\nname = 'a'\ngpus = 1\n"
    text = f"{nodes}gpu_type = 'v100'\n{vcs}guaranteed = 1\n"
    cluster = cluster_of(tmp_path, text)
    jobs = [(0, 1, 100), (0, 1, 100), (0, 1, 100)]
    trace = lab.trace(
        jobs,
        vc=["a", "a", "a"],
        guarantee=[GUARANTEED, GUARANTEED, OPPORTUNISTIC],
        gpu_util=[20, 20, 20],
    )
    result = lab.run(trace, "antman", cluster=cluster, interference="utilisation")
    assert [lab.spans(result)[job][0] for job in "ABC"] == [0, 100, 0]


def test_the_first_that_waits_keeps_what_comes_free(lab: Any) -> None:
    result = run(
        lab, [(0, 3, 100), (10, 4, 50), (20, 1, 10)], [GUARANTEED] * 3, [20, 20, 20], "1x4"
    )
    assert [lab.spans(result)[job][0] for job in "ABC"] == [0, 100, 150]


def test_an_auto_job_waits_a_little_or_becomes_an_owner_in_place(lab: Any) -> None:
    soon = run(lab, [(0, 1, 100), (60, 1, 50)], [GUARANTEED, AUTO], [30, 30])
    assert lab.spans(soon)["B"][0] == 100
    late = run(
        lab, [(0, 1, 200), (60, 1, 500), (250, 1, 50)], [GUARANTEED, AUTO, GUARANTEED], [30, 30, 30]
    )
    assert lab.spans(late)["B"][0] == 60
    assert lab.spans(late)["C"][0] == lab.spans(late)["B"][1]  # the GPU is B's since A has ended
    assert late.jobs.starts.tolist() == [1, 1, 1]


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_owners_queue_as_if_they_were_alone(lab: Any, data: Any) -> None:
    """With opportunistic jobs or without, each guaranteed one starts and ends at the same time."""
    count = data.draw(st.integers(2, 12))
    jobs = [
        (
            data.draw(st.integers(0, 500)),
            data.draw(st.sampled_from([1, 2, 4])),
            data.draw(st.integers(10, 300)),
        )
        for _ in range(count)
    ]
    kinds = [data.draw(st.sampled_from([GUARANTEED, OPPORTUNISTIC])) for _ in range(count)]
    kinds[0] = GUARANTEED
    use = [data.draw(st.integers(5, 60)) for _ in range(count)]
    names = [str(k) for k in range(count)]
    both = lab.trace(jobs, names=names, guarantee=kinds, gpu_util=use)
    own = [k for k in range(count) if kinds[k] == GUARANTEED]
    alone = lab.trace(
        [jobs[k] for k in own], names=[names[k] for k in own], guarantee=[GUARANTEED] * len(own)
    )
    found = lab.spans(lab.run(both, "antman", cluster="1x4", interference="none"))
    expected = lab.spans(lab.run(alone, "antman", cluster="1x4", interference="none"))
    assert {job: found[job] for job in expected} == expected


@pytest.mark.slow
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    owner=st.integers(5, 79),
    uses=st.lists(st.integers(5, 100), min_size=1, max_size=3),
    seed=st.integers(0, 99),
)
def test_a_day_beside_others_costs_an_owner_five_per_cent_at_most(
    lab: Any, owner: int, uses: list[int], seed: int
) -> None:
    """24 hours; each arrival is a change, after which 10 s do not count."""
    day, times = 86_400.0, np.sort(np.random.default_rng(seed).uniform(0, 40_000, len(uses)))
    jobs = [(0.0, 1, day), *((float(at), 1, 20_000.0) for at in times)]
    kinds = [GUARANTEED, *[OPPORTUNISTIC] * len(uses)]
    result = run(lab, jobs, kinds, [owner, *uses], check=False)
    taken = float(result.jobs.finish_time[0])
    assert taken - day <= 0.05 * day + 10.0 * len(jobs)
