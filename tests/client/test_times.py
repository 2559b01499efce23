"""Durations in both grammars, and points in time."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.client.submission.durations import (
    LONGEST_S,
    duration,
    duration_text,
    time_limit,
)
from dlsched.client.submission.moments import moment
from dlsched.core.errors import BadInput

M, H, D = 60, 3600, 86400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90 * M),
        ("5:30", 5 * M + 30),
        ("90:00", 90 * M),
        ("1:30:00", 90 * M),
        ("36:00:00", 36 * H),
        ("2-12", 2 * D + 12 * H),
        ("2-12:30", 2 * D + 12 * H + 30 * M),
        ("2-12:30:15", 2 * D + 12 * H + 30 * M + 15),
        ("1h30m", 90 * M),
        ("1d", D),
        ("1w2d3h4m5s", 9 * D + 3 * H + 4 * M + 5),
        ("1.5h", 90 * M),
        ("0.5", 30),
        (" 10M ", 10 * M),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration("-t", text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        *("", "-", "x", "1:60", "1:2:60", "1:60:00", "1-24", "1-2:60", "-5", "1-", "1:2:3:4"),
        *("1m1h", "1h1h", "1x", "h", "1 h", "1e3", "nan", "inf", "+5", "٣", "1--2", ":30", "5:"),
    ],
)
def test_texts_that_are_no_durations_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^-t: .* is not a duration"):
        duration("-t", text)


@pytest.mark.parametrize("text", ["99999999999", "99999-0", "999999999999h", "9" * 12 + ":00"])
def test_too_long(text: str) -> None:
    with pytest.raises(BadInput, match="too long"):
        duration("-t", text)


def test_no_limit_and_bare_numbers() -> None:
    assert time_limit("-t", "UNLIMITED") is None
    assert time_limit("-t", "0") is None
    assert time_limit("-t", "1") == 60
    assert duration("--grace", "120", bare="seconds") == 120


@given(st.integers(0, int(LONGEST_S)))
def test_a_printed_duration_can_be_read(seconds: int) -> None:
    assert duration("-t", duration_text(seconds)) == seconds


@given(st.text(max_size=20))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    said = "-t: read"
    try:
        assert 0 <= duration("-t", text) <= LONGEST_S
    except BadInput as error:
        said = str(error)
    assert said.startswith("-t: ")


NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-11-21T12:00+01:00"),
        ("now+1hour", "2026-11-21T13:00+01:00"),
        ("now + 2 days", "2026-11-23T12:00+01:00"),
        ("now+90", "2026-11-21T12:01:30+01:00"),
        ("now+1h30m", "2026-11-21T13:30+01:00"),
        ("16:00", "2026-11-21T16:00+01:00"),
        ("11:59:30", "2026-11-22T11:59:30+01:00"),
        ("tomorrow", "2026-11-22T00:00+01:00"),
        ("midnight", "2026-11-22T00:00+01:00"),
        ("noon", "2026-11-22T12:00+01:00"),
        ("2026-11-22", "2026-11-22T00:00+01:00"),
        ("2026-11-22T06:25", "2026-11-22T06:25+01:00"),
        ("2026-11-22 06:25:40Z", "2026-11-22T06:25:40+00:00"),
        ("2026-11-22T06:25+02:00", "2026-11-22T06:25+02:00"),
    ],
)
def test_points_in_time(text: str, expected: str) -> None:
    found = datetime.fromtimestamp(moment("--begin", text, now=NOW), UTC)
    assert found == datetime.fromisoformat(expected)


@pytest.mark.parametrize(
    "text",
    ["", "soon", "25:00", "12:60", "now-1h", "now+", "2026-13-01", "2026-02-30", "nowx", "12"],
)
def test_texts_that_are_no_times_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^--begin: "):
        moment("--begin", text, now=NOW)


@given(st.text(max_size=20))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    with suppress(BadInput):
        assert moment("--begin", text, now=NOW) >= 0
