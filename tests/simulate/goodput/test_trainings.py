"""Trainings in the simulated world: rounds, epochs, batch sizes, and what they learn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.composition.settings import Costs
from dlsched.core.errors import BadInput
from dlsched.core.goodput.params import GradParams, PerfParams
from simulate.goodput.application import Application
from simulate.goodput.files import read_applications
from simulate.goodput.training import Training
from simulate.goodput.trainings import Trainings, trainings_of
from simulate.replay import prepare, replay
from simulate.settings import RunSettings
from simulate.traces.trace import Trace

STEP = 0.1 + 0.01 * 16 + 1e-5  # of 16 samples on one GPU
POLLUX = ("semantics=pollux",)
EPOCH = round(100 * STEP)  # s, at the initial batch size


@pytest.fixture
def toys(profile_folder: Callable[..., Path]) -> dict[str, Application]:
    return read_applications(profile_folder())


def trace_of(*jobs: tuple[float, str, int, float]) -> Trace:
    """Jobs as (submit, application, GPUs, batch size)."""
    count = len(jobs)
    unknown = np.full(count, "", np.object_)
    return Trace(
        name="test",
        source="test",
        job_id=np.array([f"j{k}" for k in range(count)], np.object_),
        submit_time=np.array([job[0] for job in jobs], np.float64),
        num_gpus=np.array([job[2] for job in jobs], np.float64),
        duration=np.full(count, np.nan),
        user=unknown,
        vc=unknown,
        status=unknown,
        columns={
            "model": np.array([job[1] for job in jobs], np.object_),
            "batch_size": np.array([job[3] for job in jobs], np.float64),
        },
    )


def run(lab: Any, toys: dict[str, Application], trace: Trace, **given: Any) -> Any:
    """A replay under the semantics of Pollux, with every invariant checked."""
    cluster = lab.cluster(given.pop("cluster", "2x2"))
    options = ("semantics=pollux", *given.pop("options", ()))
    costs = Costs(interference=given.pop("interference", 0.0))
    settings = RunSettings(
        policy=given.pop("policy", "tiresias"), options=options, check=True, costs=costs, **given
    )
    return replay(trace, cluster, settings, applications=toys)


def test_the_life_of_a_training(lab: Any, toys: dict[str, Application]) -> None:
    jobs = run(lab, toys, trace_of((7, "toy", 1, 16))).jobs
    assert jobs.first_start_time.tolist() == [60]  # the next round
    assert jobs.finish_time.tolist() == [60 + 30 + 3 * EPOCH]  # to the second
    assert jobs.starts.tolist() == [1]
    assert jobs.lost_seconds.tolist() == [30]
    assert jobs.gpu_seconds.tolist() == [120]  # until the round that sees it


def test_a_training_s_own_start_is_charged_and_believed(
    lab: Any, toys: dict[str, Application]
) -> None:
    trace = trace_of((0, "toy", 1, 16), (0, "toy", 1, 16))
    own = {**trace.columns, "restart_overhead": np.array([5.0, math.nan])}
    trace = replace(trace, columns=own)
    jobs = run(lab, toys, trace).jobs
    assert jobs.finish_time.tolist() == [60 + 5 + 3 * EPOCH, 60 + 30 + 3 * EPOCH]
    cluster, settings = lab.cluster("2x2"), RunSettings(policy="pollux", options=POLLUX)
    believed = prepare(trace, cluster, settings, applications=toys).cycle.ctx.perf.goodput
    assert believed is not None
    assert believed.restart_s(np.array([1, 0])).tolist() == [30.0, 5.0]
    said = RunSettings(policy="pollux", options=POLLUX, costs=Costs(restart_overhead=7.0))
    believed = prepare(trace, cluster, said, applications=toys).cycle.ctx.perf.goodput
    assert believed is not None
    assert believed.restart_s(np.array([1, 0])).tolist() == [7.0, 7.0]


def test_a_larger_batch_gains_more_a_step(lab: Any, toys: dict[str, Application]) -> None:
    jobs = run(lab, toys, trace_of((0, "toy", 2, 64))).jobs
    step = 0.1 + 0.01 * 32 + 0.02
    gain = (32 + 1) / (32 / 4 + 1)
    assert jobs.finish_time.tolist() == [60 + 30 + 3 * round(100 * step / gain)]


def test_the_first_round_is_as_long_as_any(lab: Any, toys: dict[str, Application]) -> None:
    jobs = run(lab, toys, trace_of((0, "toy", 1, 16)), round_s=100.0).jobs
    assert jobs.first_start_time.tolist() == [100]


def test_gpus_come_back_at_the_round_that_sees_the_end(
    lab: Any, toys: dict[str, Application]
) -> None:
    trace = trace_of((0, "toy", 4, 64), (1, "toy", 4, 64))
    jobs = run(lab, toys, trace).jobs
    assert jobs.first_start_time.tolist() == [60, 180]
    assert jobs.finish_time[0] < 180


def test_spanning_trainings_on_the_same_nodes_slow_each_other_down(
    lab: Any, toys: dict[str, Application]
) -> None:
    trace = trace_of((0, "toy", 3, 48), (0, "toy", 3, 48))  # on nodes 0 and 1, 2 and 1
    free = run(lab, toys, trace, cluster="3x2").jobs
    beside = run(lab, toys, trace, cluster="3x2", interference=0.5).jobs
    apart = run(lab, toys, trace, cluster="4x2", interference=0.5).jobs
    assert ((beside.jct - 30) > 1.9 * (free.jct - 60)).all()
    assert apart.jct.tolist() == free.jct.tolist()


def test_skipping_rounds_changes_nothing(lab: Any, toys: dict[str, Application]) -> None:
    trace = trace_of(
        *((17.0 * k, ("toy", "fixed")[k % 2], 1 + k % 4, 16 + 8 * (k % 5)) for k in range(12))
    )
    options = {"optimus": ("oracle=true",)}
    for policy in ("tiresias", "fifo", "las", "srtf", "optimus", "pollux"):
        results = [
            run(lab, toys, trace, policy=policy, skipping=skips, options=options.get(policy, ()))
            for skips in (True, False)
        ]
        assert lab.outcome(results[0]) == lab.outcome(results[1])
        assert (results[0].jobs.status == "completed").all()


@pytest.mark.parametrize("clock", ["rounds", "events"])
def test_trainings_run_under_other_semantics_too(
    lab: Any, toys: dict[str, Application], clock: str
) -> None:
    settings = RunSettings(policy="las", clock=clock, check=True)
    trace = trace_of(*((7.3 * k, "toy", 1 + k % 3, 40) for k in range(8)))
    jobs = replay(trace, lab.cluster("1x4"), settings, applications=toys).jobs
    assert (jobs.status == "completed").all()


def test_a_job_of_an_unmeasured_application_is_refused(toys: dict[str, Application]) -> None:
    with pytest.raises(BadInput, match="job j0: the profile has no application 'gpt'; it has"):
        trainings_of(trace_of((0, "gpt", 1, 16)), toys)
    with pytest.raises(BadInput, match="job j0: toy trains with batches of 16 to 128 samples"):
        trainings_of(trace_of((0, "toy", 1, 8)), toys)


def test_a_run_outside_of_all_measurements_ends_in_one_line(
    lab: Any, toys: dict[str, Application]
) -> None:
    with pytest.raises(BadInput, match="has no time of 4 samples on each of 20 GPUs"):
        run(lab, toys, trace_of((0, "toy", 20, 64)), cluster="2x10")


# -- one training ---------------------------------------------------------------------------------


def test_a_training_that_tunes_begins_small_and_grows(toys: dict[str, Application]) -> None:
    each = Training(toys["toy"], 16)
    each.begin((4,), 0.0, batch=64, tunes=True)
    assert each.split.batch == 16  # nothing is known yet
    assert each.perf_on("") is None
    each.advance(1.0)
    known = each.version
    assert each.perf_on("") is not None
    each.advance(100.0)
    assert each.epoch >= 1
    assert each.split.batch > 16
    assert each.version > known
    assert each.profiled_on("") == 4


def test_a_fixed_batch_is_not_tuned(toys: dict[str, Application]) -> None:
    each = Training(toys["fixed"], 16)
    each.begin((1,), 0.0, batch=16, tunes=True)
    assert (each.split.local, each.split.accumulation) == (32, 1)
    each.advance(200.0)
    assert each.split.batch == 64


def test_when_a_training_is_observed_does_not_change_its_progress(
    toys: dict[str, Application],
) -> None:
    ends = []
    for stride in (1, 7, 60, 1000):
        each = Training(toys["toy"], 40)
        each.begin((2,), 30.0, batch=40, tunes=False)
        now = 0.0
        while each.finish is None:
            now += stride
            each.advance(now)
        ends.append(each.finish)
    assert set(ends) == {ends[0]}
    assert abs(ends[0] - 30.0 - each.alone((2,))) <= 1


def test_a_failure_loses_work_since_the_checkpoint(toys: dict[str, Application]) -> None:
    each = Training(toys["toy"], 16)
    each.begin((1,), 0.0, batch=16, tunes=False)
    each.advance(60.0)
    assert each.epoch == 2
    each.fall_back(150.0)
    assert (each.epoch, each.progress) == (1, 150.0)


def test_what_policies_may_believe(toys: dict[str, Application]) -> None:
    all_of_them = Trainings([Training(toys["toy"], 16), Training(toys["fixed"], 64)])
    rows = np.arange(2)
    assert np.isnan(all_of_them.perf(rows)).all()
    assert all_of_them.grads(rows).tolist() == [[0, 1], [0, 1]]
    assert all_of_them.profiled(rows).tolist() == [0, 0]
    assert np.isnan(all_of_them.one_gpu_step(rows)).all()
    limits = all_of_them.limits(rows)
    assert np.asarray(limits.maximum).tolist() == [128, 64]
    assert np.asarray(limits.fixed).tolist() == [False, True]
    all_of_them.of[0].begin((1,), 0.0, batch=16, tunes=False)
    all_of_them.of[0].advance(5.0)
    perf = PerfParams(*all_of_them.perf(rows).T)
    assert np.asarray(perf.known).tolist() == [True, False]
    assert GradParams(*all_of_them.grads(rows)[0].tolist()) == GradParams(1.0, 32.0)
    assert all_of_them.one_gpu_step(rows)[0] == pytest.approx(STEP / 16)
    assert all_of_them.version(rows)[0] > all_of_them.version(rows)[1]
    assert len(np.asarray(all_of_them.limits(rows[:0]).initial)) == 0


def test_only_the_oracle_shows_policies_the_truth(lab: Any, toys: dict[str, Application]) -> None:
    trace = trace_of((0, "toy", 1, 16))
    for estimate, knows in (("oracle", True), ("noise:0.5", False)):
        settings = RunSettings(policy="fifo", estimate=estimate, options=("semantics=pollux",))
        engine = prepare(trace, lab.cluster("1x4"), settings, applications=toys)
        goodput = engine.cycle.ctx.perf.goodput
        assert goodput is not None
        oracle = goodput.oracle
        assert (oracle is not None) is knows
        if oracle is not None:
            assert oracle.remaining_steps(np.array([0])).tolist() == [200.0]
            assert oracle.measured(0, (1,), 16) == pytest.approx((STEP, 1e-5))
    assert math.isclose(engine.world.true_work[0], 300.0)
