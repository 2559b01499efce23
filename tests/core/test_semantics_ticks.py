"""Ticks of a grid: origin + k·step for whole k, whatever the floats do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.core.semantics import EVENTS, Semantics
from simulate.published.blox import BLOX
from simulate.published.profiles import PROFILES

GRIDS = (0.1, 0.3, 1 / 3, 0.7, 1.0, 60.0, 300.0, 359.99761708212856)


def grid_of(grid: float, origin: float = 0.0) -> Semantics:
    return Semantics(name="x", grid=grid, origin=origin, arrivals="grid")


@pytest.mark.parametrize(
    ("grid", "time", "at_or_after", "after"),
    [
        (60.0, 0.0, 0.0, 60.0),
        (60.0, 59.9, 60.0, 60.0),
        (60.0, 60.0, 60.0, 120.0),
        (0.1, 0.3, 3 * 0.1, 3 * 0.1),  # 3 · 0.1 lies a hair above 0.3
        (0.1, 3 * 0.1, 3 * 0.1, 4 * 0.1),
        (0.1, 0.7, 7 * 0.1, 7 * 0.1),
        (1 / 3, 1.0, 1.0, 4 * (1 / 3)),
    ],
)
def test_ticks(grid: float, time: float, at_or_after: float, after: float) -> None:
    assert grid_of(grid).tick_at_or_after(time) == at_or_after
    assert grid_of(grid).tick_after(time) == after


@given(st.sampled_from(GRIDS), st.sampled_from([0.0, 0.25, 17.0]), st.integers(0, 10**7))
def test_each_tick_is_itself_and_the_next_one_follows(grid: float, origin: float, k: int) -> None:
    semantics = grid_of(grid, origin)
    tick, following = origin + k * grid, origin + (k + 1) * grid
    assert semantics.tick_at_or_after(tick) == tick
    assert semantics.tick_after(tick) == following
    assert semantics.tick_at_or_after(np.nextafter(tick, np.inf)) == following
    assert semantics.tick_at_or_after(np.nextafter(following, -np.inf)) == following


@given(st.sampled_from(GRIDS), st.lists(st.floats(0, 1e9), min_size=1, max_size=20))
def test_arrivals_are_seen_at_the_first_tick_that_is_not_before_them(
    grid: float, times: list[float]
) -> None:
    semantics = grid_of(grid)
    seen = semantics.seen_at(np.array(times))
    assert seen.tolist() == [semantics.tick_at_or_after(time) for time in times]
    assert (seen >= np.array(times)).all()
    assert semantics.ticks_at_or_after(np.array(times)).tolist() == seen.tolist()


def test_there_is_no_tick_before_the_origin() -> None:
    semantics = grid_of(60.0, origin=90.0)
    assert semantics.tick_at_or_after(0.0) == 90.0
    assert semantics.tick_after(0.0) == 90.0
    assert semantics.seen_at(np.array([0.0, 91.0])).tolist() == [90.0, 150.0]


def test_a_slot_collects_the_arrivals_of_several_ticks() -> None:
    semantics = Semantics(name="x", grid=1.0, arrivals="grid", slot=5.0)
    assert semantics.seen_at(np.array([0.0, 0.5, 3.0, 5.0, 5.5])).tolist() == [0, 5, 5, 5, 10]


def test_instant_arrivals_are_seen_at_once() -> None:
    assert EVENTS.seen_at(np.array([0.1, 7.3])).tolist() == [0.1, 7.3]


def test_another_round_length_keeps_everything_else() -> None:
    changed = BLOX.with_grid(120.0)
    assert (changed.grid, changed.finish, changed.rejoin) == (120.0, "tick", False)


def test_a_profile_without_rounds_takes_no_round_length() -> None:
    with pytest.raises(BadInput, match="has no rounds"):
        EVENTS.with_grid(60.0)


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_every_profile_has_its_name_and_names_its_source(name: str) -> None:
    assert PROFILES[name].name == name
    assert PROFILES[name].source
