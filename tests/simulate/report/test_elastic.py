"""Elastic jobs over time: what a replay notes of them, and what the report makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlsched.core.speed.throughput_table import JobKind, Measurement, ThroughputTable
from simulate.report.elastic import elastic_figures, trajectory_of
from simulate.report.study import Study
from simulate.results.recorder import Recorder


def run(lab: Any, **given: Any) -> Any:
    table = ThroughputTable(
        [
            Measurement(gpu_type="v100", scale=k, kind=JobKind("m"), rate=rate)
            for k, rate in ((1, 1.0), (2, 1.8), (4, 3.0))
        ]
    )
    trace = lab.trace(
        [(0, 1, 1), (100, 1, 1)],
        model=["m", "m"],
        total_iterations=[2000, 200],
        min_gpus=[1, 1],
        max_gpus=[4, 4],
    )
    return lab.run(trace, "afs", cluster="1x4:v100", throughputs=table, **given)


def test_a_replay_notes_what_elastic_jobs_have(lab: Any) -> None:
    trajectories = run(lab).trajectories
    times, gpus = trajectory_of(trajectories, 0, "gpus")
    assert gpus.tolist() == [4, 2, 4, 0]
    assert times[:2].tolist() == [0, 100]
    assert trajectory_of(trajectories, 1, "gpus")[1].tolist() == [2, 0]
    assert np.isnan(trajectories.goodput).all()


def test_rigid_jobs_and_runs_without_records_note_nothing(lab: Any) -> None:
    assert lab.run([(0, 1, 10)], "fifo").trajectories is None
    assert run(lab, record=False).trajectories is None


def test_a_later_note_of_the_same_moment_replaces() -> None:
    recorder = Recorder()
    recorder.keeps_trajectories = True
    recorder.has(3, 0.0, 2, 64.0, 10.0)
    recorder.has(3, 60.0, 2, 64.0, 10.0)  # nothing new
    recorder.has(3, 90.0, 0, 0.0, 0.0)
    recorder.has(3, 90.0, 4, 128.0, 20.0)
    trajectories = recorder.trajectories()
    assert trajectories is not None
    assert trajectories.time.tolist() == [0, 90]
    assert trajectories.gpus.tolist() == [2, 4]
    assert trajectories.batch_size.tolist() == [64, 128]


def test_a_figure_shows_gpus_and_a_table_their_means(lab: Any) -> None:
    result = run(lab)
    (figure,) = elastic_figures(Study.of([result]).groups)
    assert [panel.title for panel in figure.panels] == ["GPUs"]
    assert [key.label for key in figure.legend] == ["A", "B"]
    assert figure.table is not None
    job, resizes, most, mean, *unknown, _ = figure.table.rows[0]
    assert (job, resizes, most) == ("A", "2", "4")
    held = float(result.jobs.finish_time[0])
    assert float(mean) == pytest.approx(result.jobs.gpu_seconds[0] / held, rel=0.01)
    assert unknown == ["–", "–"]
    assert elastic_figures(Study.of([lab.run([(0, 1, 10)], "fifo")]).groups) == ()
