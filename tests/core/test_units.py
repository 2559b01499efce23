"""Units as columns: what is stored, what has run since, and what is unknown."""

from __future__ import annotations

import numpy as np
import pytest

from dlsched.core.units import Status, Units, UnitTable


def table() -> UnitTable:
    """Row 0 waits after 30 s of run, 1 runs on 2 GPUs since 40 (ready at 50), 2 is new."""
    units = UnitTable(3)
    units.submit_time[:] = [0, 10, 90]
    units.gang[:] = [1, 2, 4]
    units.status[:] = [Status.WAITING, Status.RUNNING, Status.WAITING]
    units.since[:] = [60, 40, 90]
    units.held_s[:] = [30, 5, 0]
    units.attained[:] = [30, 10, 0]
    units.executed[:] = [25, 5, 0]
    units.predicted_work[:] = [100, 40, np.nan]
    units.progress_from[1] = 50
    units.gpus_now[1] = 2
    units.starts[:] = [1, 2, 0]
    return units


def at(now: float) -> Units:
    return Units(table(), np.arange(3), now)


def test_clocks_of_running_rows_go_on() -> None:
    units = at(100)
    assert units.held_s.tolist() == [30, 65, 0]
    assert units.attained.tolist() == [30, 130, 0]
    assert units.executed.tolist() == [25, 55, 0]


def test_a_row_that_restarts_has_done_nothing_yet() -> None:
    assert at(45).executed.tolist() == [25, 5, 0]
    assert at(45).held_s.tolist() == [30, 10, 0]


def test_work_goes_at_the_rows_own_rate() -> None:
    units = at(100)
    units.table.rate[1] = 0.5
    assert units.executed.tolist() == [25, 30, 0]


def test_remaining_work_is_never_negative_and_unknown_stays_unknown() -> None:
    remaining = at(100).remaining_work
    assert remaining[:2].tolist() == [75, 0]
    assert np.isnan(remaining[2])


def test_waiting_counts_since_the_last_stop_or_the_admission() -> None:
    assert at(100).waited_s.tolist() == [40, 0, 10]


def test_a_selection_keeps_its_order() -> None:
    units = at(100)
    assert units[[2, 0]].rows.tolist() == [2, 0]
    assert units[units.running].rows.tolist() == [1]
    assert units[::-1].gang.tolist() == [4, 2, 1]


def test_unknown_is_never_a_made_up_default() -> None:
    fresh = UnitTable(1)
    for column in (
        "submit_time",
        "predicted_work",
        "deadline",
        "time_limit",
        "first_start",
        "cpus",
    ):
        assert np.isnan(getattr(fresh, column)[0]), column
    for column in ("min_gpus", "max_gpus", "user", "vc", "group"):
        assert getattr(fresh, column)[0] == -1, column


@pytest.mark.parametrize(
    ("column", "known"),
    [("deadline", [False, True]), ("user", [True, False]), ("gang", [True, True]),
     ("model", [True, False]), ("no-such", [False, False])],
)  # fmt: skip
def test_it_is_known_which_rows_have_a_column(column: str, known: list[bool]) -> None:
    units = UnitTable(2)
    units.deadline[1] = 5
    units.user[0] = 0
    units.extra["model"] = np.array(["vgg16", ""], np.object_)
    assert units.has(column).tolist() == known


def test_some_rows_can_be_taken_as_a_table_of_their_own() -> None:
    units = table()
    units.extra["model"] = np.array(["a", "b", "c"], np.object_)
    units.parents = {2: (0, 1)}
    part = units.take(np.array([2, 0]))
    assert part.gang.tolist() == [4, 1]
    assert part.extra["model"].tolist() == ["c", "a"]
    assert part.parents == {0: (1,)}
    part.gang[0] = 9
    assert units.gang.tolist() == [1, 2, 4]


@pytest.mark.parametrize("status", list(Status))
def test_a_status_says_whether_it_is_the_end(status: Status) -> None:
    ended = {Status.COMPLETED, Status.REFUSED, Status.CANCELLED}
    assert status.is_terminal == (status in ended)
