"""Conservative backfill: the search that goes on where an easier one ended, against a plain one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.description import Cluster, Node, VirtualCluster
from dlsched.core.options import NoOptions
from dlsched.policies.scheduling import conservative
from dlsched.policies.scheduling.conservative import Conservative, Reservations

GPUS = 8
HALVES = Cluster(
    [Node(name="n", gpus=4), Node(name="m", gpus=4)],
    [VirtualCluster(name="a", nodes=("n",)), VirtualCluster(name="b", nodes=("m",))],
)
ASKED = st.tuples(
    st.integers(1, GPUS + 1),
    st.sampled_from([0.0, 1.0, 2.5, 4.0, 7.0, 30.0, math.inf, math.nan]),
    st.floats(0, 3, width=16),  # seconds since the one before
)
RUNNING = st.lists(st.tuples(st.integers(1, 3), st.sampled_from([1.0, 2.0, 5.5, math.inf])))
JOBS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 4), st.integers(1, 30), st.floats(0.2, 4.0)),
    min_size=1,
    max_size=25,
)


class Plain(Reservations):
    """Looks at each step from now on, for each job."""

    def run(self, gpus, ends):
        for number, end in zip(gpus.tolist(), ends.tolist(), strict=True):
            self.take(number, self.steps()[0][0], end)

    def reserve(self, gpus, length, now):
        start = self.earliest_start(gpus, length, not_before=now)
        if start < math.inf and length:
            self.take(gpus, start, start + length)
        return start


@given(running=RUNNING, asked=st.lists(ASKED, max_size=30))
def test_each_reservation_is_the_earliest(running, asked):
    gpus = np.array([number for number, _ in running], np.int64)
    ends = np.array([end for _, end in running], np.float64)
    quick, plain = Reservations(GPUS), Plain(GPUS)
    quick.run(gpus, ends)
    plain.run(gpus, ends)
    assert quick.steps() == plain.steps()
    now = 0.0
    for gang, length, later in asked:
        now += later
        quick.forget_before(now)
        plain.forget_before(now)
        assert quick.reserve(gang, length, now) == plain.reserve(gang, length, now)
        assert quick.steps() == plain.steps()


@given(jobs=JOBS, cluster=st.sampled_from(["1x4", HALVES]), round_s=st.sampled_from([None, 7.0]))
def test_wrong_estimates_lead_to_the_same_starts_as_a_plain_search(lab, jobs, cluster, round_s):
    trace = lab.trace(
        [each[:3] for each in jobs],
        time_limit=[max(duration * factor, 1.0) for _, _, duration, factor in jobs],
        vc=[("a", "b")[at % 2] for at in range(len(jobs))],
    )
    clock = {} if round_s is None else {"clock": "rounds", "round_s": round_s}

    def run():
        return lab.run(trace, "conservative", cluster=cluster, estimate="user", **clock)

    quick = run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conservative, "Reservations", Plain)
        plain = run()
    assert np.array_equal(quick.jobs.first_start_time, plain.jobs.first_start_time)
    assert quick.summary["decisions"] == plain.summary["decisions"]


def test_a_plan_survives_rows_that_get_other_numbers():
    policy = Conservative(NoOptions())
    policy.load_state_dict(
        {
            "planned": [[0, 1.0, 5.0], [2, 5.0, 9.0], [3, 9.0, math.inf]],
            "gone_until": -math.inf,
            "plans": {0: [[1.0, 2], [5.0, 4]]},
            "capacity": {0: 4},
        }
    )
    policy.renumber(np.array([3, -1, 0]), 1)
    state = policy.state_dict()
    assert state["planned"] == [[0, 9.0, math.inf], [2, 1.0, 5.0]]
    assert state["gone_until"] == 9.0  # so that the next decision finds that a row ended early
    again = Conservative(NoOptions())
    again.load_state_dict(state)
    assert again.state_dict() == state
