"""Promised GPUs as a step function, held against a table with one cell a second."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.calendar import Booking, Calendar

HORIZON = 60  # seconds of the table
GPUS = 8

bookings = st.lists(
    st.builds(
        lambda row, gpus, start, length: Booking(
            row=row, gpus=gpus, start=start, end=start + length
        ),
        st.integers(-1, 4),
        st.integers(1, 4),
        st.integers(0, 40),
        st.integers(0, 15),
    ),
    max_size=8,
)


def table_of(entered: list[Booking]) -> list[int]:
    return [
        GPUS - sum(b.gpus for b in entered if b.start <= second < b.end)
        for second in range(HORIZON)
    ]


def calendar_of(entered: list[Booking]) -> Calendar:
    calendar = Calendar(GPUS)
    for booking in entered:
        calendar.book(booking)
    return calendar


@given(bookings)
def test_what_is_free_is_what_is_not_booked(entered: list[Booking]) -> None:
    calendar = calendar_of(entered)
    assert [calendar.free_at(second) for second in range(HORIZON)] == table_of(entered)


@given(bookings, st.integers(1, GPUS), st.integers(1, 20), st.integers(0, 50))
def test_the_earliest_start_is_the_first_that_fits(
    entered: list[Booking], gpus: int, length: int, not_before: int
) -> None:
    table = table_of(entered) + [GPUS] * 40
    expected = next(
        start
        for start in range(not_before, HORIZON + 1)
        if all(table[second] >= gpus for second in range(start, start + length))
    )
    assert calendar_of(entered).earliest_start(gpus, length, not_before=not_before) == expected


@given(bookings, st.integers(0, 50), st.integers(1, 9))
def test_the_lowest_of_a_stretch_is_its_least_free_second(
    entered: list[Booking], start: int, length: int
) -> None:
    expected = min(table_of(entered)[start : start + length])
    assert calendar_of(entered).lowest(start, start + length) == expected


@given(bookings, st.integers(-1, 4), st.integers(0, 45))
def test_cancelling_takes_back_what_starts_later(
    entered: list[Booking], row: int, after: int
) -> None:
    calendar = calendar_of(entered)
    calendar.cancel(row, after=after)
    kept = [b for b in entered if b.row != row or b.start < after or row == -1]
    assert [calendar.free_at(second) for second in range(HORIZON)] == table_of(kept)


@given(bookings, st.integers(0, 50))
def test_forgetting_the_past_changes_no_answer_about_the_future(
    entered: list[Booking], now: int
) -> None:
    calendar, whole = calendar_of(entered), calendar_of(entered)
    calendar.forget_before(now)
    assert [calendar.free_at(t) for t in range(now, HORIZON)] == [
        whole.free_at(t) for t in range(now, HORIZON)
    ]
    for gpus in (1, GPUS):
        assert calendar.earliest_start(gpus, 5, not_before=now) == whole.earliest_start(
            gpus, 5, not_before=now
        )


@given(bookings)
def test_steps_make_an_equal_calendar(entered: list[Booking]) -> None:
    calendar = calendar_of(entered)
    again = Calendar.of_steps(GPUS, calendar.steps())
    assert again.steps() == calendar.steps()
    assert again.earliest_start(5, 7, not_before=3) == calendar.earliest_start(5, 7, not_before=3)


def test_more_gpus_than_there_are_never_start() -> None:
    assert Calendar(4).earliest_start(5, 1, not_before=0) == math.inf


def test_a_booking_without_end_closes_the_future() -> None:
    calendar = Calendar(4)
    calendar.book(Booking(row=0, gpus=3, start=10, end=math.inf))
    assert calendar.earliest_start(2, 10, not_before=0) == 0
    assert calendar.earliest_start(2, 11, not_before=0) == math.inf
    assert calendar.earliest_start(1, 1e9, not_before=0) == 0


def test_a_row_may_have_several_bookings() -> None:
    calendar = Calendar(8)
    for lease in (20, 60):
        calendar.book(Booking(row=3, gpus=8, start=lease, end=lease + 20))
    assert [b.start for b in calendar.bookings[3]] == [20, 60]
    assert [calendar.free_at(t) for t in (0, 20, 40, 60, 80)] == [8, 0, 8, 0, 8]


@pytest.mark.parametrize(("start", "end"), [(5, 5), (6, 5)])
def test_a_booking_of_no_length_books_nothing(start: float, end: float) -> None:
    calendar = Calendar(4)
    calendar.book(Booking(row=0, gpus=4, start=start, end=end))
    assert calendar.steps() == [[0.0, 4]]
