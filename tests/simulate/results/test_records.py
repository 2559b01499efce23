"""What a replay writes down: the time line, placements, the figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dlsched.core.allocation import Allocation
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.errors import InvariantBroken
from dlsched.core.units import Status
from simulate.checking import (
    check_conserved_work,
    check_counts,
    check_records,
    check_where,
)
from simulate.results.recorder import Recorder


def test_the_time_line_has_a_step_for_each_change(lab: Any) -> None:
    line = lab.run([(0, 2, 10), (0, 4, 5), (20, 1, 5)]).timeline
    assert line.time.tolist() == [0, 10, 15, 20, 25]
    assert line.allocated_gpus.tolist() == [2, 4, 0, 1, 0]
    assert line.running_jobs.tolist() == [1, 1, 0, 1, 0]
    assert line.waiting_jobs.tolist() == [1, 0, 0, 0, 0]
    assert line.waiting_gpus.tolist() == [4, 0, 0, 0, 0]
    assert set(line.total_gpus.tolist()) == {4}


def test_a_later_sample_of_a_moment_replaces_the_earlier() -> None:
    recorder = Recorder()
    recorder.sample(1.0, (1, 4, 1, 0, 0))
    recorder.sample(1.0, (2, 4, 1, 0, 0))
    recorder.sample(2.0, (2, 4, 1, 0, 0))
    assert recorder.timeline().time.tolist() == [1.0]
    assert recorder.timeline().allocated_gpus.tolist() == [2]


def test_a_gang_over_two_nodes_has_a_stretch_on_each(lab: Any) -> None:
    segments = lab.run([(0, 3, 10)], cluster="2x2").segments
    assert segments.node.tolist() == [0, 1]
    assert segments.gpus.tolist() == [2, 1]
    assert (segments.start.tolist(), segments.end.tolist()) == ([0, 0], [10, 10])


def test_stretches_still_open_are_cut_off_at_the_end(lab: Any) -> None:
    segments = lab.run([(0, 1, 100)], horizon=30.0).segments
    assert segments.end.tolist() == [30]


def test_a_stretch_of_no_length_is_not_written() -> None:
    recorder = Recorder()
    recorder.began(0, Placement((0,), (1,)), 5.0)
    recorder.ended(0, 5.0)
    recorder.ended(0, 6.0)
    segments = recorder.segments(9.0)
    assert segments is not None
    assert len(segments.job) == 0


def test_nothing_is_recorded_unless_asked_for(lab: Any) -> None:
    result = lab.run([(0, 1, 10)], record=False)
    assert result.segments is None
    assert len(result.timeline.time) == 0


def test_an_empty_recorder_gives_empty_columns() -> None:
    assert len(Recorder().timeline().allocated_gpus) == 0


def test_the_figures_of_a_run(lab: Any) -> None:
    summary = lab.run([(10, 4, 10), (10, 4, 30), (10, 9, 1)]).summary
    assert (summary["jobs"], summary["completed"], summary["refused"]) == (3, 2, 1)
    assert (summary["avg_jct"], summary["median_jct"]) == (25, 25)
    assert summary["p99_jct"] == pytest.approx(np.percentile([10, 40], 99))
    assert (summary["makespan"], summary["avg_queueing_delay"]) == (40, 5)
    assert summary["gpu_utilization"] == 1.0


def test_what_cannot_be_known_is_none(lab: Any) -> None:
    summary = lab.run([(0, 9, 1)]).summary
    for key in ("avg_jct", "median_jct", "makespan", "avg_queueing_delay", "gpu_utilization"):
        assert summary[key] is None, key


# -- the checks themselves notice -----------------------------------------------------------------


def test_the_checks_notice_a_unit_outside_its_pool(lab: Any) -> None:
    engine = lab.engine([(0, 1, 10)], cluster="2x4", horizon=5.0, clock="events")
    engine.run()
    engine.pools.nodes[0] = 0b10
    with pytest.raises(InvariantBroken, match="outside its pool"):
        check_where(engine, Allocation())
    engine.pools.nodes[0] = 0b11
    engine.world.occupancy.set_draining(0, draining=True)
    with pytest.raises(InvariantBroken, match="drains"):
        check_where(engine, Allocation(launched=dict(engine.world.occupancy.held)))


@pytest.mark.parametrize("total", ["running", "waiting_gpus"])
def test_the_checks_notice_a_wrong_total(lab: Any, total: str) -> None:
    engine = lab.engine([(0, 1, 10)], horizon=5.0, clock="events")
    engine.run()
    check_counts(engine)
    setattr(engine.world, total, getattr(engine.world, total) + 1)
    with pytest.raises(InvariantBroken, match="counted"):
        check_counts(engine)


def test_the_checks_notice_a_unit_that_is_said_to_wait_and_runs(lab: Any) -> None:
    engine = lab.engine([(0, 1, 10)], horizon=5.0, clock="events")
    engine.run()
    engine.world.waiting[0] = 1
    with pytest.raises(InvariantBroken, match="counted"):
        check_counts(engine)


def test_the_checks_notice_lost_work(lab: Any) -> None:
    engine = lab.engine([(0, 1, 10)], clock="events")
    engine.run()
    check_conserved_work(engine)
    engine.world.table.held_s[0] += 1
    with pytest.raises(InvariantBroken, match="held GPUs for 11"):
        check_conserved_work(engine)


def test_the_checks_notice_a_job_that_ended_too_early(lab: Any) -> None:
    engine = lab.engine([(0, 1, 10)], clock="events")
    engine.run()
    engine.world.table.executed[0] = 9
    with pytest.raises(InvariantBroken, match="without doing all its work"):
        check_counts(engine)


def test_the_checks_notice_records_that_do_not_add_up(lab: Any) -> None:
    result = lab.run([(0, 1, 10)])
    check_records(result)
    result.segments.end[0] = 11
    with pytest.raises(InvariantBroken, match="recorded for 11"):
        check_records(result)
    result.segments.end[0] = 10
    result.timeline.allocated_gpus[0] = 2
    with pytest.raises(InvariantBroken, match="time line"):
        check_records(result)


def test_a_unit_that_has_ended_is_running_no_more(lab: Any) -> None:
    engine = lab.engine([(0, 1, 10)], clock="events")
    engine.run()
    assert engine.world.table.status.tolist() == [Status.COMPLETED]
    assert engine.world.occupancy.held == {}
