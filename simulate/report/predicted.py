"""A page about predicted schedules: alternatives in a table, and a Gantt chart of each.

It is drawn by the report's own code and is self-contained like a report. Times are seconds from the
moment of the prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import NamedTuple

import numpy as np

from dlsched import __version__
from simulate.report.drawing.charts import Figure, Gantt, Reference, Table
from simulate.report.drawing.style import MOST_TABS
from simulate.report.gantt import MOST_BLOCKS, gantt_panel, within
from simulate.report.interruptions import stretches
from simulate.report.page import document, figure_html, section, table_html
from simulate.report.study import Group
from simulate.report.wording import clean, duration_text
from simulate.results.tables import (
    ClusterShape,
    JobOutcomes,
    ReplayResult,
    Segments,
    Timeline,
)

ROOM = 1.08  # of the time axis, beyond the last moment of interest


class DrawnJob(NamedTuple):
    """A job of a schedule: its name, and what a tooltip says besides."""

    name: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedSchedule:
    """What one alternative comes to.

    Attributes:
        label: what it is called.
        jobs: that `blocks` speak of, by place.
        blocks: when each job has GPUs of which node.
        chosen: place of the job of interest; −1: none.
        latest: until when that job has very likely ended; None: not known.
    """

    label: str
    jobs: tuple[DrawnJob, ...]
    blocks: Segments
    chosen: int = -1
    latest: float | None = None


def predicted_page(
    title: str,
    facts: Sequence[tuple[str, str]],
    table: Table,
    notes: Sequence[str],
    figure: Figure,
    more: Sequence[Figure] = (),
) -> str:
    """The page as text.

    Args:
        title: its heading.
        facts: names and values of what the prediction is about.
        table: of the alternatives.
        notes: lines under the table.
        figure: of the schedules.
        more: further figures.
    """
    name = clean(title)
    said = "".join(f"<dt>{escape(k)}</dt><dd>{escape(clean(v))}</dd>" for k, v in facts)
    below = "".join(f'<p class="key">{escape(clean(note))}</p>' for note in notes)
    body = [
        f'<header><h1>{escape(name)}</h1><p class="lead">The present jobs simulated further with '
        "the policy’s own code; nothing more arrives, and durations are estimates.</p>"
        f'<dl class="facts">{said}</dl></header>',
        section("Alternatives", table_html(table) + below),
        section("Schedules", figure_html(figure, 1, figure.key)),
        *(
            section(each.title, figure_html(each, number, each.key))
            for number, each in enumerate(more, 2)
        ),
        f"<footer>Made by dlsched {escape(__version__)}.</footer>",
    ]
    return document(name, body)


def schedule_figure(
    schedules: Sequence[PredictedSchedule], cluster: ClusterShape, *, deadline: float | None
) -> Figure:
    """A Gantt chart of each schedule, all over one window; one is shown at a time.

    Args:
        schedules: one for each alternative that has one.
        cluster: the nodes.
        deadline: of the job of interest, in seconds from now; None: it has none.
    """
    title = "Predicted placements"
    ends = [float(each.blocks.end.max()) for each in schedules if each.blocks.end.size]
    if not ends:
        return Figure(key="gantt", title=title, absent="No job is predicted to hold a GPU.")
    window = (0.0, _until(schedules, max(ends), deadline))
    panels = []
    for each in schedules[:MOST_TABS]:
        panel = _panel(each, cluster, window)
        if panel.job.size <= MOST_BLOCKS:
            marks = () if deadline is None else (Reference(at=deadline, text="deadline"),)
            panels.append((each.label, replace(panel, marks=marks)))
    if not panels:
        return Figure(key="gantt", title=title, absent="There are too many blocks to draw.")
    caption = (
        f"The next {duration_text(window[1])}. One band a node, as high as its GPUs; a block "
        "is a job, as high as the GPUs it holds there; a dark line with dots joins the parts of a "
        "gang that starts on several nodes. Grey is idle. Colours tell neighbours apart and mean "
        "nothing else; which of a node's GPUs a job gets is not part of the prediction."
    )
    if any(each.chosen >= 0 for each in schedules):
        caption += (
            " The job of interest has a frame; in nine of ten cases it ends before the dashed part "
            "does."
        )
    return Figure(
        key="gantt",
        title=title,
        caption=caption,
        panels=tuple(panel for _, panel in panels),
        choice=tuple(name for name, _ in panels) if len(panels) > 1 else (),
    )


def _until(schedules: Sequence[PredictedSchedule], last: float, deadline: float | None) -> float:
    """The end of the time axis: all of it, or a little more than the job of interest needs."""
    latest = [each.latest for each in schedules if each.latest is not None]
    if not latest:
        return last * 1.01
    return min(max(*latest, deadline or 0.0) * ROOM, max(last, *latest) * ROOM)


def _panel(
    schedule: PredictedSchedule, cluster: ClusterShape, window: tuple[float, float]
) -> Gantt:
    run = _as_result(schedule, cluster)
    inside = within(stretches(schedule.blocks), run, window)
    panel = gantt_panel(
        Group(label=schedule.label, series=0, load=None, runs=(run,)),
        inside,
        window,
        clock="time from now",
        told=lambda _, job: schedule.jobs[job].detail,
    )
    drawn = np.unique(inside.job).tolist()  # the panel numbers its jobs in this order
    chosen = drawn.index(schedule.chosen) if schedule.chosen in drawn else -1
    return replace(panel, chosen=chosen, tail=schedule.latest if chosen >= 0 else None)


def _as_result(schedule: PredictedSchedule, cluster: ClusterShape) -> ReplayResult:
    """What the Gantt chart of a report reads of a run: names, nodes and stretches."""
    count = len(schedule.jobs)
    unknown, none = np.full(count, np.nan), np.zeros(count, np.int64)
    texts = np.full(count, "", np.object_)
    names = np.array([job.name for job in schedule.jobs], np.object_)
    jobs = JobOutcomes(
        job_id=names,
        user=texts,
        vc=texts,
        num_gpus=none,
        submit_time=unknown,
        first_start_time=unknown,
        finish_time=unknown,
        gpu_seconds=unknown,
        starts=none,
        preemptions=none,
        migrations=none,
        resizes=none,
        lost_seconds=unknown,
        status=texts,
        reason=texts,
        duration=unknown,
        counted=np.ones(count, np.bool_),
    )
    empty = np.zeros(0, np.int64)
    line = Timeline(
        time=np.zeros(0),
        allocated_gpus=empty,
        total_gpus=empty,
        running_jobs=empty,
        waiting_jobs=empty,
        waiting_gpus=empty,
    )
    return ReplayResult(
        label=schedule.label,
        policy=schedule.label,
        trace="",
        load=None,
        seed=0,
        jobs=jobs,
        timeline=line,
        segments=schedule.blocks,
        cluster=cluster,
        summary={},
    )
