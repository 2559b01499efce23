"""Gandiva_fair with two jobs on the same GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.policies.scheduling.gandiva_fair.packing import counts_for_both, part

RATES = {"a": 4.0, "b": 2.0}


def table(lab: Any, beside: float) -> Any:
    """Pairs run at a part of their speeds alone."""
    alone = {(m, "gpu"): rate for m, rate in RATES.items()}
    pairs = {
        (one, other, "gpu"): (beside * RATES[one], beside * RATES[other])
        for one, other in (("a", "a"), ("a", "b"), ("b", "b"))
    }
    return lab.throughputs(alone, pairs)


def run(lab: Any, models: str, beside: float, *options: str, **more: Any) -> Any:
    """Each job takes 3,600 s alone."""
    jobs = [(0, 1, 3600)] * len(models)
    trace = lab.trace(
        jobs,
        user=[f"u{k % 3}" for k in range(len(models))],
        model=list(models),
        total_iterations=[3600 * RATES[m] for m in models],
    )
    return lab.run(
        trace,
        "gandiva-fair",
        cluster=more.pop("cluster", "1x1:gpu"),
        throughputs=table(lab, beside),
        options=options,
        clock="rounds",
        **more,
    )


def test_two_that_do_more_together_run_together(lab: Any) -> None:
    apart = run(lab, "ab", 0.8)
    assert apart.summary["makespan"] == pytest.approx(7200, abs=60)
    together = run(lab, "ab", 0.8, "pack=true")
    assert together.summary["makespan"] == pytest.approx(4500, abs=60)
    assert together.summary["preemptions"] <= apart.summary["preemptions"]


def test_two_that_do_less_together_take_turns(lab: Any) -> None:
    packed, plain = run(lab, "ab", 0.5, "pack=true"), run(lab, "ab", 0.5)
    assert packed.jobs.finish_time.tolist() == plain.jobs.finish_time.tolist()


def test_of_three_the_third_has_its_turn(lab: Any) -> None:
    done = run(lab, "aab", 0.9, "pack=true")
    finish = sorted(done.jobs.finish_time.tolist())
    assert finish[-1] < 3 * 3600 / 1.5
    assert finish[-1] - finish[0] < 1200  # all have had their share of the time


def test_they_part_when_there_is_room(lab: Any) -> None:
    done = run(lab, "abab", 0.8, "pack=true", cluster="2x2:gpu")
    assert done.summary["makespan"] == pytest.approx(3600, abs=120)


@pytest.mark.slow
@settings(max_examples=25)
@given(
    models=st.text("ab", min_size=2, max_size=9),
    beside=st.sampled_from([0.3, 0.6, 0.9]),
    cluster=st.sampled_from(["1x2:gpu", "2x1:gpu", "2x2:gpu"]),
)
def test_every_job_ends_and_never_later_by_much(
    lab: Any, models: str, beside: float, cluster: str
) -> None:
    packed = run(lab, models, beside, "pack=true", cluster=cluster)
    plain = run(lab, models, beside, cluster=cluster)
    assert packed.summary["completed"] == len(models)
    assert packed.summary["makespan"] <= plain.summary["makespan"] * 1.1 + 600


def test_of_two_whose_turn_it_is_one_stays() -> None:
    beside = {1: (2,), 2: (1,), 5: (6,), 6: (5,)}
    assert part({1, 2, 3}, {1, 2, 3}, {1, 2, 3}, beside, set()) == {1, 3}
    assert part({2}, {2}, {1, 2}, beside, set()) == {1, 2}  # the other stays beside it
    assert part(set(), set(), {1, 2}, beside, set()) == set()
    assert part({1}, {1, 2}, {1, 2}, beside, set()) == {1}  # 2 has its turn elsewhere
    assert part({6}, {6}, {6}, beside, {5}) == set()  # 5 may not be stopped
    assert part(set(), set(), {6}, beside, {5}) == {6}
    assert [counts_for_both(row, beside, set()) for row in (1, 2, 3)] == [True, False, True]
    assert not counts_for_both(6, beside, {5})
    assert not counts_for_both(5, beside, {6})
