"""Pictures of elastic jobs over time: GPUs, batch size and goodput of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.errors import plural
from simulate.report.drawing.charts import Curve, Curves, Figure, Key, Table
from simulate.report.drawing.scale import Axis, nice_axis, time_axis
from simulate.report.study import Group
from simulate.report.wording import DASH, clean, duration_text, number_text
from simulate.results.tables import Floats, Ints, ReplayResult, Trajectories

MOST_JOBS = 6  # lines that can be told apart
MOST_ROWS = 40  # of the table
PANELS = (("GPUs", "gpus"), ("Batch size", "batch_size"), ("Goodput", "goodput"))
UNITS = {"gpus": "GPUs", "batch_size": "samples", "goodput": "useful samples/s"}


def elastic_figures(groups: Sequence[Group]) -> tuple[Figure, ...]:
    """A figure for every group that has elastic jobs in its first run; none for others."""
    return tuple(
        _figure(group, place)
        for place, group in enumerate(groups)
        if group.first.trajectories is not None and group.first.trajectories.job.size
    )


def _figure(group: Group, place: int) -> Figure:
    run = group.first
    assert run.trajectories is not None
    jobs = _most_resized(run)
    names = [clean(str(name)) for name in run.jobs.job_id.tolist()]
    shown = jobs[:MOST_JOBS]
    panels = [
        _panel(title, column, run.trajectories, shown, names)
        for title, column in PANELS
        if np.isfinite(getattr(run.trajectories, column)).any()
    ]
    return Figure(
        key=f"elastic-{place}",
        title=f"Elastic jobs over time, {group.label}",
        caption=(
            f"The {plural(len(shown), 'job')} resized most; of equals, those that had most GPU "
            "time. Time counts from each job's own first start. Goodput is progress in samples at "
            "the job's initial batch size."
        ),
        legend=tuple(Key(names[job], line) for line, job in enumerate(shown)),
        panels=tuple(panels),
        table=_table(run, jobs[:MOST_ROWS], names),
    )


def _most_resized(run: ReplayResult) -> list[int]:
    """Jobs that ran, the most resized first."""
    assert run.trajectories is not None
    ran = np.unique(run.trajectories.job)
    order = np.lexsort((ran, -run.jobs.gpu_seconds[ran], -run.jobs.resizes[ran]))
    found: list[int] = ran[order].tolist()
    return found


def trajectory_of(trajectories: Trajectories, job: int, column: str) -> tuple[Floats, Floats]:
    """One job's steps: times since its first start, and values."""
    mine = trajectories.job == job
    values = np.asarray(getattr(trajectories, column)[mine], np.float64)
    times = trajectories.time[mine]
    return times - times[0], values


def _panel(
    title: str, column: str, trajectories: Trajectories, jobs: Sequence[int], names: Sequence[str]
) -> Curves:
    curves = []
    for line, job in enumerate(jobs):
        times, values = trajectory_of(trajectories, job, column)
        curves.append(Curve(label=names[job], series=line, x=times, y=values, step=True))
    end = max((float(c.x[-1]) for c in curves), default=1.0)
    known = [c.y[np.isfinite(c.y)] for c in curves]
    top = max((float(y.max()) for y in known if y.size), default=1.0)
    x: Axis = time_axis("time since the first start", 0.0, end)
    return Curves(
        title=title,
        x=x,
        y=nice_axis(UNITS[column], "number", top),
        curves=tuple(curves),
        height=220.0,
    )


def _table(run: ReplayResult, jobs: Sequence[int], names: Sequence[str]) -> Table:
    """Means while a job held GPUs."""
    trajectories = run.trajectories
    assert trajectories is not None
    rows = []
    for job in jobs:
        means = [_mean(trajectories, job, column) for _, column in PANELS]
        texts = [number_text(mean, 3) if np.isfinite(mean) else DASH for mean in means]
        held: Ints = trajectories.gpus[trajectories.job == job]
        jct = run.jobs.jct.item(job)
        rows.append(
            (
                names[job],
                str(int(run.jobs.resizes[job])),
                str(int(held.max(initial=0))),
                *texts,
                duration_text(jct, 3) if np.isfinite(jct) else DASH,
            )
        )
    return Table(
        caption="Means over the time that each job held GPUs",
        columns=("Job", "Resizes", "Most GPUs", "GPUs", "Batch size", "Goodput", "JCT"),
        rows=tuple(rows),
    )


def _mean(trajectories: Trajectories, job: int, column: str) -> float:
    times, values = trajectory_of(trajectories, job, column)
    _, gpus = trajectory_of(trajectories, job, "gpus")
    spans = np.diff(times) * (gpus[:-1] > 0)
    if not spans.sum() > 0 or np.isnan(values[:-1][spans > 0]).any():
        return float("nan")
    return float((spans * np.where(spans > 0, values[:-1], 0.0)).sum() / spans.sum())
