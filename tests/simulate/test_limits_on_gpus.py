"""Limits on the GPUs of priority classes, and of each user in one, hold in a replay."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.description import Cluster, Node
from dlsched.core.cluster.site_rules import SiteRules
from dlsched.core.speed.throughput_table import JobKind, Measurement, ThroughputTable
from dlsched.tenants.fields import PriorityClass
from simulate.traces.trace import Trace

CLASSES, USERS = ("urgent", "idle", ""), ("ann", "bob")
POLICIES = (
    *("fifo", "first-fit", "las", "srtf", "tiresias", "multifactor", "easy", "gandiva"),
    *("testing-random", "testing-thrash", "testing-always-preempt"),
)
# submits on rounds and between them, several at a time
JOBS = st.lists(
    st.tuples(
        st.integers(0, 20).map(lambda k: 15.0 * k),
        st.integers(1, 5),
        st.integers(1, 300).map(float),
        st.sampled_from(USERS),
        st.sampled_from(CLASSES),
    ),
    min_size=1,
    max_size=20,
)
LIMITS = st.tuples(st.integers(1, 6), st.none() | st.integers(1, 4))


def cluster_of(limits: tuple[int | None, int | None], **more: Any) -> Cluster:
    urgent = PriorityClass(name="urgent", gpus=limits[0], gpus_per_user=limits[1], **more)
    nodes = [Node(name=name, gpus=4, gpu_type="x") for name in ("n1", "n2")]
    return Cluster(nodes, rules=SiteRules(classes=(urgent, PriorityClass(name="idle"))))


def trace_of(lab: Any, jobs: list[Any], **columns: Any) -> Trace:
    jobs = sorted(jobs, key=lambda job: job[0])
    found: Trace = lab.trace(
        [job[:3] for job in jobs],
        names=[str(k) for k in range(len(jobs))],
        user=[job[3] for job in jobs],
        **{"class": [job[4] for job in jobs]},
        **columns,
    )
    return found


def most_at_once(engine: Any, trace: Trace, wanted: Any) -> list[float]:
    """The GPUs that jobs of a class or a user in it hold, after each decision of a run."""
    rows = [
        row
        for row, (user, kind) in enumerate(zip(trace.user, trace.columns["class"], strict=True))
        if wanted(user, kind)
    ]
    seen: list[float] = [0.0]
    engine.observers.append(
        lambda engine, _: seen.append(float(engine.world.table.gpus_now[rows].sum()))
    )
    return seen


@given(
    policy=st.sampled_from(POLICIES),
    jobs=JOBS,
    limits=LIMITS,
    clock=st.sampled_from(["rounds", "events"]),
)
def test_no_policy_gives_a_class_or_a_user_in_it_more_than_the_limit(
    lab: Any, policy: str, jobs: list[Any], limits: Any, clock: str
) -> None:
    trace = trace_of(lab, jobs)
    engine = lab.engine(trace, policy, cluster=cluster_of(limits), clock=clock, horizon=9000.0)
    seen = [most_at_once(engine, trace, lambda _, kind: kind == "urgent")]
    for user in USERS:
        seen.append(
            most_at_once(engine, trace, lambda own, kind, me=user: (own, kind) == (me, "urgent"))
        )
    engine.run()
    each = math.inf if limits[1] is None else limits[1]
    assert max(seen[0]) <= limits[0]
    assert max(map(max, seen[1:])) <= each
    too_large = [job[4] == "urgent" and job[1] > min(limits[0], each) for job in jobs]
    if not policy.startswith("testing"):  # these may end no job at all
        ended = np.count_nonzero(~np.isnan(engine.world.table.finish))
        assert ended == len(jobs) - sum(too_large)


@given(policy=st.sampled_from(POLICIES[:6]), jobs=JOBS, limits=LIMITS)
def test_skipped_rounds_change_nothing_under_limits(
    lab: Any, policy: str, jobs: list[Any], limits: Any
) -> None:
    trace = trace_of(lab, jobs)
    found = [
        lab.outcome(
            lab.run(trace, policy, cluster=cluster_of(limits), clock="rounds", skipping=skipping)
        )
        for skipping in (True, False)
    ]
    assert found[0] == found[1]


@given(jobs=JOBS)
def test_limits_that_are_never_reached_change_nothing(lab: Any, jobs: list[Any]) -> None:
    trace = trace_of(lab, jobs)
    plain, limited = (
        lab.outcome(lab.run(trace, "srtf", cluster=cluster_of(limits), clock="rounds"))
        for limits in ((None, None), (1000, 1000))
    )
    assert plain == limited


def test_jobs_come_in_their_order_and_smaller_ones_may_pass(lab: Any) -> None:
    jobs = [
        (0, 3, 10, "ann", "urgent"),
        (1, 2, 10, "bob", "urgent"),  # waits for room
        (2, 1, 20, "ann", "urgent"),  # passes it
        (3, 4, 10, "bob", ""),
    ]
    result = lab.run(trace_of(lab, jobs), cluster=cluster_of((4, None)))
    assert lab.spans(result) == {"0": (0, 10), "1": (10, 20), "2": (2, 22), "3": (3, 13)}


def test_a_job_beyond_a_limit_is_refused_in_slurms_words(lab: Any) -> None:
    jobs = [(0, 3, 10, "ann", "urgent"), (0, 2, 10, "ann", "urgent")]
    result = lab.run(trace_of(lab, jobs), cluster=cluster_of((8, 2)))
    assert result.jobs.status.tolist() == ["refused", "completed"]
    told = "QOSMaxGRESPerUser: needs 3 GPUs, and user ann in class urgent may have 2"
    assert result.jobs.reason[0] == told


def test_a_job_that_names_no_class_is_in_the_default_one(lab: Any) -> None:
    jobs = [(0, 1, 10, "ann", ""), (0, 1, 10, "bob", "")]
    result = lab.run(trace_of(lab, jobs), cluster=cluster_of((1, None), is_default=True))
    assert lab.spans(result) == {"0": (0, 10), "1": (10, 20)}


def test_elastic_jobs_share_what_a_limit_leaves(lab: Any) -> None:
    speeds = ((1, 1.0), (2, 1.8), (4, 3.0))
    table = ThroughputTable(
        [
            Measurement(gpu_type="x", scale=scale, kind=JobKind("m"), rate=rate)
            for scale, rate in speeds
        ]
    )
    jobs = [(0, 1, 1, "ann", "urgent"), (0, 1, 1, "ann", "")]
    trace = trace_of(
        lab, jobs, model=["m"] * 2, total_iterations=[900] * 2, min_gpus=[1] * 2, max_gpus=[4] * 2
    )
    engine = lab.engine(
        trace, "afs", cluster=cluster_of((2, None)), throughputs=table, clock="rounds"
    )
    limited = most_at_once(engine, trace, lambda _, kind: kind == "urgent")
    free = most_at_once(engine, trace, lambda _, kind: not kind)
    engine.run()
    assert (max(limited), max(free)) == (2, 4)


def test_parts_of_gpus_count_as_parts(lab: Any) -> None:
    jobs = [(0, 0.5, 10, "ann", "urgent")] * 3
    result = lab.run(trace_of(lab, jobs), cluster=cluster_of((1, None)))
    assert sorted(lab.spans(result).values()) == [(0, 10), (0, 10), (10, 20)]
