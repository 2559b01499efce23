from __future__ import annotations

import math

import pytest

from simulate.traces.clock import parse_wall_times

NOON = 1_577_880_000.0  # 2020-01-01 12:00:00 UTC


@pytest.mark.parametrize(
    ("text", "seconds", "zone"),
    [
        ("2020-01-01 12:00:00", NOON, "naive"),
        ("2020-01-01T12:00:00", NOON, "naive"),
        ("2020-01-01 12:00:00.250", NOON + 0.25, "naive"),
        ("2020-01-01T12:00:00Z", NOON, "+00:00"),
        ("2020-01-01 12:00:00+08:00", NOON - 8 * 3600, "+08:00"),
        ("2020-01-01T12:00:00-0730", NOON + 7.5 * 3600, "-07:30"),
        ("1577880000", NOON, "UTC"),
        ("1577880000.5", NOON + 0.5, "UTC"),
    ],
)
@pytest.mark.parametrize("beside", [[], ["1577880000"], ["2020-01-01 12:00:00", "None", ""]])
def test_spellings(text, seconds, zone, beside):
    times = parse_wall_times([text, *beside])
    assert times.seconds[0] == seconds
    assert times.zone == zone
    assert times.malformed == []


@pytest.mark.parametrize("text", ["", "None", "Unknown", "nan", "NaT"])
def test_lost_times_are_unknown(text):
    times = parse_wall_times([text, "2020-01-01 12:00:00"])
    assert math.isnan(times.seconds[0])
    assert times.malformed == []


@pytest.mark.parametrize(
    "text",
    ["2020-02-30 00:00:00", "2020-01", "soon", "2020-01-01 12:00", "2020-01-01 12:00:00 PST"],
)
def test_anything_else_is_malformed(text):
    times = parse_wall_times(["2020-01-01 12:00:00", text])
    assert times.malformed == [1]
    assert math.isnan(times.seconds[1])
    assert times.seconds[0] == NOON


def test_no_times_at_all():
    assert parse_wall_times([]).seconds.tolist() == []
