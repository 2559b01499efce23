"""Least predicted GPU time first."""

from __future__ import annotations


def test_the_least_gpu_time_goes_first_and_the_head_blocks(lab) -> None:
    jobs = [(0, 4, 10), (1, 4, 20), (2, 1, 60), (3, 2, 25)]  # 80, 60 and 50 GPU-seconds wait
    assert lab.spans(lab.run(jobs, "qssf")) == {
        "A": (0, 10),
        "D": (10, 35),
        "C": (10, 70),
        "B": (70, 90),
    }


def test_a_misfit_may_be_passed(lab) -> None:
    jobs = [(0, 3, 50), (1, 2, 10), (2, 1, 30)]
    spans = lab.spans(lab.run(jobs, "qssf", options=("misfit=skip",)))
    assert spans["C"] == (2, 32)


def test_jobs_of_this_second_go_by_gpus_alone_until_the_next(lab) -> None:
    # 1 GPU for 100 s before 2 GPUs for 10 s; a second later it is the other way round
    jobs = [(0, 3, 5), (1, 2, 10), (1, 1, 100), (1, 1, 90)]
    first = lab.spans(lab.run(jobs, "qssf", options=("semantics=lucid-queue",)))
    assert first["C"] == (1, 101)
    plain = lab.spans(lab.run(jobs, "qssf"))
    assert plain["C"][0] > first["C"][0]
