from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.options import NoOptions
from dlsched.core.stage import AdmissionPolicy
from simulate.clusters.cluster_events import ClusterEvent
from simulate.clusters.failures import with_failures

CLUSTER = parse_cluster_spec("5x4")


def first_events(count, scripted=(), cluster=CLUSTER, **given):
    given = {"mtbf_s": 100.0, "mttr_s": 10.0, "seed": 1, **given}
    return list(islice(with_failures(cluster, scripted, **given), count))


def test_the_same_seed_gives_the_same_failures_and_another_others():
    assert first_events(50) == first_events(50)
    assert first_events(50) != first_events(50, seed=2)


def test_another_node_does_not_change_the_failures_of_the_others():
    larger = parse_cluster_spec("6x4")
    others = [event for event in first_events(120, cluster=larger) if event.node < 5]
    assert others == first_events(len(others))


def test_times_are_on_average_what_was_asked_for():
    events = first_events(20_000)
    lives: dict[int, list[float]] = {}
    for event in events:
        lives.setdefault(event.node, []).append(event.time)
    gaps = [np.diff([0.0, *times]) for times in lives.values()]
    up = np.concatenate([gap[::2] for gap in gaps])
    down = np.concatenate([gap[1::2] for gap in gaps])
    assert up.mean() == pytest.approx(100.0, rel=0.05)
    assert down.mean() == pytest.approx(10.0, rel=0.05)


KINDS = st.sampled_from(["join", "leave", "fail", "drain", "undrain"])


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 4), KINDS), max_size=20))
def test_failures_respect_what_the_script_says(steps):
    # keep what can happen: joins of absent nodes, everything else of present ones
    scripted, serving = [], dict.fromkeys(range(5), True)
    first = {}
    for _, node, kind in sorted(steps):
        first.setdefault(node, kind)
    serving = {node: first.get(node) != "join" for node in range(5)}
    for time, node, kind in sorted(steps):
        if (kind == "join") != serving[node]:
            serving[node] = kind not in ("leave", "fail")
            scripted.append(ClusterEvent(time=float(time), kind=kind, node=node))
    events = first_events(200, scripted)
    assert [event.time for event in events] == sorted(event.time for event in events)
    mine = {id(event) for event in scripted}
    for node in range(5):
        script_has = first.get(node) != "join"
        up, draining = script_has, False
        for event in (event for event in events if event.node == node):
            if id(event) in mine:
                up = up if event.kind in ("drain", "undrain") else event.kind == "join"
                script_has = up if event.kind in ("join", "leave", "fail") else script_has
                draining = {"drain": True, "undrain": False, "join": False}.get(
                    event.kind, draining
                )
            elif event.kind == "drain":
                assert draining
            else:
                assert script_has
                assert up == (event.kind == "fail")
                up = event.kind == "join"


def test_a_replay_ends_although_failures_do_not(lab):
    result = lab.run([(0, 4, 500), (10, 4, 500)], cluster="2x4", mtbf_s=200.0, mttr_s=20.0)
    assert result.jobs.status.tolist() == ["completed"] * 2
    assert result.summary["lost_seconds"] > 0
    assert result.summary["end_time"] == np.nanmax(result.jobs.finish_time)


def test_checkpoints_bound_what_failures_cost(lab):
    def lost(interval):
        given = {"mtbf_s": 300.0, "mttr_s": 20.0, "interval": interval, "seed": 3}
        return lab.run([(0, 4, 2000)], **given).summary["lost_seconds"]

    assert 0 < lost(10.0) < lost(100.0) < lost(None)


def test_a_policy_that_starts_no_job_ends_although_failures_do_not(lab):
    result = lab.run([(0, 4, 500)], "testing-never", mtbf_s=200.0, mttr_s=20.0)
    assert result.jobs.status.tolist() == ["unfinished"]


class AdmitsNone(AdmissionPolicy):
    """Admits no job."""

    name = "admits-none"

    def admit(self, queue, ctx):
        return np.zeros(len(queue), np.bool_), {}


def test_a_job_that_is_never_admitted_ends_the_run_although_failures_do_not(lab):
    engine = lab.engine([(0, 4, 500)], clock="events", mtbf_s=200.0, mttr_s=20.0)
    engine.cycle.parts = replace(engine.parts, admission=AdmitsNone(NoOptions()))
    assert engine.run().reason == "1 job can never run"
