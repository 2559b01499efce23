"""Deadlines that were met and missed, in the columns of the jobs and in the figures of a run."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from simulate.results.output import job_columns
from simulate.traces.synthetic.further_columns import with_deadlines

# One GPU: the jobs end at 10, 20, 30 and 40.
JOBS = [(0, 1, 10), (0, 1, 10), (0, 1, 10), (0, 1, 10)]


def run(lab: Any, **columns: Any) -> Any:
    return lab.run(lab.trace(JOBS, **columns), cluster="1x1")


def test_figures_say_how_many_were_met_how_late_the_others_and_what_it_was_worth(lab: Any) -> None:
    deadline = [10.0, 15.0, 10.0, math.nan]
    result = run(lab, deadline=deadline, deadline_value=[3.0, 5.0, 2.0, math.nan])
    assert result.summary["deadlines"] == {
        "jobs": 3,
        "met": 1,
        "met_share": pytest.approx(1 / 3),
        "avg_late": 12.5,
        "max_late": 20.0,
        "value": 3.0,
        "value_share": pytest.approx(0.3),
        "best_effort_avg_jct": 40.0,
        "by_kind": {
            "strict": {
                "jobs": 3,
                "met": 1,
                "met_share": pytest.approx(1 / 3),
                "avg_late": 12.5,
                "max_late": 20.0,
            }
        },
    }
    columns = job_columns(result.jobs)
    assert columns["late"][:3].tolist() == [0.0, 5.0, 20.0]
    assert columns["value_earned"][:3].tolist() == [3.0, 0.0, 0.0]
    assert all(np.isnan(columns[name][3]) for name in ("deadline", "late", "value_earned"))


def test_a_later_deadline_is_worth_less(lab: Any) -> None:
    nothing = [math.nan] * 3
    result = run(lab, deadline=[5.0, *nothing], deadline_steps=["5:10 10:8 60:1", "", "", ""])
    assert result.summary["deadlines"]["met"] == 0
    assert result.summary["deadlines"]["value"] == 8.0


def test_a_best_effort_deadline_is_a_wish_and_counts_apart(lab: Any) -> None:
    kinds = ["best-effort", "soft", "strict", ""]
    trace = lab.trace(JOBS, deadline=[10.0, 15.0, 40.0, math.nan], deadline_kind=kinds)
    result = lab.run(trace, "edf", cluster="1x1")
    assert result.jobs.finish_time.tolist() == [30.0, 10.0, 20.0, 40.0]  # A is not planned for
    found = result.summary["deadlines"]
    assert (found["jobs"], found["met"], found["best_effort_avg_jct"]) == (2, 2, 35.0)
    wish = found["by_kind"]["best-effort"]
    assert (wish["jobs"], wish["met"], wish["avg_late"]) == (1, 0, 20.0)
    assert job_columns(result.jobs)["deadline_kind"].tolist() == kinds


def test_a_reward_curve_says_the_deadline_and_what_an_end_is_worth(lab: Any) -> None:
    curves = ["step:5,3", "soft:10,4,20", "penalty:20,5,-2", "asap:8,80"]
    result = run(lab, sla=curves)  # ends at 10, 20, 30, 40
    columns = job_columns(result.jobs)
    assert columns["deadline"][:3].tolist() == [5.0, 10.0, 20.0]
    assert columns["deadline_kind"].tolist() == ["strict", "soft", "soft", ""]
    assert columns["value_earned"].tolist() == [0.0, 2.0, -2.0, 4.0]
    assert columns["value_possible"].tolist() == [3.0, 4.0, 5.0, 8.0]
    found = result.summary["deadlines"]
    assert (found["jobs"], found["met"], found["value"]) == (3, 0, 4.0)
    assert found["value_share"] == 0.2


@pytest.mark.parametrize("policy", ["edf", "chronus", "karuna"])
def test_no_policy_plans_for_a_best_effort_deadline(lab: Any, policy: str) -> None:
    due = [math.nan, 25.0, 15.0, math.nan]
    wish = lab.trace(JOBS, deadline=due, deadline_kind=["", "best-effort", "best-effort", ""])
    none = lab.run(lab.trace(JOBS), policy, cluster="1x1").jobs.finish_time.tolist()
    assert lab.run(wish, policy, cluster="1x1").jobs.finish_time.tolist() == none


def test_nothing_is_said_where_no_job_has_a_deadline(lab: Any) -> None:
    result = run(lab)
    assert "deadlines" not in result.summary
    assert "late" not in job_columns(result.jobs)
    assert not any("deadline" in text for text in result.warnings)


@pytest.mark.parametrize(("policy", "said"), [("fifo", True), ("edf", False), ("chronus", False)])
def test_a_policy_without_knowledge_of_deadlines_says_so(lab: Any, policy: str, said: bool) -> None:
    result = lab.run(lab.trace(JOBS, deadline=[10.0] * 4), policy, cluster="1x1")
    assert any("deadlines only count in the figures" in text for text in result.warnings) == said


def test_curves_that_rise_are_named(lab: Any) -> None:
    curves = ["0:1 50:3", "step:40,2", "", "0:1 50:3"]
    warnings = lab.run(lab.trace(JOBS, sla=curves), "edf", cluster="1x1").warnings
    assert "the reward curves of 2 jobs rise: ending later is worth more" in warnings
    warnings = lab.run(lab.trace(JOBS, sla=["step:40,2"] * 4), "edf", cluster="1x1").warnings
    assert not any("rise" in text for text in warnings)


def test_earliest_deadline_first(lab: Any) -> None:
    trace = lab.trace(JOBS, deadline=[40.0, math.nan, 20.0, 10.0])
    ends = lab.run(trace, "edf", cluster="1x1").jobs.finish_time.tolist()
    assert ends == [30.0, 40.0, 20.0, 10.0]


def test_an_earlier_deadline_takes_the_gpu(lab: Any) -> None:
    trace = lab.trace([(0, 1, 10), (2, 1, 10), (3, 1, 10)], deadline=[50.0, 4.0, 30.0])
    assert lab.run(trace, "edf", cluster="1x1").jobs.finish_time.tolist() == [30.0, 12.0, 22.0]


def test_a_generated_trace_gets_deadlines_and_is_otherwise_the_same(lab: Any) -> None:
    trace = lab.trace([(k, 1, 100) for k in range(400)])
    given = with_deadlines(trace, share=0.5, slack=(2.0, 3.0), seed=1)
    deadline = given.columns["deadline"]
    some = np.isfinite(deadline)
    assert 150 < some.sum() < 250
    assert ((deadline[some] >= 200) & (deadline[some] <= 300)).all()
    assert (given.submit_time == trace.submit_time).all()
    again = with_deadlines(trace, share=0.5, slack=(2.0, 3.0), seed=1)
    assert np.array_equal(again.columns["deadline"], deadline, equal_nan=True)
