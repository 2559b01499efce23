"""AntMan's pauses: the arithmetic to the microsecond, and a job that keeps to its share."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.job import attach
from dlsched.job import messages as words
from dlsched.job.throttle import Throttle, percent_of


def test_the_worked_examples() -> None:
    throttle = Throttle()
    assert throttle.after_step(200_000, 50) == 199_950
    assert throttle.after_step(250_000, 50, unspent_us=149_950) == 149_950
    assert Throttle().after_step(1000, 25) == 2950
    assert Throttle().after_step(1000, 99) == 0


@pytest.mark.parametrize(("share", "pause"), [(100, 0), (140, 0), (1, 98_950), (-3, 98_950)])
def test_a_share_outside_the_range_counts_as_the_nearest(share: int, pause: int) -> None:
    assert Throttle().after_step(1000, share) == pause


@given(st.integers(1, 10**7), st.integers(1, 100), st.integers(1, 30))
def test_a_job_that_is_paused_between_steps_takes_its_share(
    run_us: int, share: int, steps: int
) -> None:
    throttle = Throttle()
    total = sum(run_us + throttle.after_step(run_us, share) for _ in range(steps))
    exact = steps * run_us * 100 / share
    assert exact - 52 * steps <= total <= exact


@pytest.mark.parametrize(
    ("share", "percent"), [(None, 100), (0.404, 40), (0.0, 0), (1.7, 100), (-1.0, 0)]
)
def test_shares_in_percent(share: float | None, percent: int) -> None:
    assert percent_of(share) == percent


def scheduled(keeper: Any) -> dict[str, str]:
    return {"DLSCHED_CTL_SOCK": keeper.path, "DLSCHED_JOB_ID": "7"}


def limited(keeper: Any, job: Any, share: float) -> None:
    keeper.say(words.Limit(share=share))
    job._link.wait(30)


def test_a_job_keeps_to_its_share_and_reports_the_time_that_passed(keeper: Any) -> None:
    with attach(environment=scheduled(keeper)) as job:
        keeper.wait_for(words.Hello)
        limited(keeper, job, 0.1)
        begun = time.monotonic()
        job.step(batch_s=0.05)  # the pause of this one
        assert time.monotonic() - begun >= 0.4499
        job.step(batch_s=0.05)
        job.close()
    keeper.wait_for(words.StepDone, lambda each: each.batch_s >= 0.4999)


def test_a_share_of_nothing_stands_still_until_there_is_more(keeper: Any) -> None:
    with attach(environment=scheduled(keeper)) as job:
        keeper.wait_for(words.Hello)
        limited(keeper, job, 0.0)
        working = threading.Thread(target=job.step)
        working.start()
        keeper.wait_for(words.Doing, lambda message: message.what == "limit")
        assert working.is_alive()
        keeper.say(words.Limit(share=1.0))
        keeper.wait_for(words.Doing, lambda message: message.what == "")
        working.join(60)
        assert not working.is_alive()


def test_a_stop_ends_a_share_of_nothing(keeper: Any) -> None:
    def train() -> None:
        with attach(environment=scheduled(keeper)) as job:
            keeper.wait_for(words.Hello)
            limited(keeper, job, 0.0)
            threading.Timer(0.2, keeper.say, [words.Stop(deadline_s=60.0)]).start()
            assert job.step()  # it stood still until the stop came
            assert not job.step()

    with pytest.raises(SystemExit) as stopped:
        train()
    assert stopped.value.code == 143


def test_a_keeper_that_is_gone_limits_no_more(keeper: Any) -> None:
    with attach(environment=scheduled(keeper)) as job:
        keeper.wait_for(words.Hello)
        limited(keeper, job, 0.0)
        threading.Timer(0.2, keeper.close).start()
        assert job.step()
