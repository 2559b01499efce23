"""Replays under `salus`: lanes on every GPU, and every iteration where the lane's order puts it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.policies.node.salus.turns import Order
from tests.policies.node.lane_run import Iterations, run_lane

ORDERS: list[Order] = ["fifo", "srtf", "fair", "rr", "pack"]
SESSIONS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=6
)


def run_sessions(lab: Any, sessions: list[Iterations], order: Order) -> Any:
    """Replay sessions that all get into one lane of one GPU; milliseconds become seconds."""
    trace = lab.trace(
        [(each.arrival / 1000, 1, each.number * each.each / 1000) for each in sessions],
        names=[each.name for each in sessions],
        iteration_ms=[each.each for each in sessions],
        persistent_gib=[0.5] * len(sessions),
        ephemeral_gib=[8.0] * len(sessions),
    )
    return lab.run(trace, "salus", cluster="1x1:v100@16", options=(f"turns={order}",))


@given(given_sessions=SESSIONS, order=st.sampled_from(ORDERS))
def test_a_replay_runs_the_iterations_of_a_lane_in_its_order(
    lab: Any, given_sessions: list[tuple[int, int, int]], order: Order
) -> None:
    sessions = [Iterations(str(n), *each) for n, each in enumerate(sorted(given_sessions))]
    spans = lab.spans(run_sessions(lab, sessions, order))
    for name, end in run_lane(sessions, order).ends.items():
        assert spans[name][1] == pytest.approx(end / 1000, abs=1e-9), order


def lanes(result: Any) -> dict[str, float]:
    return dict(zip(result.jobs.job_id, result.jobs.extra["lane"].tolist(), strict=True))


def test_jobs_get_into_lanes_of_the_gpu_that_they_leave_the_least_of(lab: Any) -> None:
    trace = lab.trace(
        [(0, 1, 100)] * 5,
        persistent_gib=[1.0, 0.5, 2.0, 1.0, 0.3],
        ephemeral_gib=[7.0, 3.5, 6.0, 2.5, 4.0],
    )
    options = ("reserved_mib=0", "turns=pack")
    one = lab.run(trace, "salus", cluster="1x1:v100@16", options=options)
    assert lanes(one) == {"A": 1, "B": 2, "C": 1, "D": 2, "E": 1}  # as the sheet works it out
    assert lab.spans(one)["C"][0] == 0
    artifact = lab.run(
        trace, "salus", cluster="1x1:v100@16", options=("reserved_mib=0", "semantics=salus")
    )
    starts = {name: span[0] for name, span in lab.spans(artifact).items()}
    assert [name for name, start in starts.items() if start == 0] == ["A", "B"]
    # D would start as well, but for the code's margins of 10 and 5 %
    two = lab.run(trace, "salus", cluster="1x2:v100@16", options=(*options, "free_first=true"))
    assert lanes(two) == {"A": 1, "B": 1, "C": 2, "D": 2, "E": 3}


def test_lanes_run_at_once_and_the_jobs_of_one_lane_in_turn(lab: Any) -> None:
    trace = lab.trace(
        [(0, 1, 10)] * 3, persistent_gib=[1.0] * 3, ephemeral_gib=[8.0, 3.0, 7.0],
    )  # fmt: skip
    result = lab.run(trace, "salus", cluster="1x1:v100@16", options=("turns=fifo",))
    ends = {name: span[1] for name, span in lab.spans(result).items()}
    assert lanes(result) == {"A": 1, "B": 2, "C": 1}
    assert ends == {"A": 10, "B": 10, "C": 20}


def test_interference_is_that_of_the_jobs_that_run_at_once(lab: Any) -> None:
    trace = lab.trace(
        [(0, 1, 10)] * 3,
        persistent_gib=[1.0] * 3,
        ephemeral_gib=[8.0, 3.0, 7.0],
        gpu_util=[100.0] * 3,
    )
    result = lab.run(
        trace, "salus", cluster="1x1:v100@16", options=("turns=fifo",), interference="utilisation"
    )
    ends = {name: span[1] for name, span in lab.spans(result).items()}
    assert ends == pytest.approx({"A": 20, "B": 20, "C": 30})  # two at a time, never three


def test_jobs_that_do_not_fit_wait_and_smaller_ones_pass(lab: Any) -> None:
    trace = lab.trace(
        [(0, 1, 10), (1, 1, 10), (2, 1, 1)],
        persistent_gib=[2.0, 1.0, 0.5],
        ephemeral_gib=[8.0, 14.5, 0.5],
    )
    spans = lab.spans(lab.run(trace, "salus", cluster="1x1:v100@16"))
    assert spans["C"] == (2, 3)
    assert spans["B"] == (10, 20)


def test_a_job_that_no_gpu_can_hold_never_runs_and_says_why(lab: Any) -> None:
    trace = lab.trace([(0, 1, 10)] * 2, persistent_gib=[9.0, 1.0], ephemeral_gib=[8.0, 1.0])
    result = lab.run(trace, "salus", cluster="1x1:v100@16")
    assert result.jobs.status.tolist() == ["refused", "completed"]
    assert "needs 17 GiB within a step, a GPU has 15.707" in result.jobs.reason[0]


def test_a_job_whose_memory_is_not_known_has_its_gpu_alone(lab: Any) -> None:
    unknown = float("nan")
    trace = lab.trace(
        [(0, 1, 10)] * 3, persistent_gib=[1.0, unknown, 1.0], ephemeral_gib=[2.0, 2.0, 2.0]
    )  # fmt: skip
    spans = lab.spans(lab.run(trace, "salus", cluster="1x1:v100@16"))
    assert spans == {"A": (0, 10), "B": (10, 20), "C": (0, 10)}


@pytest.mark.parametrize(
    ("cluster", "persistent", "said"),
    [
        ("1x1:v100", 1.0, "salus needs the memory of the GPUs: --cluster 4x8:v100@16"),
        ("1x1:v100@16", -1.0, "job A has persistent_gib or ephemeral_gib below 0"),
    ],
)
def test_what_is_not_known_is_refused_in_one_line(
    lab: Any, cluster: str, persistent: float, said: str
) -> None:
    trace = lab.trace([(0, 1, 10)], persistent_gib=[persistent], ephemeral_gib=[1.0])
    with pytest.raises(BadInput, match=said):
        lab.run(trace, "salus", cluster=cluster)


def test_the_lanes_are_kept_with_the_state_of_the_policy(lab: Any) -> None:
    trace = lab.trace(
        [(n, 1, 10 + n) for n in range(12)],
        persistent_gib=[0.5 + n % 3 for n in range(12)],
        ephemeral_gib=[2.0 + (5 * n) % 7 for n in range(12)],
    )
    plain = lab.run(trace, "salus", cluster="1x2:v100@16")
    engine = lab.engine(trace, "salus", cluster="1x2:v100@16", clock="events")
    policy, seen = engine.parts.scheduling, []

    def forget(_engine: Any, _decision: object) -> None:
        kept = policy.state_dict()
        policy.load_state_dict({"lane_table": []})
        policy.load_state_dict(kept)
        seen.append(len(kept["lane_table"]))

    engine.observers.append(forget)
    engine.run()
    assert max(seen) == 2
    assert engine.columns["lane"] == dict(enumerate(plain.jobs.extra["lane"].tolist()))
