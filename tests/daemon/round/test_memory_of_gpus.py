"""Jobs share GPUs in live rounds only while their memory fits into what the agents report."""

from __future__ import annotations

from typing import Any

import pytest

TOLD = "Resources: GPUs with room for it have 14 GiB of memory; 15 GiB are needed"


def halves_of_a_gpu(live: Any, *sizes_gib: float) -> tuple[Any, list[int]]:
    """Jobs that need half a GPU and 8 or 7 GiB, as many as there are GPUs, and one more."""
    lab = live.LiveLab((1,) * len(sizes_gib))
    for node, size in zip(lab.live.nodes.names, sizes_gib, strict=True):
        lab.live.nodes.describe(node, {"gpu_memory_gib": size})
    jobs = [lab.submit(1.0, gpu_share=0.5) for _ in sizes_gib]
    lab.round(2.0)
    for job in jobs:
        lab.live.note_gpu_use(job, 0.3, 8.0, 5.0)
    jobs.append(lab.submit(3.0, gpu_share=0.5))
    lab.live.jobs.set(lab.live.jobs.row_of[jobs[-1]], gpu_memory=7.0)  # of an earlier run
    lab.round(4.0)
    return lab, jobs


def test_a_job_joins_another_where_their_memory_fits(live: Any) -> None:
    lab, jobs = halves_of_a_gpu(live, 16.0)
    assert [int(job) for job in lab.live.co_located(jobs[1])] == [jobs[0]]


@pytest.mark.parametrize("sizes_gib", [(14.0,), (14.0, 16.0)])
def test_it_waits_where_it_does_not_fit_the_smallest_gpu_of_the_type(
    live: Any, sizes_gib: tuple[float, ...]
) -> None:
    lab, jobs = halves_of_a_gpu(live, *sizes_gib)
    assert not lab.live.co_located(jobs[-1])
    assert lab.live.reason(jobs[-1]) == TOLD


def test_another_job_of_the_same_kind_is_told_the_same(live: Any) -> None:
    lab, jobs = halves_of_a_gpu(live, 14.0)
    other = lab.submit(5.0, gpu_share=0.5)
    lab.live.jobs.set(lab.live.jobs.row_of[other], gpu_memory=7.0)
    lab.round(6.0)
    assert [lab.live.reason(job) for job in (jobs[-1], other)] == [TOLD, TOLD]


def test_memory_of_which_nothing_is_known_is_not_counted(live: Any) -> None:
    lab, _ = halves_of_a_gpu(live, 14.0)
    silent = lab.submit(5.0, gpu_share=0.5)
    lab.round(6.0)
    assert lab.live.co_located(silent)
