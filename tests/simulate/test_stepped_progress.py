"""Work counted down in steps: the ends are those of a loop over seconds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulate.progress.stepped import lessened, steps_until_done

LUCID = ("semantics=lucid",)


@given(left=st.integers(1, 3000), each=st.floats(0.05, 1.05))
def test_the_number_of_steps_is_that_of_a_loop(left: int, each: float) -> None:
    remain, steps = float(left), 0
    while remain > 0:
        remain -= each
        steps += 1
    assert steps_until_done(float(left), each) == steps
    assert lessened(float(left), each, steps) == remain


def test_an_end_is_noticed_one_step_after_nothing_is_left(lab) -> None:
    result = lab.run([(0, 1, 10), (5, 4, 3)], "srtf", options=LUCID)
    assert lab.spans(result) == {"A": (0, 55), "B": (5, 9)}  # 5 s and 40 s are left from 9 on
    assert result.jobs.preemptions.tolist() == [1, 0]
    assert result.jobs.lost_seconds.tolist() == [40, 0]


@pytest.mark.parametrize("policy", ["srtf", "srsf", "fifo"])
def test_skipping_rounds_changes_nothing(lab, policy: str) -> None:
    jobs = [(3 * k % 17, 1 + k % 4, 5 + 7 * k % 23) for k in range(25)]
    runs = [lab.run(jobs, policy, options=LUCID, skipping=skips) for skips in (True, False)]
    assert lab.outcome(runs[0]) == lab.outcome(runs[1])
