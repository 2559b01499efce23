"""Live rounds over jobs that need part of a GPU: sharing, giving way, and restarts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.occupancy import Placement
from dlsched.daemon.live.gpu_use import GpuUse
from dlsched.daemon.round.decided import Decided
from dlsched.daemon.round.plan import verify

ONE, TWO = Placement((0,), (0b01,)), Placement((0,), (0b10,))
BOTH = Placement((0,), (0b11,))


def on_gpus(lab: Any) -> dict[str, list[int]]:
    """The jobs on each GPU, as the ledger says."""
    found: dict[str, list[int]] = {}
    for run in lab.ledger.runs.values():
        for member in run.members.values():
            for gpu in member.gpus if not run.is_over and not run.is_away else ():
                found.setdefault(gpu, []).append(int(run.key.job))
    return {gpu: sorted(jobs) for gpu, jobs in sorted(found.items())}


def test_jobs_share_only_scarce_gpus_and_only_with_permission(live: Any) -> None:
    lab = live.LiveLab((2,))
    jobs = [lab.submit(1.0, gpu_share=share) for share in (0.5, 0.5, None, 0.4)]
    lab.round(2.0)
    assert on_gpus(lab) == {"GPU-n1-0": [1, 4], "GPU-n1-1": [2]}
    assert lab.live.reason(jobs[2]).startswith("Resources")
    assert lab.live.co_located(jobs[0]) == [jobs[3]]
    lab.end(3.0, jobs[0])
    lab.round(4.0)
    assert on_gpus(lab) == {"GPU-n1-0": [4], "GPU-n1-1": [2]}, "no whole GPU is free yet"
    lab.end(5.0, jobs[1])
    lab.round(6.0)
    assert on_gpus(lab) == {"GPU-n1-0": [4], "GPU-n1-1": [3]}


def test_two_jobs_that_share_run_on_after_the_daemon_was_killed(live: Any) -> None:
    lab = live.LiveLab((1,), parts={"scheduling": "las"})
    first, second = lab.submit(1.0, gpu_share=0.5), lab.submit(1.0, gpu_share=0.5)
    lab.round(2.0)
    lab.restart(3.0)
    before = {run_id for run_id, run in lab.ledger.runs.items() if not run.is_over}
    lab.round(60.0)
    assert {run_id for run_id, run in lab.ledger.runs.items() if not run.is_over} == before
    assert lab.live.co_located(first) == [second]
    assert on_gpus(lab) == {"GPU-n1-0": [1, 2]}


@pytest.mark.parametrize("mode", ["requeue", "suspend"])
def test_sharing_jobs_give_way_to_a_whole_job_and_come_back(live: Any, mode: str) -> None:
    lab = live.LiveLab((1,), parts={"scheduling": "las"}, preempt_mode=mode)
    for _ in range(2):
        lab.submit(1.0, gpu_share=0.5)
    lab.round(2.0)
    whole = lab.submit(5000.0)
    lab.round(5001.0)
    assert on_gpus(lab) == {"GPU-n1-0": [whole]}
    lab.end(5010.0, whole)
    lab.round(5060.0)
    assert on_gpus(lab) == {"GPU-n1-0": [1, 2]}
    assert lab.ledger.live_run(1).key.run == (2 if mode == "requeue" else 1)


def test_a_claim_waits_until_there_is_room(live: Any) -> None:
    lab = live.LiveLab((1,), parts={"scheduling": "las"}, preempt_mode="requeue")
    old = lab.submit(1.0)
    lab.round(2.0)
    new = [lab.submit(5000.0, gpu_share=0.5) for _ in range(2)]
    lab.round(5001.0, at_once=False)
    assert on_gpus(lab) == {"GPU-n1-0": [old]}
    assert [lab.live.reason(job) for job in new] == ["Resources: a GPU of n1 is still held"] * 2
    lab.end(5003.0, old, code=143)
    assert sorted(lab.start_due(5004.0)) == new
    assert on_gpus(lab) == {"GPU-n1-0": [int(job) for job in new]}


def test_a_decision_that_overfills_a_gpu_is_thrown_away(live: Any) -> None:
    lab = live.LiveLab((2,))
    holder = lab.submit(1.0, gpu_share=0.5)
    lab.round(2.0)
    beside, over, whole = (lab.submit(3.0, gpu_share=share) for share in (0.5, 0.6, None))
    decided = lab.decide(4.0, "fill")
    where = lab.live.where(holder)

    def problems(launched: dict[int, Placement]) -> list[str]:
        plain = {name: getattr(decided, name) for name in Decided.__slots__}
        made = Decided(**plain | {"launched": launched})
        return [p.text for p in verify(made, lab.live) if p.is_offence]

    assert problems({beside: where}) == []
    twice = ["GPUs of n1 were given twice"]
    assert problems({over: where}) == problems({whole: where}) == twice
    assert problems({beside: where, over: where}) == twice


def test_gpus_that_a_suspended_job_gave_up_are_not_freed_twice(
    live: Any,
) -> None:
    lab = live.LiveLab((1,), parts={"scheduling": "las"}, preempt_mode="suspend")
    away = lab.submit(1.0)
    lab.round(2.0)
    holder = lab.submit(5000.0)
    lab.round(5001.0)
    assert on_gpus(lab) == {"GPU-n1-0": [holder]}
    third, decided = lab.submit(5002.0), lab.decide(5003.0, "fill")
    plain = {name: getattr(decided, name) for name in Decided.__slots__}
    plan = {"suspended": (away,), "launched": {third: lab.live.where(holder)}}
    problems = verify(Decided(**plain | plan), lab.live)
    assert [p.text for p in problems if p.is_offence] == ["GPUs of n1 were given twice"]


def test_jobs_that_share_have_exactly_the_same_gpus() -> None:
    room = GpuUse()
    room.take(BOTH, 0.5)
    assert room.has_room(BOTH, 0.5)
    assert not room.has_room(ONE, 0.1)
    assert not room.has_room(BOTH, 0.6)
    room.give_back(BOTH, 0.5)
    assert room.has_room(ONE, 1.0)
    assert room.taken(0) == 0


@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.sampled_from([ONE, TWO, BOTH]),
            st.sampled_from([1 / 3, 0.25, 0.5, 1.0]),
        ),
        max_size=40,
    )
)
def test_gpu_use_equals_a_recount(steps: list[tuple[bool, Placement, float]]) -> None:
    room, there = GpuUse(), list[tuple[Placement, float]]()
    for comes, placement, part in steps:
        if not comes and there:
            room.give_back(*there.pop(0))
        mask = placement.masks[0]
        same = sum(p for where, p in there if where == placement)
        alone = all(where == placement or not where.masks[0] & mask for where, _ in there)
        assert room.has_room(placement, part) == (alone and same + part <= 1.0 + 1e-9)
        if comes and room.has_room(placement, part):
            room.take(placement, part)
            there.append((placement, part))
        taken = 0
        for where, _ in there:
            taken |= where.masks[0]
        assert room.copy().taken(0) == taken


def test_what_others_leave_takes_nothing() -> None:
    use = GpuUse()
    use.take(BOTH, 1.0)
    assert use.has_room(ONE, 0.0)
    use.take(ONE, 0.0)
    twin = use.copy()
    use.give_back(BOTH, 1.0)
    assert (use.taken(0), use.has_room(BOTH, 1.0)) == (0b01, True)
    use.give_back(ONE, 0.0)
    assert (use.taken(0), twin.taken(0)) == (0, 0b11)


def test_an_opportunistic_job_starts_beside_an_owner_whose_use_is_known(live: Any) -> None:
    lab = live.LiveLab((1,), parts={"scheduling": "antman"})
    owner = lab.submit(1.0)
    lab.round(2.0)
    beside = lab.submit(3.0, guarantee="opportunistic", extra={"gpu_util": "30"})
    lab.round(4.0)
    assert on_gpus(lab) == {"GPU-n1-0": [owner]}
    assert lab.live.reason(beside) == "Resources: no GPU leaves enough for an opportunistic job"
    lab.live.note_gpu_use(owner, 0.4, 8.0, 30.0)
    lab.round(35.0)
    assert on_gpus(lab) == {"GPU-n1-0": [owner, beside]}
    assert lab.live.co_located(owner) == [beside]


def test_under_muri_antman_an_opportunistic_job_leaves_its_gpu_to_the_next_owner(
    live: Any,
) -> None:
    lab = live.LiveLab((1,), parts={"scheduling": "muri-antman"})
    first, beside = lab.submit(1.0), lab.submit(1.0, guarantee="opportunistic")
    lab.round(2.0)
    lab.end(3.0, first)
    second = lab.submit(4.0)
    lab.round(5.0)
    assert on_gpus(lab) == {"GPU-n1-0": [beside, second]}


def test_an_owner_starts_on_a_gpu_that_an_opportunistic_job_uses(live: Any) -> None:
    """Under AntMan, through a restart of the daemon; an auto job that owns its GPU stays alone."""
    lab = live.LiveLab((1,), parts={"scheduling": "antman"})
    beside = lab.submit(1.0, guarantee="opportunistic", extra={"gpu_util": "30"})
    lab.round(2.0)
    owner = lab.submit(3.0, extra={"gpu_util": "30"})
    lab.round(4.0)
    assert on_gpus(lab) == {"GPU-n1-0": [beside, owner]}
    lab.restart(5.0)
    waits = lab.submit(6.0)
    lab.round(7.0)
    assert on_gpus(lab) == {"GPU-n1-0": [beside, owner]}
    lab.end(8.0, owner)
    lab.end(8.0, beside)
    lab.round(9.0)
    assert on_gpus(lab) == {"GPU-n1-0": [waits]}
    lab.end(10.0, waits)
    auto = lab.submit(11.0, guarantee="auto", extra={"gpu_util": "30"})
    lab.round(12.0)
    lab.restart(13.0)
    lab.submit(14.0, guarantee="opportunistic", extra={"gpu_util": "30"})
    lab.submit(14.0)
    lab.round(15.0)
    assert on_gpus(lab) == {"GPU-n1-0": [auto]}
