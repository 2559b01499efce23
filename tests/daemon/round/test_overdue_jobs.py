"""Jobs that have passed their estimates: what a site may do with an estimate that was too short."""

from __future__ import annotations

from typing import Any

import pytest

from dlsched.protocol.messages import StopReason

ROUND_S = 60.0


def first_round_of_bob(live: Any, policy: str, overdue: str, *, saves: bool = True) -> int | None:
    """The round in which bob's job gets the GPUs of ann's, which has `--expected 1s`; None: never.

    Args:
        live: the fixture.
        policy: by time left.
        overdue: its option.
        saves: no; ann's job begins anew each time.
    """
    lab = live.LiveLab(
        (4,), parts={"scheduling": policy}, options=[f"overdue={overdue}"], unknown_s=3600.0
    )
    ann = lab.submit(0.0, 4, expected_s=1.0)
    lab.round(0.0)
    bob = lab.submit(1.0, 4, user="bob", expected_s=100.0)
    for number in range(1, 8):
        if not saves:  # its node is lost: what it has done is too
            lab.stop(number * ROUND_S, ann, StopReason.REQUEUE)
            lab.end(number * ROUND_S, ann, code=143)
        lab.round(number * ROUND_S)
        if bob in lab.running():
            assert ann not in lab.running()
            return number
    return None


@pytest.mark.parametrize("policy", ["srtf", "srsf"])
@pytest.mark.parametrize(("overdue", "number"), [("trusted", None), ("charged", 2), ("last", 1)])
def test_a_short_estimate_lasts_as_long_as_the_site_says(
    live: Any, policy: str, overdue: str, number: int | None
) -> None:
    assert first_round_of_bob(live, policy, overdue) == number


@pytest.mark.parametrize("overdue", ["charged", "last"])
def test_a_job_that_keeps_nothing_of_its_work_is_overdue_too(live: Any, overdue: str) -> None:
    assert first_round_of_bob(live, "srtf", overdue, saves=False) is not None


def test_jobs_within_their_estimates_go_as_without_the_option(live: Any) -> None:
    for overdue in ("trusted", "charged", "last"):
        lab = live.LiveLab((4,), parts={"scheduling": "srtf"}, options=[f"overdue={overdue}"])
        long = lab.submit(0.0, 4, expected_s=10_000.0)
        lab.round(0.0)
        short = lab.submit(1.0, 4, user="bob", expected_s=1000.0)
        lab.round(ROUND_S)
        assert list(lab.running()) == [short], overdue
        lab.end(ROUND_S + 900.0, short)
        lab.round(ROUND_S + 900.0)
        assert list(lab.running()) == [long], overdue
