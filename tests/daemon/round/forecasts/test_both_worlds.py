"""A live cluster and a replay say the same of the same job beside the same jobs."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.daemon.round.forecasts.alternatives import Alternative, Question
from dlsched.daemon.round.forecasts.answering import answer
from dlsched.daemon.round.snapshot_builder import take_snapshot
from simulate.supposing import suppose

jobs_of = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 300)), min_size=2, max_size=7)


@pytest.mark.parametrize("policy", ["fifo", "easy", "srtf", "edf"])
@settings(max_examples=25)
@given(jobs=jobs_of, due=st.integers(20, 1500), other_due=st.integers(100, 3000))
def test_a_live_question_and_a_replay_have_one_answer(
    jobs: list[tuple[int, int]], due: int, other_due: int, policy: str, live: Any, lab: Any
) -> None:
    """They start, end and keep deadlines alike, and the same jobs would have to move."""
    deadlines = [math.nan] * len(jobs)
    deadlines[0] = float(other_due)
    deadlines[-1] = float(due)
    cluster = live.LiveLab((4,), parts={"scheduling": policy})
    for (gpus, takes), at in zip(jobs, deadlines, strict=True):
        known = {} if math.isnan(at) else {"deadline_at": at}
        mine = cluster.submit(0.0, gpus, expected_s=float(takes), **known)
    snapshot = take_snapshot(cluster.state, "full", 0.0)
    question = Question(snapshot=snapshot, supposed=(mine,), alternatives=(Alternative(job=mine),))
    [found] = answer(question)
    trace = lab.trace([(0, *job) for job in jobs], deadline=deadlines)
    name = str(trace.job_id[-1])
    told = suppose(trace, lab.cluster("1x4"), lab.settings(policy, check=False), name, [])
    first = told.supposed[0]
    assert found.starts.tolist() == first.starts.tolist()
    assert found.ends.tolist() == first.ends.tolist()
    assert found.gpu_s == first.gpu_s
    assert [str(trace.job_id[job - 1]) for job in found.must_move.tolist()] == told.must_move
