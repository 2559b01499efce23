"""Gantt charts: nothing overlaps, areas are GPU-time, gangs are linked."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulate.report.drawing.palette import JOBS
from simulate.report.gantt import JOB_COLOURS, choose_window, gantt_figure
from simulate.report.interruptions import interruption_times, preemption_figure, stretches
from simulate.report.study import Study
from simulate.results.tables import ReplayResult, Segments

WHOLE = (0.0, 1e9)


def with_segments(run: ReplayResult, rows: list[tuple[int, int, int, float, float]]):
    job, node, gpus, start, end = zip(*rows, strict=True)
    kept = Segments(
        job=np.array(job),
        node=np.array(node),
        gpus=np.array(gpus),
        start=np.array(start, dtype=np.float64),
        end=np.array(end, dtype=np.float64),
    )
    return dataclasses.replace(run, segments=kept)


def chart(run: ReplayResult, window: tuple[float, float] | None = WHOLE):
    return gantt_figure(Study.of([run]).groups, window=window, most=4).panels[0]


@given(st.integers(0, 50), st.integers(2, 60))
def test_blocks_of_exclusive_gpus_never_overlap(make, seed: int, jobs: int) -> None:
    drawn = chart(make(n=jobs, seed=seed))
    assert drawn.total_lanes == 16
    for lane in range(drawn.total_lanes):
        here = (drawn.lane <= lane) & (lane < drawn.lane + drawn.lanes)
        order = np.argsort(drawn.start[here])
        starts, ends = drawn.start[here][order], drawn.end[here][order]
        assert (starts[1:] >= ends[:-1] - 1e-6).all()


def test_area_is_gpu_time(make) -> None:
    run = make(n=40)
    drawn = chart(run)
    kept = run.segments
    held = float((kept.gpus * (kept.end - kept.start)).sum())
    assert float((drawn.lanes * (drawn.end - drawn.start)).sum()) == pytest.approx(held)


def test_a_block_stays_within_its_node(make) -> None:
    drawn = chart(make(n=40))
    tops = np.array([n.top for n in drawn.nodes])
    node = np.searchsorted(tops, drawn.lane, side="right") - 1
    assert (drawn.lane + drawn.lanes <= tops[node] + 4).all()


def test_a_gang_over_nodes_is_linked_where_it_starts(make) -> None:
    run = with_segments(make(n=3), [(0, 0, 4, 10.0, 20.0), (0, 2, 4, 10.0, 20.0)])
    drawn = chart(run)
    assert [(link.time, link.lanes) for link in drawn.links] == [(10.0, (2.0, 10.0))]


def test_a_window_cuts_blocks_and_drops_links_from_before(make) -> None:
    run = with_segments(make(n=3), [(0, 0, 4, 10.0, 20.0), (0, 2, 4, 10.0, 20.0)])
    drawn = chart(run, (15.0, 30.0))
    assert drawn.start.tolist() == [15.0, 15.0]
    assert drawn.links == ()


def test_a_job_that_comes_back_gets_its_lanes_again(make) -> None:
    rows = [(0, 0, 2, 0.0, 10.0), (1, 0, 2, 0.0, 5.0), (1, 0, 2, 15.0, 20.0)]
    drawn = chart(with_segments(make(n=3), rows))
    mine = drawn.lane[np.array(drawn.job_name)[drawn.job] == "job-1"]
    assert mine.tolist() == [2, 2]


def test_shared_gpus_make_a_higher_band(make) -> None:
    rows = [(job, 0, 4, 0.0, 10.0) for job in range(2)]
    drawn = chart(with_segments(make(n=3), rows))
    assert drawn.nodes[0].lanes == 8
    assert "shared" in drawn.note


def test_neighbours_have_different_colours(make) -> None:
    drawn = chart(make(n=12))
    colour = np.array(drawn.job_colour)[drawn.job]
    for node in drawn.nodes:
        here = (drawn.lane >= node.top) & (drawn.lane < node.top + node.lanes)
        jobs = dict(zip(drawn.job[here].tolist(), colour[here].tolist(), strict=True))
        if len(jobs) <= 6:
            assert len(set(jobs.values())) == len(jobs)
    assert len(JOBS) == JOB_COLOURS


def test_chosen_window_lies_in_the_run_and_stays_legible(make_large) -> None:
    run = make_large(20_000)
    joined = stretches(run.segments)
    start, end = choose_window([run], [joined])
    inside = (joined.end > start) & (joined.start < end)
    assert 0 <= start < end <= joined.end.max()
    assert 0 < inside.sum() <= 700


def test_a_window_with_too_much_in_it_says_so(make_large) -> None:
    figure = gantt_figure(Study.of([make_large(20_000)]).groups, window=WHOLE, most=4)
    assert "too many blocks" in figure.absent


def test_an_idle_window_says_so(make) -> None:
    figure = gantt_figure(Study.of([make()]).groups, window=(1e8, 2e8), most=4)
    assert "No job held a GPU" in figure.absent


def test_back_to_back_rows_are_one_stretch(make) -> None:
    run = with_segments(make(n=2), [(0, 0, 2, 5.0, 9.0), (0, 0, 2, 0.0, 5.0), (0, 0, 1, 9.0, 12.0)])
    joined = stretches(run.segments)
    assert joined.start.tolist() == [0.0, 9.0]
    assert joined.end.tolist() == [9.0, 12.0]


def test_interruptions_are_ends_before_the_finish_one_a_gang(make) -> None:
    run = make(n=40, shortest_first=True)
    times = interruption_times(run, stretches(run.segments))
    assert times.size == run.jobs.preemptions.sum()
    assert (np.diff(times) >= 0).all()


def test_gpus_held_past_the_finish_are_no_interruption(make) -> None:
    run = make(n=3)
    finish = float(run.jobs.finish_time[0])
    run = with_segments(run, [(0, 0, 1, 0.0, finish + 5.0)])
    assert interruption_times(run, stretches(run.segments)).size == 0


def test_no_preemption_at_all_is_said_instead_of_drawn(make) -> None:
    figure = preemption_figure(Study.of([make("fifo")]).groups)
    assert figure.absent == "No job was preempted in any run."
