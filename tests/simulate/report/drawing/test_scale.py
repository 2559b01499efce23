"""Axes and words: round durations, no crowded ticks, places that keep their order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulate.report.drawing.scale import log_duration_axis, log_number_axis, nice_axis, time_axis
from simulate.report.wording import (
    clean,
    count_text,
    duration_text,
    number_text,
    share_text,
    shorten,
    text_width,
)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0 s"),
        (42.12, "42.1 s"),
        (738.0, "12.3 min"),
        (12456.0, "3.46 h"),
        (86400.0 * 10, "10.0 d"),
        (math.nan, "–"),
    ],
)
def test_durations_read_in_a_fitting_unit(seconds: float, said: str) -> None:
    assert duration_text(seconds) == said


def test_numbers_shares_and_counts() -> None:
    assert number_text(1234.5) == "1,234"
    assert number_text(-0.5) == "−0.500"
    assert share_text(0.1234) == "12.3 %"
    assert share_text(0.00001) == "< 0.01 %"
    assert share_text(math.nan) == "–"
    assert count_text(1234567.0) == "1,234,567"
    assert count_text(2.5) == "2.50"


def test_log_axis_has_human_ticks() -> None:
    axis = log_duration_axis("", [np.array([30.0, 86400.0 * 3])], zero=False)
    assert [t.text for t in axis.ticks(440)] == ["1 min", "10 min", "1 h", "6 h", "1 d"]


def test_an_axis_with_zero_shows_it() -> None:
    axis = log_duration_axis("", [np.array([0.0, 3600.0])], zero=True)
    assert axis.ticks(440)[0] == (0.0, "0")
    assert axis.fraction([0.0, 0.5, 1.0])[1] > 0.0


@pytest.mark.parametrize(
    ("start", "end", "first", "last"),
    [
        (0.0, 90.0, "0", "1:30 min"),
        (0.0, 20 * 3600.0, "0", "20 h"),
        (36 * 3600.0, 38 * 3600.0, "36:00 h", "38:00 h"),
        (36 * 3600.0, 36 * 3600.0 + 60, "36:00:00", "36:01:00"),
        (0.0, 7 * 86400.0, "0", "7 d"),
        (86400.0 * 2, 86400.0 * 3, "2 d", "3 d"),
    ],
)
def test_clock_ticks_have_one_form(start: float, end: float, first: str, last: str) -> None:
    said = [t.text for t in time_axis("", start, end).ticks(900)]
    assert (said[0], said[-1]) == (first, last)


@given(st.floats(1e-3, 1e9), st.floats(1.001, 1e6))
def test_ticks_lie_inside_and_apart(low: float, ratio: float) -> None:
    for axis in (
        log_duration_axis("", [np.array([low, low * ratio])], zero=False),
        log_duration_axis("", [np.array([0.0, low * ratio])], zero=True),
        log_number_axis("", low, low * ratio),
        nice_axis("", "duration", low),
        nice_axis("", "number", low),
        time_axis("", low, low * ratio),
    ):
        ticks = axis.ticks(440)
        places = [t.at for t in ticks]
        assert places == sorted(places)
        assert all(0.0 <= p <= 1.0 for p in places)
        assert len({t.text for t in ticks}) == len(ticks)
        gaps = np.diff(places) * 440
        assert (gaps > 20).all()


@given(st.lists(st.floats(0, 1e8), min_size=2, max_size=30))
def test_places_keep_the_order_of_values(values: list[float]) -> None:
    column = np.sort(np.array(values))
    for zero in (True, False):
        places = log_duration_axis("", [column], zero=zero).fraction(column)
        assert (np.diff(places) >= 0).all()


def test_long_names_keep_both_ends() -> None:
    cut = shorten("consolidated-on-one-node-only", 100)
    assert text_width(cut) <= 100
    assert cut.startswith("cons")
    assert cut.endswith("only")


def test_text_that_xml_cannot_carry_is_replaced() -> None:
    assert clean("a\x00b\ud800c\U0001f600") == "a\ufffdb\ufffdc\U0001f600"
