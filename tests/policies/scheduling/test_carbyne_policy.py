"""The policy `carbyne`: graphs of jobs on GPUs, beside its world of tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.policies.scheduling.carbyne.stages import Graph, Stage
from simulate.worlds.dags.comparison import compare
from simulate.worlds.dags.workload import Dag, Workload

EXAMPLE = [(0, 1, 10), (0, 1, 6), (0, 1, 1), (0, 3, 2)]  # A, B, and D after both; D3 is alone
AFTER = ["", "", "A B", ""]


@pytest.mark.parametrize("how", [{}, {"clock": "rounds", "round_s": 1.0}])
def test_a_graph_lends_what_it_does_not_need_yet(lab: Any, how: dict[str, Any]) -> None:
    trace = lab.trace(EXAMPLE, parents=AFTER)
    found = lab.spans(lab.run(trace, "carbyne", **how))
    assert found == {"A": (0, 10), "B": (2, 8), "C": (10, 11), "D": (0, 2)}
    never = lab.run(trace, "carbyne", options=("altruistic=false",), **how)
    assert lab.spans(never)["D"] == (6, 8)


def test_a_planned_beginning_wakes_the_policy(lab: Any) -> None:
    """A is left to the last moment; in the published rules it would wait for the end of B."""
    trace = lab.trace([(0, 1, 2), (0, 1, 3), (0, 1, 4), (0, 1, 1)], parents=["", "", "", "A B C"])
    found = lab.spans(lab.run(trace, "carbyne", cluster="1x3"))
    assert found == {"A": (2, 4), "B": (0, 3), "C": (0, 4), "D": (4, 5)}


def test_children_are_planned_by_what_is_predicted_of_them(lab: Any) -> None:
    """A's long child makes A urgent; without knowing it, B would be."""
    jobs = [(0, 2, 5), (0, 2, 9), (0, 2, 20), (0, 2, 5)]
    known = lab.run(lab.trace(jobs, parents=["", "", "A", "B C"]), "carbyne", cluster="1x2")
    assert lab.spans(known)["A"][0] < lab.spans(known)["B"][0]
    late = [(0, 2, 5), (0, 2, 9), (1, 2, 20), (1, 2, 5)]  # they are submitted after the decision
    unknown = lab.run(lab.trace(late, parents=["", "", "A", "B C"]), "carbyne", cluster="1x2")
    assert set(unknown.jobs.status.tolist()) == {"completed"}


chains = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=7,
)


@settings(max_examples=60)
@given(of=chains)
def test_chains_end_as_in_the_world_of_tasks(of: Any, lab: Any) -> None:
    """No plan of a chain leaves a ready job for later, so both forms decide at the same moments."""
    of = sorted(of, key=lambda each: each[0])
    jobs, parents, names, last = [], [], [], []
    dags = []
    for number, (arrival, stages) in enumerate(of):
        for place, (gpus, duration) in enumerate(stages):
            jobs.append((arrival, gpus, duration))
            names.append(f"{number}.{place}")
            parents.append(names[-2] if place else "")
        last.append(names[-1])
        graph = [
            Stage(duration, (gpus,), 1, (place - 1,) if place else ())
            for place, (gpus, duration) in enumerate(stages)
        ]
        dags.append(Dag(id=names[-1], arrival=arrival, graph=Graph(graph)))
    workload = Workload(resources=("gpu",), capacity=(6,), jobs=dags)
    [expected] = compare(workload, ["carbyne"])
    found = lab.spans(
        lab.run(lab.trace(jobs, names=names, parents=parents), "carbyne", cluster="1x6")
    )
    assert {name: found[name][1] for name in last} == dict(expected.ends)


@settings(max_examples=30)
@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 6), st.integers(1, 30), st.integers(0, 255)),
        min_size=1,
        max_size=12,
    )
)
def test_every_job_runs_after_its_parents_and_skipping_changes_nothing(jobs: Any, lab: Any) -> None:
    jobs = sorted(jobs)
    names = [str(number) for number in range(len(jobs))]
    parents = [
        " ".join(
            names[other]
            for other in range(max(number - 8, 0), number)
            if bits >> (number - other - 1) & 1
        )
        for number, (_, _, _, bits) in enumerate(jobs)
    ]
    trace = lab.trace([job[:3] for job in jobs], names=names, parents=parents)
    how = {"cluster": "2x3", "clock": "rounds", "round_s": 4.0}
    outcome = lab.run(trace, "carbyne", **how)
    spans = lab.spans(outcome)
    for name, before in zip(names, parents, strict=True):
        assert all(spans[name][0] >= spans[other][1] for other in before.split())
    assert not np.isnan([end for _, end in spans.values()]).any()
    assert lab.outcome(lab.run(trace, "carbyne", skipping=False, **how)) == lab.outcome(outcome)
