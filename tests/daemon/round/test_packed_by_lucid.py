"""Lucid in live rounds: jobs are profiled, measured, and packed where they bear it."""

from __future__ import annotations

from typing import Any

import pytest

OPTIONS = {"profiling_nodes": "1", "profiling_s": "100", "sharing": "always", "check_s": "1"}


def lab_of(live: Any, *nodes: int, **more: Any) -> Any:
    parts = {"scheduling": "lucid", "estimator": "declared"}
    options = tuple(f"{name}={value}" for name, value in (OPTIONS | more).items())
    return live.LiveLab(nodes, parts=parts, options=options, preempt_mode="requeue")


def profiled(lab: Any, at: float, count: int, use: float, memory: float = 4.0) -> list[int]:
    """Jobs that have been profiled for 100 s, one after the other, and wait for the cluster."""
    jobs = [lab.submit(at + k, gpu_share=0.5, expected_s=5000.0) for k in range(count)]
    for k, job in enumerate(jobs):
        lab.round(at + 10 + 200 * k)
        lab.live.note_gpu_use(job, use, memory, 60.0)
        lab.round(at + 115 + 200 * k)
    return jobs


def beside(lab: Any, job: int) -> list[int]:
    return [int(other) for other in lab.live.co_located(job)]


@pytest.mark.parametrize(("use", "packed"), [(0.1, True), (0.5, True), (0.9, False)])
def test_jobs_are_packed_by_what_was_measured_of_them(live: Any, use: float, packed: bool) -> None:
    lab = lab_of(live, 1, 1, 1)
    first, second, third = profiled(lab, 10.0, 3, use)
    lab.round(700.3)
    together = [beside(lab, job) for job in (first, second, third)]
    assert any(together) is packed


def test_a_job_of_which_nothing_is_known_is_never_packed(live: Any) -> None:
    lab = lab_of(live, 1, 1, 1, profiling_gpus="1")
    profiled(lab, 10.0, 1, 0.1)
    silent = [lab.submit(300.0 + k, gpu_share=0.5, expected_s=5000.0) for k in range(3)]
    for at in (310.0, 420.0, 530.0, 640.0, 750.0):
        lab.round(at)
    assert not any(beside(lab, job) for job in silent)
    waits = [lab.live.reason(job) for job in silent if job not in lab.running()]
    assert waits
    assert set(waits) == {
        "Resources: needs 1 GPU, 0 are free, and it joins no other job: what it uses of a GPU is "
        "not known"
    }


def test_a_measured_job_waits_for_what_others_use_to_be_known(live: Any) -> None:
    lab = lab_of(live, 1, 1, 1, profiling_gpus="1")
    for k in range(2):  # of which nothing is measured
        lab.submit(10.0 + k, gpu_share=0.5, expected_s=9000.0)
    for at in (20.0, 130.0, 240.0, 350.0):
        lab.round(at)
    (job,) = profiled(lab, 400.0, 1, 0.1)
    lab.round(700.0)
    assert lab.live.reason(job) == (
        "Resources: needs 1 GPU, 0 are free, and it joins no other job: what the others use of a "
        "GPU is not known"
    )


def test_jobs_without_a_share_are_not_packed(live: Any) -> None:
    lab = lab_of(live, 1, 1, 1)
    jobs = [lab.submit(10.0 + k, expected_s=5000.0) for k in range(3)]
    for k, job in enumerate(jobs):
        lab.round(20.0 + 200 * k)
        lab.live.note_gpu_use(job, 0.1, 4.0, 60.0)
        lab.round(125.0 + 200 * k)
    lab.round(700.3)
    assert not any(beside(lab, job) for job in jobs)
    waits = [lab.live.reason(job) for job in jobs if job not in lab.running()]
    assert waits == ["Resources: needs 1 GPU, 0 are free"]


def test_what_was_measured_outlives_the_daemon(live: Any) -> None:
    lab = lab_of(live, 1, 1, 1)
    first, second, third = profiled(lab, 10.0, 3, 0.1)
    lab.restart(650.0)
    lab.round(700.3)
    assert any(beside(lab, job) for job in (first, second, third))


def test_use_is_not_measured_while_gpus_are_shared(live: Any) -> None:
    lab = live.LiveLab((1,))
    one, other = (lab.submit(1.0, gpu_share=0.5) for _ in range(2))
    lab.round(2.0)
    lab.live.note_gpu_use(one, 0.9, 4.0, 5.0)
    lab.end(3.0, other)
    lab.live.note_gpu_use(one, 0.2, 4.0, 5.0)
    lab.live.note_gpu_use(one, 0.4, 9.0, 5.0)
    jobs, row = lab.live.jobs, lab.live.jobs.row_of[one]
    assert jobs.get("gpu_util", row) == pytest.approx(30.0)
    assert jobs.get("gpu_memory", row) == 9.0
