"""The parts of Blox that start, stop and watch jobs, as a replay has them."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pytest

from dlsched.core.allocation import Ranking
from dlsched.core.errors import BadInput
from dlsched.core.job_metrics import Metric, MetricBoard
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.stage import MetricsPart
from dlsched.core.units import UnitTable
from dlsched.policies import registry

# B, shorter, pushes A out at 10; A goes on at 15
SRTF = [(0, 4, 100), (10, 4, 5)]


def test_a_start_costs_the_runs_overhead_unless_told_otherwise(lab):
    run = lab.run(SRTF, "srtf", overhead=3.0)
    assert lab.spans(run) == {"A": (0, 114), "B": (10, 18)}


def test_profiled_launch_takes_each_jobs_own_column(lab):
    trace = lab.trace(SRTF, restart_overhead=[2.0, math.nan])
    run = lab.run(trace, "srtf", overhead=3.0, launch="profiled")
    # A: 8 s done by 10, out until 18 (B restarts for 3 s), then 2 s and the 92 s left
    assert lab.spans(run) == {"A": (0, 112), "B": (10, 18)}


def test_what_the_trace_says_of_starts_is_charged_unless_the_run_says_otherwise(lab):
    trace = lab.trace(SRTF, restart_overhead=[2.0, math.nan])
    told = lab.run(trace, "srtf", overhead=None)
    # A: 8 s done by 10, out until 15 (what B takes is unknown), then 2 s and the 92 s left
    assert lab.spans(told) == {"A": (0, 109), "B": (10, 15)}
    assert told.summary["options"]["restart_overhead"] == 0.0
    for words in ({"overhead": 3.0}, {"overhead": None, "launch": "constant"}):
        said = lab.run(trace, "srtf", **words)
        assert lab.spans(said) == lab.spans(lab.run(SRTF, "srtf", **words))
    unknown = lab.trace(SRTF, restart_overhead=[math.nan, math.nan])
    assert lab.spans(lab.run(unknown, "srtf", overhead=None)) == {"A": (0, 105), "B": (10, 15)}


def test_profiled_launch_may_charge_for_every_further_node(lab):
    run = lab.run(
        [(0, 8, 10)], cluster="2x4", launch="profiled", options=("launch.per_node=4",), overhead=1.0
    )
    assert lab.spans(run) == {"A": (0, 15)}


@pytest.mark.parametrize(
    ("preemption", "interval", "finish", "lost"),
    [
        ("checkpoint", None, 105, 0),
        ("kill", None, 115, 10),
        ("periodic", 4.0, 107, 2),
        ("periodic", None, 115, 10),
    ],
)
def test_what_a_suspension_saves_is_chosen_by_name(lab, preemption, interval, finish, lost):
    run = lab.run(SRTF, "srtf", preemption=preemption, interval=interval)
    assert lab.spans(run)["A"] == (0, finish)
    assert run.jobs.lost_seconds.tolist() == [lost, 0]


def test_every_launch_preemption_and_metrics_part_can_be_combined(lab):
    named = ("epoch_s", "loss_falls", "loss_begins", "loss_floor")
    losses = {name: [1.0, 2.0] for name in named}
    trace = lab.trace(SRTF, total_iterations=[1000, 50], restart_overhead=[1.0, 2.0], **losses)
    for launch in registry.names("launch"):
        for preemption in registry.names("preemption"):
            for metrics in registry.names("metrics"):
                run = lab.run(
                    trace,
                    "srtf",
                    launch=launch,
                    preemption=preemption,
                    metrics=metrics,
                    overhead=1.0,
                )
                assert run.summary["completed"] == 2


def test_sums_add_up_and_means_replace():
    table = UnitTable(2)
    board = MetricBoard(
        table, [Metric(key="steps", merge="sum", default=0.0), Metric(key="loss", merge="mean")]
    )
    for steps, loss in ((3, 1.0), (4, 3.0)):
        board.push(0, "steps", steps)
        board.push(0, "loss", loss)
    board.collect()
    board.push(0, "steps", 5)
    board.push(0, "loss", 0.5)
    board.collect()
    board.collect()  # nothing new: nothing changes
    assert table.extra["steps"].tolist() == [12, 0]
    assert table.extra["loss"][0] == 0.5
    assert math.isnan(table.extra["loss"][1])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_invalid_reports_are_ignored_and_counted(value):
    board = MetricBoard(UnitTable(1), [Metric(key="loss", merge="mean", default=7.0)])
    board.push(0, "loss", value)
    board.push(0, "unheard-of", 1.0)
    board.collect()
    assert board.ignored == 2


def test_iterations_are_counted_over_ranks_and_preemptions(lab):
    trace = lab.trace(SRTF, total_iterations=[1000, 50])
    engine = lab.engine(trace, "srtf", metrics="iterations", clock="events")
    seen = []
    engine.observers.append(
        lambda now, _: seen.append((now.now, now.world.table.extra["iterations"][0]))
    )
    engine.run()
    assert seen == [(0, 0), (10, pytest.approx(100)), (15, pytest.approx(100))]
    assert engine.world.table.extra["iteration_time"][1] != 0


def test_a_metrics_part_that_needs_a_column_refuses_a_trace_without_it(lab):
    with pytest.raises(BadInput, match="needs the column total_iterations"):
        lab.run(SRTF, metrics="iterations")


class LossReports(MetricsPart[NoOptions]):
    """Reports a loss that falls with the work done, faster for even rows."""

    name = "loss-reports"
    metrics: ClassVar[tuple[Metric, ...]] = (Metric(key="loss", merge="mean", default=9.0),)

    def report(self, running, board, ctx):
        for row, done in zip(running.rows.tolist(), running.executed.tolist(), strict=True):
            board.push(row, "loss", 9.0 / (1.0 + done * (2 - row % 2)))


class HighestLossFirst(SchedulingPolicy[NoOptions]):
    """A third party's policy that reads a key of its own."""

    name = "highest-loss-first"
    preemptive = True
    rests = False
    metrics: ClassVar[tuple[Metric, ...]] = (Metric(key="loss", merge="mean", default=9.0),)

    def rank(self, units, ctx):
        return Ranking(order=np.argsort(-units.extra("loss"), kind="stable"))


def test_a_policy_can_decide_by_a_metric_of_its_own(lab, monkeypatch):
    theirs = {"metrics": LossReports, "scheduling": HighestLossFirst}
    find = registry.find
    monkeypatch.setattr(
        registry,
        "find",
        lambda s, n: theirs[s] if s in theirs and n == theirs[s].name else find(s, n),
    )
    monkeypatch.setattr("dlsched.composition.parts.find", registry.find)
    run = lab.run(
        [(0, 4, 100), (0, 4, 100)],
        "highest-loss-first",
        clock="rounds",
        round_s=10,
        metrics="loss-reports",
    )
    # both halves of the cluster's time: the job with the higher loss runs next
    assert run.summary["completed"] == 2
    assert run.jobs.preemptions.min() > 0


def test_time_on_gpus_is_work_that_lasts_plus_lost_seconds(lab):
    run = lab.run(SRTF, "srtf", overhead=3.0, preemption="kill")
    jobs = run.jobs
    assert jobs.lost_seconds.tolist() == [3 + 7 + 3, 3]
    assert (jobs.gpu_seconds / jobs.num_gpus).tolist() == (
        jobs.duration + jobs.lost_seconds
    ).tolist()
