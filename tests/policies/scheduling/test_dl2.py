"""DL2 on GPUs: the window, the teacher, the guard, and the policy in replays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.composition.network_files import network_bytes
from dlsched.core.errors import BadInput
from dlsched.core.speed.throughput_table import JobKind, Measurement, ThroughputTable
from dlsched.policies.learning.network import Network
from dlsched.policies.scheduling.dl2.guard import ROUNDS, Guard, Imagined
from dlsched.policies.scheduling.dl2.shares import equal_shares
from dlsched.policies.scheduling.dl2.window import (
    FEATURES,
    FULL,
    GAIN,
    SCHEMA,
    SHARE,
    Asked,
    Window,
    divided,
    window_of,
)  # fmt: skip

CURVES = [[1.0, 1.9, 2.7, 3.4], [1.0, 1.2, 1.3, 1.35], [1.0, 1.7, 2.2, 2.6]]


def asked(least: list[int], most: list[int], work: list[float] | None = None) -> Asked:
    count = len(least)
    return Asked(
        waited=np.arange(count, dtype=np.float64),
        left=np.ones(count),
        work_left=np.array(work or [5.0] * count),
        least=np.array(least),
        most=np.array(most),
        speed=np.tile(np.arange(max(most) + 1, dtype=np.float64), (count, 1)),
    )


def random_network(jobs: int, seed: int = 0) -> Network:
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(len(FEATURES) * jobs, jobs + 1)).astype(np.float32)
    return Network("random", SCHEMA, [weight], [np.zeros(jobs + 1, np.float32)])


def by_gain(jobs: int) -> Network:
    """Prefers the job that gains most by one GPU more, and never ends before all are given."""
    weight = np.zeros((len(FEATURES), jobs, jobs + 1), np.float32)
    for place in range(jobs):
        weight[GAIN, place, place] = 1000.0
    bias = np.zeros(jobs + 1, np.float32)
    bias[-1] = -1000.0
    return Network("by gain", SCHEMA, [weight.reshape(-1, jobs + 1)], [bias])


def test_every_job_has_its_fewest_gpus_first_and_sees_its_share() -> None:
    window = Window(asked([1, 4, 2, 9], [8, 4, 3, 9]), 10, 3)
    assert window.sizes.tolist() == [1, 4, 2, 0]  # the last one does not fit, others go on
    assert (window.room, window.jobs) == (3, [0, 2])
    assert window.state[SHARE].tolist() == pytest.approx([0.1, 0.2, 0])
    assert window.state[FULL].tolist() == pytest.approx([1 / 8, 2 / 3, 0])
    assert window.state[GAIN].tolist() == pytest.approx([1, 0.5, 0])
    assert window.allowed.tolist() == [True, True, False, True]
    window.give(1)
    assert window.jobs == [0]  # the other one is full
    window.give(0)
    assert window.state[GAIN, 0] == pytest.approx(0.5)
    window.give(0)
    assert window.is_over
    assert window.allowed.tolist() == [False, False, False, True]


@given(
    jobs=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6)), max_size=12),
    gpus=st.integers(1, 40), places=st.integers(1, 6), seed=st.integers(0, 5),
    drawn=st.booleans(),
)  # fmt: skip
def test_no_network_gives_more_than_there_is_or_what_is_not_allowed(
    jobs: list[tuple[int, int]], gpus: int, places: int, seed: int, drawn: bool
) -> None:
    least, most = [low for low, _ in jobs], [low + more for low, more in jobs]
    if not jobs:
        return
    window = Window(asked(least, most), gpus, places)
    first = window.sizes.copy()

    def seen(window: Window, action: int) -> int:
        assert window.allowed[action]
        return action

    chance = np.random.default_rng(seed).random if drawn else None
    decisions = divided(window, random_network(places, seed), chance, seen)
    assert window.sizes.sum() + window.room == gpus
    assert window.room >= 0
    started = window.sizes > 0
    assert (started == (first > 0)).all()
    assert (window.sizes[started] >= np.array(least)[started]).all()
    assert (window.sizes <= most).all()
    given = sum(each.action < places for each in decisions)
    assert window.sizes.sum() - first.sum() == given


@given(
    jobs=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6)), max_size=12),
    gpus=st.integers(0, 40),
)
def test_the_teacher_leaves_no_job_behind_that_could_have_more(
    jobs: list[tuple[int, int]], gpus: int
) -> None:
    least = np.array([low for low, _ in jobs], np.int64)
    most = np.array([low + more for low, more in jobs], np.int64)
    granted: list[int] = []
    sizes = equal_shares(least, most, gpus, granted.append)
    assert sizes.sum() <= gpus
    started = sizes > 0
    assert (sizes[started] >= least[started]).all()
    assert (sizes <= most).all()
    assert len(granted) == sizes.sum() - least[started].sum()
    growing = started & (sizes < most)
    if growing.any():
        assert sizes.sum() == gpus  # nothing is left while a job could grow
        grown = started & (sizes > least)
        assert sizes[grown].max(initial=0) <= sizes[growing].min() + 1


def test_equal_shares_by_hand() -> None:
    assert equal_shares(np.array([1, 1, 3]), np.array([2, 9, 9]), 10).tolist() == [2, 4, 4]


def test_networks_of_other_things_are_refused() -> None:
    made = random_network(3)
    assert window_of(made) == 3
    other = Network("x.npz", "dl2-servers/1", made.weights, made.biases)
    with pytest.raises(BadInput, match=r"x\.npz: a network for dl2-servers/1"):
        window_of(other)
    narrow = Network("x.npz", SCHEMA, [np.zeros((7, 4), np.float32)], [np.zeros(4, np.float32)])
    with pytest.raises(BadInput, match=r"takes 7 numbers for 3 jobs; 6 of each are needed"):
        window_of(narrow)


def watched(guard: Guard, rounds: int, true: float, imagined: float) -> None:
    done = 0.0
    for _ in range(rounds):
        guard.note(np.array([done]), np.array([0]), np.array([done]), imagined)
        done += true


def test_the_guard_prefers_the_teacher_after_twenty_poor_rounds() -> None:
    guard = Guard()
    watched(guard, ROUNDS, 0.017, 0.02)
    assert not guard.prefers_teacher  # the first round has none before it
    guard.note(np.array([0.34]), np.array([0]), np.array([0.34]), 0.02)
    assert guard.prefers_teacher
    good = Guard()
    watched(good, ROUNDS + 5, 0.019, 0.02)
    assert not good.prefers_teacher


def test_the_guard_imagines_the_teacher_with_the_same_arrivals() -> None:
    guard = Guard()
    linear = [0.0, 0.25, 0.5, 0.75, 1.0]
    first = {0: Imagined(1.0, 1, linear), 1: Imagined(0.5, 1, linear)}
    assert guard.imagine(3, first) == pytest.approx(0.75)  # two GPUs and one
    other = Guard()
    other.load_state_dict(guard.state_dict())
    for each in (guard, other):
        each.renumber(np.array([1]))  # row 0 has ended in truth, and goes on in the imagination
        assert each.imagine(3, {0: Imagined(1.0, 1, linear)}) == pytest.approx(0.75)
    # the last quarter, no more, of the second: it has been known all along
    assert str(guard.state_dict()) == str(other.state_dict())


def table() -> ThroughputTable:
    return ThroughputTable(
        [
            Measurement(gpu_type="v100", scale=k, kind=JobKind(f"m{job}"), rate=rate)
            for job, curve in enumerate(CURVES)
            for k, rate in enumerate(curve, 1)
        ]
    )


def replayed(lab: Any, *options: str, **more: Any) -> Any:
    trace = lab.trace(
        [(100 * k, 1, 3000) for k in range(9)],
        model=[f"m{k % 3}" for k in range(9)],
        min_gpus=[1] * 9,
        max_gpus=[4] * 9,
        total_iterations=[3000.0] * 9,
    )
    return lab.run(
        trace,
        "dl2",
        cluster="2x4:v100",
        throughputs=table(),
        options=options,
        clock="rounds",
        round_s=300.0,
        **more,
    )


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.npz"
    path.write_bytes(network_bytes(by_gain(8)))
    return f"model={path}"


def test_a_network_from_a_file_decides_in_a_replay(lab: Any, model: str) -> None:
    equal = replayed(lab)
    decided = replayed(lab, model, "choose=likeliest")
    assert (decided.jobs.status == "completed").all()
    assert decided.summary["options"]["dl2.model"].endswith("model.npz")
    assert lab.outcome(decided) != lab.outcome(equal)
    scales_well = [k for k in range(9) if k % 3 == 0]
    jct = decided.jobs.finish_time - decided.jobs.submit_time
    before = equal.jobs.finish_time - equal.jobs.submit_time
    assert jct[scales_well].mean() < before[scales_well].mean()


def test_a_seed_decides_what_is_drawn(lab: Any, tmp_path: Path) -> None:
    path = tmp_path / "random.npz"
    path.write_bytes(network_bytes(random_network(8)))
    option = f"model={path}"
    runs = [lab.outcome(replayed(lab, option, seed=seed)) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_an_unreadable_model_ends_the_run_before_it_begins(lab: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="/no/such: cannot be read"):
        replayed(lab, "model=/no/such")
    assert lab.outcome(replayed(lab, "model=none")) == lab.outcome(replayed(lab))
