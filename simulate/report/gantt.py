"""Gantt charts: blocks of GPUs × time per node, for a window that is short enough to read."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dlsched.core.errors import plural
from simulate.report.drawing.charts import Figure, Gantt, Link, NodeRow
from simulate.report.drawing.scale import tick_duration, time_axis
from simulate.report.drawing.steps import last_time
from simulate.report.interruptions import SAME_MOMENT_S, Stretches, stretches
from simulate.report.study import Group
from simulate.report.wording import clean, duration_text
from simulate.results.tables import Ints, ReplayResult

JOB_COLOURS = 14
MOST_NODES = 48
# More blocks than this cannot be told apart on a page.
LEGIBLE_BLOCKS = 500
MOST_BLOCKS = 6000

WINDOWS_S = (
    *(60.0, 300.0, 900.0, 1800.0),
    *(3600.0 * h for h in (1, 2, 3, 6, 12)),
    *(86400.0 * d for d in (1, 2, 4, 7, 14, 30, 60, 120, 365)),
)


def gantt_figure(
    groups: Sequence[Group], *, window: tuple[float, float] | None, most: int
) -> Figure:
    """One chart a group (its lowest seed), all over one window; at most `most` groups."""
    title = "Placements over time"
    recorded = [g for g in groups if g.first.segments is not None]
    if not recorded:
        return Figure(
            key="gantt",
            title=title,
            absent="Placements were not recorded in these runs, so there is nothing to draw.",
        )
    joined = {g.label: stretches(g.first.segments) for g in recorded if g.first.segments}
    if not any(s.job.shape[0] for s in joined.values()):
        return Figure(key="gantt", title=title, absent="No job held a GPU in any run.")
    start, end = window or choose_window([g.first for g in recorded], list(joined.values()))
    panels = []
    names = []
    too_many = []
    for group in recorded[:most]:
        inside = within(joined[group.label], group.first, (start, end))
        if inside.job.shape[0] > MOST_BLOCKS:
            too_many.append(f"{group.label} ({inside.job.shape[0]:,})")
            continue
        panels.append(gantt_panel(group, inside, (start, end)))
        names.append(group.label)
    if panels and not any(panel.job.size for panel in panels):
        return Figure(key="gantt", title=title, absent="No job held a GPU in the chosen window.")
    if not panels:
        return Figure(
            key="gantt",
            title=title,
            absent=f"The window holds too many blocks to draw: {', '.join(too_many)}. "
            "Choose a shorter one.",
        )
    caption = (
        f"{tick_duration(end - start)} from {duration_text(start)} after the trace's start"
        f"{'' if window else ', around the longest queue'}. One band a node, as high as its GPUs; "
        "a block is a job, as high as the GPUs it holds there; a dark line with dots joins the "
        "parts of a gang that starts on several nodes. Grey is idle. Colours tell neighbours apart "
        "and mean nothing else; which of a node's GPUs a job held is not recorded."
    )
    if any(len(g.runs) > 1 for g in recorded):
        caption += " One seed is shown: the lowest."
    if too_many:
        caption += f" Not drawn, too many blocks: {', '.join(too_many)}."
    left_out = [g.label for g in recorded[most:]]
    if left_out:
        caption += f" Not drawn, to keep the page small: {', '.join(left_out)}."
    return Figure(
        key="gantt",
        title=title,
        caption=caption,
        panels=tuple(panels),
        choice=tuple(names) if len(names) > 1 else (),
    )


def choose_window(runs: Sequence[ReplayResult], joined: Sequence[Stretches]) -> tuple[float, float]:
    """A window around the longest queue of the first run, as long as its blocks stay legible."""
    whole = max(last_time(run.timeline) for run in runs)
    whole = max([whole, *(float(s.end.max()) for s in joined if s.end.size)])
    if whole <= 0:
        return 0.0, 1.0
    line = runs[0].timeline
    peak = float(line.time[int(np.argmax(line.waiting_gpus))]) if line.time.size else 0.0
    best: tuple[float, float] | None = None
    for length in (*(w for w in WINDOWS_S if w < whole), whole):
        start = min(max(peak - length / 2, 0.0), whole - length)
        # A round start makes the ticks round too.
        start = math.floor(start / (length / 12)) * (length / 12)
        window = (start, start + length)
        counts = [within(s, run, window).job.shape[0] for run, s in zip(runs, joined, strict=True)]
        # The shortest is taken however full it is.
        full = np.median(counts) > LEGIBLE_BLOCKS or max(counts) > 4 * LEGIBLE_BLOCKS
        if best is not None and full:
            break
        best = window
    return best or (0.0, whole)


def shown_nodes(run: ReplayResult) -> Ints:
    """The nodes that get a band: all, or the first so many."""
    return np.arange(min(run.cluster.node_gpus.shape[0], MOST_NODES), dtype=np.int64)


def within(joined: Stretches, run: ReplayResult, window: tuple[float, float]) -> Stretches:
    """The stretches on shown nodes that overlap the window, cut to it."""
    start, end = window
    keep = (joined.end > start) & (joined.start < end) & (joined.gpus > 0)
    keep &= joined.node < shown_nodes(run).shape[0]
    return Stretches(
        joined.job[keep],
        joined.node[keep],
        joined.gpus[keep],
        np.maximum(joined.start[keep], start),
        np.minimum(joined.end[keep], end),
    )


class Blocks(NamedTuple):
    """Rectangles of one node: stretch, first lane, lanes."""

    row: list[int]
    lane: list[int]
    lanes: list[int]


def gantt_panel(
    group: Group,
    inside: Stretches,
    window: tuple[float, float],
    *,
    clock: str = "time since the trace's start",
    told: Callable[[ReplayResult, int], str] | None = None,
) -> Gantt:
    """Lay the stretches of a window into lanes, node by node.

    Args:
        group: whose first run it is.
        inside: the stretches, cut to the window.
        window: in seconds.
        clock: what the time axis is called.
        told: what a tooltip says of a job besides its name; None: `detail`.
    """
    told = told or detail
    run = group.first
    order = np.lexsort((inside.job, inside.start))
    rows: list[NodeRow] = []
    row_of: list[int] = []
    lane_of: list[int] = []
    lanes_of: list[int] = []
    middle: dict[int, float] = {}  # stretch -> lane at the middle of its first block
    top = 0
    nodes = shown_nodes(run)
    by_node: dict[int, list[int]] = {int(n): [] for n in nodes}
    for row in order.tolist():
        by_node[int(inside.node[row])].append(row)
    for node in nodes.tolist():
        gpus = int(run.cluster.node_gpus[node])
        blocks, lanes = lay(inside, by_node[node], gpus)
        for row, lane, height in zip(*blocks, strict=True):
            row_of.append(row)
            lane_of.append(top + lane)
            lanes_of.append(height)
            middle.setdefault(row, top + lane + height / 2)
        rows.append(NodeRow(clean(run.cluster.node_name[node]), gpus, top, lanes))
        top += lanes
    jobs, job_of = (
        np.unique(inside.job[row_of], return_inverse=True)
        if row_of
        else (
            np.empty(0, dtype=np.int64),
            np.empty(0, dtype=np.int64),
        )
    )
    colours = colour_jobs(inside, order, jobs)
    starting = {row: at for row, at in middle.items() if inside.start[row] > window[0]}
    table = run.jobs
    total = run.cluster.node_gpus.shape[0]
    note = "" if len(rows) == total else f"{len(rows)} of {plural(total, 'node')}"
    if any(r.lanes > r.gpus for r in rows):
        note += ("; " if note else "") + "some GPUs are shared: their bands are higher"
    return Gantt(
        title=group.label,
        x=time_axis(clock, *window),
        nodes=tuple(rows),
        job=job_of.astype(np.int64),
        lane=np.array(lane_of, dtype=np.int64),
        lanes=np.array(lanes_of, dtype=np.int64),
        start=inside.start[row_of],
        end=inside.end[row_of],
        job_name=tuple(clean(table.job_id[j]) for j in jobs.tolist()),
        job_detail=tuple(told(run, j) for j in jobs.tolist()),
        job_colour=colours,
        links=tuple(gang_links(inside, starting, jobs)),
        note=note,
    )


def detail(run: ReplayResult, job: int) -> str:
    """What a tooltip says of a job besides its name."""
    table = run.jobs
    parts = [plural(int(table.num_gpus[job]), "GPU")]
    if table.vc[job]:
        parts.append(f"VC {clean(table.vc[job])}")
    if table.user[job]:
        parts.append(f"user {clean(table.user[job])}")
    parts.append(f"waited {duration_text(float(table.queueing_delay[job]))}")
    parts.append(f"JCT {duration_text(float(table.jct[job]))}")
    if table.preemptions[job]:
        parts.append(f"preempted {int(table.preemptions[job])}×")
    return " · ".join(parts)


def lay(inside: Stretches, rows: list[int], gpus: int) -> tuple[Blocks, int]:
    """Give each stretch of one node free lanes, next to each other where possible.

    A loop over stretches: each choice depends on those before it. The node gets more lanes than
    GPUs only where jobs share GPUs.
    """
    free = set(range(gpus))
    lanes = gpus
    held: list[tuple[float, int, tuple[int, ...]]] = []
    last: dict[int, tuple[int, ...]] = {}
    blocks = Blocks([], [], [])
    for row in rows:
        now = float(inside.start[row])
        while held and held[0][0] <= now + SAME_MOMENT_S:
            free.update(heapq.heappop(held)[2])
        want = int(inside.gpus[row])
        while len(free) < want:
            free.add(lanes)
            lanes += 1
        job = int(inside.job[row])
        taken = pick(free, want, last.get(job))
        last[job] = taken
        free.difference_update(taken)
        heapq.heappush(held, (float(inside.end[row]), row, taken))
        for lane, height in runs_of(taken):
            blocks.row.append(row)
            blocks.lane.append(lane)
            blocks.lanes.append(height)
    return blocks, lanes


def pick(free: set[int], want: int, before: tuple[int, ...] | None) -> tuple[int, ...]:
    """The lanes a job had, else the tightest gap that holds it, else the lowest free lanes."""
    if before is not None and len(before) == want and free.issuperset(before):
        return before
    gaps = [gap for gap in runs_of(tuple(sorted(free))) if gap[1] >= want]
    if gaps:
        lane, _ = min(gaps, key=lambda gap: (gap[1], gap[0]))
        return tuple(range(lane, lane + want))
    return tuple(sorted(free)[:want])


def runs_of(lanes: tuple[int, ...]) -> list[tuple[int, int]]:
    """Ascending lanes as (first, how many) runs."""
    found: list[tuple[int, int]] = []
    for lane in lanes:
        if found and found[-1][0] + found[-1][1] == lane:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((lane, 1))
    return found


def colour_jobs(inside: Stretches, order: Ints, jobs: Ints) -> tuple[int, ...]:
    """A colour a job, unlike what recently ran on its nodes; of the rest the least seen one."""
    area = inside.gpus * (inside.end - inside.start)
    rows_of: dict[int, list[int]] = {}
    for row in order.tolist():
        rows_of.setdefault(int(inside.job[row]), []).append(row)
    seen = [0.0] * JOB_COLOURS
    recent: dict[int, list[int]] = {}
    colour: dict[int, int] = {}
    for row in order.tolist():
        job = int(inside.job[row])
        if job in colour:
            continue
        nodes = sorted({int(inside.node[r]) for r in rows_of[job]})
        here = {c for n in nodes for c in recent.get(n, [])[-8:]}
        beside = {c for n in nodes for m in (n - 1, n + 1) for c in recent.get(m, [])[-3:]}
        chosen = min(range(JOB_COLOURS), key=lambda c: (c in here, c in beside, seen[c], c))
        colour[job] = chosen
        seen[chosen] += float(area[rows_of[job]].sum())
        for node in nodes:
            recent.setdefault(node, []).append(chosen)
    return tuple(colour[j] for j in jobs.tolist())


def gang_links(inside: Stretches, middle: dict[int, float], jobs: Ints) -> list[Link]:
    """Where a job takes several nodes at one moment; `middle` has the stretches that start then."""
    together: dict[tuple[int, float], list[float]] = {}
    for row, lane in middle.items():
        key = (int(inside.job[row]), float(inside.start[row]))
        together.setdefault(key, []).append(lane)
    index = {int(j): i for i, j in enumerate(jobs.tolist())}
    return [
        Link(index[job], time, tuple(sorted(lanes)))
        for (job, time), lanes in sorted(together.items())
        if len(lanes) > 1
    ]
