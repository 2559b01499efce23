"""The leaderboard: ranks that say what chance does not explain, equal conditions, one page."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.policies.registry import names
from simulate.leaderboard.divisions import DIVISIONS, GENERATED, LONGEST_S, RECORDED
from simulate.leaderboard.entries import ABSENT, ENTRIES
from simulate.leaderboard.ranking import Rank, ranks
from simulate.traces.generate import generate_trace
from simulate.traces.statistics import offered_load


def test_what_chance_explains_shares_its_places() -> None:
    found = ranks(
        {
            "fast": [10.0, 20.0, 30.0, 40.0, 50.0],
            "as fast": [10.1, 19.9, 30.1, 39.9, 50.0],
            "slow": [20.0, 31.0, 39.0, 52.0, 60.0],
        }
    )
    assert found == {"fast": Rank(1, 2), "as fast": Rank(1, 2), "slow": Rank(3, 3)}
    assert [str(rank) for rank in found.values()] == ["1-2", "1-2", "3"]


def test_an_unknown_figure_has_no_rank_and_one_trace_tells_nothing() -> None:
    assert ranks({"a": [1.0, float("nan")], "b": [2.0, 3.0]}) == {"b": Rank(1, 1)}
    assert ranks({"a": [1.0, 2.0], "b": [2.0]}) == {"a": Rank(1, 1)}  # a run has failed
    assert ranks({"a": [1.0], "b": [2.0]}) == {"a": Rank(1, 2), "b": Rank(1, 2)}


@given(st.lists(st.lists(st.floats(0, 1e6), min_size=4, max_size=4), min_size=1, max_size=6))
def test_ranks_hold_the_place_by_mean_and_do_not_depend_on_the_order(
    values: list[list[float]],
) -> None:
    named = {f"p{number}": each for number, each in enumerate(values)}
    found = ranks(named)
    assert found == ranks(dict(reversed(named.items())))
    for name, rank in found.items():
        assert 1 <= rank.first <= rank.last <= len(named)
        lower = [np.any(np.less(each, named[name])) for each in named.values()]
        higher = [np.any(np.greater(each, named[name])) for each in named.values()]
        assert sum(lower) >= rank.first - 1  # what is better is so on some trace
        assert sum(higher) >= len(named) - rank.last


@pytest.mark.parametrize("division", DIVISIONS.values(), ids=lambda division: division.name)
def test_a_trace_offers_the_load_and_depends_on_the_seed_alone(division) -> None:
    gpus = division.nodes.total_gpus
    one, again, other = (
        division.trace("philly-like", None, jobs=200, load=0.8, seed=seed) for seed in (1, 1, 2)
    )
    assert offered_load(one, gpus) == pytest.approx(0.8, rel=0.01)
    assert one.duration.max() <= LONGEST_S
    assert one.num_gpus.max() <= gpus / 4
    assert (one.submit_time == again.submit_time).all()
    assert not np.array_equal(one.duration, other.duration)


def test_seeds_have_stretches_of_a_recorded_trace_of_their_own() -> None:
    recorded = generate_trace("venus", jobs=500, seed=3)
    division = DIVISIONS["rigid"]
    first, second = (
        division.trace("helios", recorded, jobs=100, load=1.0, seed=seed) for seed in (1, 2)
    )
    assert not set(first.job_id) & set(second.job_id)
    with pytest.raises(BadInput, match=r"helios has \d+ jobs that fit, not 9 times 100"):
        division.trace("helios", recorded, jobs=100, load=1.0, seed=9)


def test_entries_are_of_known_policies_and_their_labels_are_unique() -> None:
    assert set(ENTRIES) == set(DIVISIONS)
    known = set(names("scheduling"))
    used = {each.policy for entries in ENTRIES.values() for each in entries}
    assert used | set(ABSENT) == known
    assert not used & set(ABSENT)
    for entries in ENTRIES.values():
        labels = [each.label for each in entries]
        assert len(set(labels)) == len(labels)
        assert {each.policy for each in entries} <= known


def test_every_track_is_recorded_or_generated() -> None:
    for division in DIVISIONS.values():
        assert set(division.tracks) <= {*RECORDED, *GENERATED}
