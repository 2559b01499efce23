"""Alternatives of a snapshot: other GPUs, other types, other policies, and what they assume."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dlsched.core.errors import BadInput
from dlsched.daemon.round.forecasts.alternatives import Alternative, Outcome, Question
from dlsched.daemon.round.forecasts.answering import answer
from dlsched.daemon.round.forecasts.forecasting import foreseen
from dlsched.daemon.round.snapshot_builder import copy_present, take_snapshot
from dlsched.db.speeds import SpeedKey, SpeedRow, SpeedsSet


def asked(lab: Any, now: float, *alternatives: Alternative, **more: Any) -> list[Outcome]:
    """Answers about the present; the supposed jobs are those that are named in them."""
    snapshot = take_snapshot(lab.state, "full", now)
    before = snapshot.to_bytes()
    question = Question(snapshot=snapshot, alternatives=alternatives, **more)
    found = answer(Question.from_bytes(question.to_bytes()))
    assert snapshot.to_bytes() == before
    return found


def likeliest(outcome: Outcome) -> tuple[float, float]:
    return float(outcome.starts[0]), float(outcome.ends[0])


def measure(lab: Any, *speeds: tuple[str, int, float]) -> None:
    rows = tuple(
        SpeedRow(key=SpeedKey("cnn", 0, kind, gpus), steps_per_s=rate, at=5.0, changed_at=5.0)
        for kind, gpus, rate in speeds
    )
    lab.live.speeds.take(SpeedsSet(rows=rows))


def test_a_waiting_job_with_fewer_gpus_may_start_at_once(live: Any) -> None:
    lab = live.LiveLab((8,), parts={"scheduling": "easy"})
    lab.submit(0.0, 6, expected_s=50.0)
    lab.round(0.0)
    head = lab.submit(1.0, 8, expected_s=100.0)
    mine = lab.submit(2.0, 4, expected_s=40.0)
    lab.round(2.0, "fill")
    small = lab.submit(3.0, 2, expected_s=40.0)
    as_it_is, other = asked(
        lab, 3.0,
        Alternative(job=mine), Alternative(job=mine, like=small, gang=4),
        supposed=(small,), lists_jobs=True,
    )  # fmt: skip
    assert likeliest(as_it_is) == (150.0, 190.0)
    assert likeliest(other) == (3.0, 43.0)  # it ends before the head could start
    assert other.basis.endswith("as long on 2 GPUs as on 4 (speed not measured)")
    assert (as_it_is.gpu_s, other.gpu_s) == (160.0, 80.0)
    assert (as_it_is.others_later_s, other.others_later_s) == (0.0, 0.0)
    ends = dict(zip(other.job.tolist(), other.end.tolist(), strict=True))
    assert ends[head] == 150.0
    assert small not in ends


def test_the_smallest_number_of_gpus_that_meets_a_deadline(live: Any) -> None:
    """The example of the what-if sheet: 100 s on 1 GPU, 60 s on 2, deadline 80 s."""
    lab = live.LiveLab((), parts={"scheduling": "fifo"})
    lab.add_node("n1", 8, "v100")
    measure(lab, ("v100", 1, 1.0), ("v100", 2, 100 / 60))
    one = lab.submit(0.0, 1, model="cnn", expected_s=100.0)
    two = lab.submit(0.0, 2, model="cnn", expected_s=100.0)
    found = asked(lab, 0.0, Alternative(job=one), Alternative(job=two, gang=1), supposed=(one, two))
    assert [likeliest(each) for each in found] == [(0.0, 100.0), (0.0, pytest.approx(60.0))]
    assert found[1].basis.endswith("measured speeds on each number of GPUs")
    assert [each.ends[0] <= 80.0 for each in found] == [False, True]


@pytest.mark.parametrize(
    ("deadline", "moves"),
    [(2500.0, 0), (1300.0, 0), (1000.0, 1), (525.0, 3), (300.0, 4), (299.0, 0)],
)
def test_the_jobs_ahead_that_must_move_for_a_deadline(
    live: Any, deadline: float, moves: int
) -> None:
    """Half as long again, 150 s of what runs, 225 s of each job ahead and 150 s of its own."""
    lab = live.LiveLab((4,), parts={"scheduling": "fifo"})
    lab.submit(0.0, 4, expected_s=100.0)
    lab.round(0.0)
    ahead = [lab.submit(0.0, 4, expected_s=150.0) for _ in range(4)]
    mine = lab.submit(0.0, 4, expected_s=100.0, deadline_at=deadline)
    lab.submit(0.0, 4, expected_s=1.0)  # behind it: never in the way
    lab.round(0.0, "fill")
    [found] = asked(lab, 0.0, Alternative(job=mine))
    assert found.must_move.tolist() == ahead[:moves]


@pytest.mark.parametrize(
    ("deadline", "latest"), [(299.0, math.nan), (300.0, 150.0), (420.0, 270.0)]
)
def test_the_latest_submit_of_a_job_that_is_not_submitted(
    live: Any, deadline: float, latest: float
) -> None:
    """In the longest case GPUs come free after 150 s, and it needs 150 s of its own."""
    lab = live.LiveLab((4,), parts={"scheduling": "fifo"})
    lab.submit(0.0, 4, expected_s=100.0)
    lab.round(0.0)
    mine = lab.submit(0.0, 4, expected_s=100.0, deadline_at=deadline)
    other = lab.submit(0.0, 2, expected_s=100.0, deadline_at=deadline)
    found = asked(
        lab, 0.0, Alternative(job=mine), Alternative(job=other, gang=4), supposed=(mine, other)
    )
    assert [each.latest_submit for each in found] == [pytest.approx(latest, nan_ok=True)] * 2
    [real] = asked(lab, 0.0, Alternative(job=mine), supposed=(other,))
    assert math.isnan(real.latest_submit)  # it is submitted


def test_a_running_job_with_other_gpus_waits_again_and_keeps_its_work(live: Any) -> None:
    lab = live.LiveLab((4,), parts={"scheduling": "fifo"})
    runs = lab.submit(0.0, 4, expected_s=100.0)
    lab.round(0.0)
    behind = lab.submit(10.0, 4, expected_s=50.0)
    lab.round(10.0, "fill")
    half = lab.submit(60.0, 2, expected_s=100.0)
    found = asked(
        lab, 60.0, Alternative(job=runs), Alternative(job=runs, like=half, gang=4),
        supposed=(half,), lists_jobs=True,
    )  # fmt: skip
    assert math.isnan(found[0].starts[0])
    assert found[0].ends[0] == 100.0
    assert likeliest(found[1]) == (60.0, 100.0)  # submitted first, 60 of its 100 s are done
    assert found[1].gpu_s == pytest.approx(80.0)
    ends = dict(zip(found[1].job.tolist(), found[1].end.tolist(), strict=True))
    assert ends[behind] == 150.0


def test_another_type_is_as_fast_as_it_was_measured(live: Any) -> None:
    lab = live.LiveLab((), parts={"scheduling": "fifo"})
    lab.add_node("n1", 2, "k80")
    lab.add_node("n2", 2, "v100")
    measure(lab, ("k80", 2, 2.0), ("v100", 2, 8.0))
    mine = lab.submit(0.0, 2, model="cnn", expected_s=100.0, gpu_types=("v100",))
    slow = lab.submit(0.0, 2, model="cnn", expected_s=100.0, gpu_types=("k80",))
    found = asked(
        lab, 0.0, Alternative(job=mine), Alternative(job=mine, like=slow, gang=2), supposed=(slow,)
    )
    assert [likeliest(each) for each in found] == [(0.0, 100.0), (0.0, 400.0)]
    unknown = lab.submit(0.0, 2, expected_s=100.0)
    [guess] = asked(lab, 0.0, Alternative(job=unknown, gang=2), supposed=(unknown, slow))
    assert guess.basis.endswith("as fast on every GPU type (not measured)")


def test_another_policy_decides_for_all_jobs(live: Any) -> None:
    lab = live.LiveLab((4,), parts={"scheduling": "fifo"})
    lab.submit(0.0, 4, expected_s=1000.0)
    lab.round(0.0)
    short = lab.submit(1.0, 4, expected_s=50.0)
    lab.round(1.0, "fill")
    srtf = lab.state.settings.with_policy({"scheduling": "srtf"}, ())
    fifo, other = asked(lab, 10.0, Alternative(), Alternative(settings=srtf), lists_jobs=True)
    assert set(fifo.job.tolist()) == set(other.job.tolist())
    ends = dict(zip(other.job.tolist(), other.end.tolist(), strict=True))
    assert ends[short] == 110.0  # it takes the GPUs in the next full round
    assert other.mean_jct_s < fifo.mean_jct_s
    assert other.others_later_s < 0 == fifo.others_later_s
    nonsense = lab.state.settings.with_policy({"scheduling": "nonsense"}, ())
    with pytest.raises(BadInput, match="nonsense"):
        asked(lab, 10.0, Alternative(settings=nonsense))


def test_the_schedule_has_every_block_of_a_node(live: Any) -> None:
    lab = live.LiveLab((2, 2), parts={"scheduling": "fifo"})
    wide = lab.submit(0.0, 4, expected_s=100.0)
    lab.round(0.0)
    behind = lab.submit(1.0, 2, expected_s=30.0)
    lab.round(1.0, "fill")
    [found] = asked(lab, 40.0, Alternative(), schedule=True)
    names = ("job", "node", "gpus", "start", "end")
    columns = [getattr(found, f"block_{name}").tolist() for name in names]
    blocks = set(zip(*columns, strict=True))
    assert {block for block in blocks if block[0] == wide} == {
        (wide, 0, 2, 40.0, 100.0), (wide, 1, 2, 40.0, 100.0)
    }  # fmt: skip
    [last] = [block for block in blocks if block[0] == behind]
    assert last[2:] == (2, 100.0, 130.0)


def test_the_interval_holds_shorter_and_longer_durations(live: Any) -> None:
    lab = live.LiveLab((2,), parts={"scheduling": "fifo"})
    lab.submit(0.0, 2, expected_s=80.0)
    lab.round(0.0)
    second = lab.submit(1.0, 2, expected_s=40.0)
    lab.round(1.0, "fill")
    [told] = [one for one in foreseen(take_snapshot(lab.state, "full", 20.0)) if one.job == second]
    assert (told.start_p10, told.start_at, told.start_p90) == (50.0, 80.0, 110.0)
    assert (told.end_p10, told.end_at, told.end_p90) == (70.0, 120.0, 170.0)


def test_no_job_is_predicted_to_run_beyond_its_time_limit(live: Any) -> None:
    lab = live.LiveLab((2,), parts={"scheduling": "fifo"})
    first = lab.submit(0.0, 2, expected_s=80.0, time_limit_s=90.0)
    lab.round(0.0)
    [told] = foreseen(take_snapshot(lab.state, "full", 20.0))
    assert (told.job, told.end_p10, told.end_at, told.end_p90) == (first, 50.0, 80.0, 90.0)


@pytest.mark.parametrize(("late_at", "ends_at"), [(110.0, 170.0), (2000.0, 2200.0)])
def test_a_job_past_its_estimate_ends_a_minute_or_a_tenth_later(
    live: Any, late_at: float, ends_at: float
) -> None:
    lab = live.LiveLab((2,), parts={"scheduling": "fifo"})
    lab.submit(0.0, 2, expected_s=100.0)
    lab.round(0.0)
    [told] = foreseen(take_snapshot(lab.state, "full", late_at))
    assert told.end_at == ends_at


def test_an_answer_without_time_has_no_intervals(live: Any) -> None:
    lab = live.LiveLab((2,), parts={"scheduling": "fifo"})
    jobs = [lab.submit(float(k), 2, expected_s=100.0) for k in range(4)]
    lab.round(4.0)
    [found] = asked(lab, 5.0, Alternative(job=jobs[0]), patience_s=0.0, lists_jobs=True)
    assert found.was_cut
    assert found.starts.size == 1
    assert np.isnan(found.end_p90).all()


def test_a_copy_that_removes_a_void_claim_has_a_round_look_at_its_job(live: Any) -> None:
    lab = live.LiveLab((2,), parts={"scheduling": "fifo"})
    job = lab.submit(0.0, 2, expected_s=10.0)
    lab.state.accept(lab.decide(0.0))
    assert job in lab.live.claims
    lab.live.changed = False
    copy_present(lab.state, 1.0)
    assert not lab.live.changed
    lab.live.jobs.set(lab.live.jobs.row_of[job], runs=1)  # that run was given away meanwhile
    copy_present(lab.state, 2.0)
    assert job not in lab.live.claims
    assert lab.live.changed
