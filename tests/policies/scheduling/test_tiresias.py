"""Tiresias (NSDI 2019): worked examples, the Gittins index, promotion, exact jumps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.policies.scheduling.gittins import GittinsIndex
from simulate.published.tiresias.gittins import TabledIndex

TINY_A = [(0, 1, 5000), (10, 4, 100), (20, 2, 300), (30, 1, 50), (40, 3, 2000)]
TINY_B = [(0, 2, 4000), (100, 2, 4000), (2000, 1, 1000), (2100, 2, 500)]
ARTIFACT = ("semantics=tiresias",)

CASES_A = {
    "fifo": (
        "fifo",
        (),
        [(0, 5000), (5000, 5100), (5100, 5400), (5100, 5150), (5400, 7400)],
        [0] * 5,
    ),
    "fjf": ("first-fit", (), [(0, 5000), (5000, 5100), (20, 320), (30, 80), (320, 2320)], [0] * 5),
    "sjf": ("sjf-gpu", (), [(0, 5000), (5000, 5100), (20, 320), (30, 80), (320, 2320)], [0] * 5),
    "shortest": (
        "srtf",
        (),
        [(0, 5100), (10, 160), (30, 410), (30, 80), (410, 2410)],
        [2, 1, 1, 0, 0],
    ),
    "shortest-gpu": (
        "srsf",
        (),
        [(0, 5100), (10, 160), (30, 410), (30, 80), (410, 2410)],
        [2, 1, 1, 0, 0],
    ),
    "dlas": (
        "tiresias",
        ("variant=dlas", *ARTIFACT),
        [(0, 5100), (3250, 3350), (20, 320), (30, 80), (320, 2320)],
        [1, 0, 0, 0, 0],
    ),
    "dlas-gpu": (
        "tiresias",
        ("variant=dlas-gpu", *ARTIFACT),
        [(0, 5100), (3250, 3350), (20, 320), (30, 80), (320, 2320)],
        [1, 0, 0, 0, 0],
    ),
}
CASES_B = {
    "0": ([(0, 7337), (1675, 9500), (3512, 4512), (4512, 5012)], [1, 1, 0, 0], [0, 0, 0, 0]),
    "0.5": ([(0, 9500), (1675, 8800), (3718, 4718), (4718, 5218)], [2, 1, 0, 0], [2, 1, 0, 0]),
    "1": ([(0, 8800), (1675, 9500), (3350, 4350), (4350, 4850)], [2, 2, 0, 0], [1, 1, 0, 0]),
    "2": ([(0, 9500), (1675, 9349), (3512, 4512), (4512, 5012)], [2, 1, 0, 0], [0, 1, 0, 0]),
}


@pytest.mark.parametrize("name", CASES_A)
def test_example_a_runs_as_worked_by_hand(lab, name):
    policy, options, spans, preemptions = CASES_A[name]
    run = lab.run(TINY_A, policy, placement="count", options=options)
    assert list(lab.spans(run).values()) == spans
    assert run.jobs.preemptions.tolist() == preemptions


@pytest.mark.parametrize("knob", CASES_B)
def test_example_b_promotes_as_worked_by_hand(lab, knob):
    spans, preemptions, promotions = CASES_B[knob]
    run = lab.run(
        TINY_B, "tiresias", cluster="1x2", placement="count", options=(*ARTIFACT, f"knob={knob}")
    )
    assert list(lab.spans(run).values()) == spans
    assert run.jobs.preemptions.tolist() == preemptions
    assert run.jobs.extra["promotions"].tolist() == promotions


def test_an_exact_jump_notices_the_fall_when_the_limit_is_reached(lab):
    run = lab.run(TINY_B, "tiresias", cluster="1x2", placement="count")
    # j0 reaches 3,250 GPU-s on 2 GPUs at 1,625, where the artifact waits until 1,675
    assert lab.spans(run)["B"][0] == 1625


@pytest.mark.parametrize("policy", ["tiresias", "multi-queue"])
def test_example_c_slices_by_one_limit(lab, policy):
    jobs = [(0, 2, 2), (0, 1, 8), (0, 2, 6)]
    run = lab.run(jobs, policy, cluster="1x2", placement="count", options=("limits=4",))
    assert run.jobs.finish_time.tolist() == [2, 12, 16]


@pytest.mark.parametrize(("policy", "ends"), [("srtf", [2, 16, 8]), ("srsf", [2, 10, 16])])
def test_example_c_with_known_durations(lab, policy, ends):
    jobs = [(0, 2, 2), (0, 1, 8), (0, 2, 6)]
    assert lab.run(jobs, policy, cluster="1x2", placement="count").jobs.finish_time.tolist() == ends


def test_the_artifact_index_of_worked_samples():
    assert TabledIndex([4, 8, 12], 4).table.tolist() == [83332.5, 83333.3333, 0.0]
    table = TabledIndex([10, 20, 30, 100], 15).table
    assert table.tolist() == [33333.3333, 30769.3799, 22222.2222, 0.0]


def test_the_theory_index_of_a_worked_sample():
    index = GittinsIndex([4, 8, 12], 4)(np.array([0.0, 4.0, 8.0, 12.0]))
    assert index == pytest.approx([83333.3333, 125000.0, 250000.0, 0.0])


@given(
    sample=st.lists(st.integers(1, 50), min_size=1, max_size=20),
    delta=st.integers(1, 30),
    attained=st.integers(0, 60),
)
def test_the_theory_index_is_its_definition(sample, delta, attained):
    alive = [s for s in sample if s > attained]
    if alive:
        ends = sum(s - attained <= delta for s in alive) / len(alive)
        spent = sum(min(s - attained, delta) for s in alive) / len(alive)
        expected = 1e6 * ends / spent
    else:
        expected = 0.0
    index = GittinsIndex(sample, float(delta))(np.array([float(attained)]))
    assert index[0] == pytest.approx(expected, rel=1e-9)


def test_without_a_sample_gittins_learns_from_the_runs_own_finished_jobs(lab):
    # twenty jobs of 10 s teach that a job that has run 50 s is hopeless and a new one is not
    past = [(k * 10, 1, 10) for k in range(20)]
    jobs = [*past, (200, 1, 1000), (250, 1, 10)]
    options = ("variant=gittins", "limits=1000000", "delta=20")
    run = lab.run(jobs, "tiresias", cluster="1x1", options=options)
    assert lab.spans(run)["V"] == (250, 260)
    assert lab.run(jobs, "tiresias", cluster="1x1").jobs.first_start_time[-1] > 260


@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 300), st.integers(1, 4), st.integers(1, 400)),
        min_size=1,
        max_size=10,
    ),
    knob=st.sampled_from(["0", "0.5", "2"]),
    semantics=st.sampled_from(["rounds", "tiresias"]),
)
def test_jct_less_waiting_is_the_duration(lab, jobs, knob, semantics):
    options = ("limits=50,200", f"knob={knob}", f"semantics={semantics}")
    done = lab.run(jobs, "tiresias", options=options).jobs
    assert (done.status == "completed").all()
    assert done.gpu_seconds == pytest.approx(done.duration * done.num_gpus)


def test_promotion_saves_a_job_that_would_starve(lab):
    # short jobs without end keep the long one in the second queue out, unless it is promoted
    jobs = [(0, 1, 300), *[(k * 10, 1, 10) for k in range(1, 100)]]
    plain = lab.run(jobs, "tiresias", cluster="1x1", options=("limits=100",))
    promoted = lab.run(jobs, "tiresias", cluster="1x1", options=("limits=100", "knob=1"))
    assert lab.spans(promoted)["A"][1] < lab.spans(plain)["A"][1]
    assert promoted.jobs.extra["promotions"][0] > 0
