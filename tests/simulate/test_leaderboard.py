"""The leaderboard: ranks that say what chance does not explain, equal conditions, one page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.policies.registry import names
from simulate.leaderboard.concluding import conclusions
from simulate.leaderboard.divisions import DIVISIONS, GENERATED, LONGEST_S, RECORDED
from simulate.leaderboard.entries import ABSENT, ENTRIES
from simulate.leaderboard.playing import Games, Played
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


def played(figures: dict[str, list[float]], division: str = "rigid") -> tuple[Played, Games]:
    """A division of one table, with a figure of each entry by seed."""
    path = {"rigid": "avg_jct", "deadlines": "met_share"}[division]
    seeds = range(1, 1 + max(map(len, figures.values())))
    summaries = {
        ("philly-like", 1.0, seed, label): (
            {"avg_jct": value} if path == "avg_jct" else {"deadlines": {path: value}}
        )
        for label, values in figures.items()
        for seed, value in zip(seeds, values, strict=False)
    }
    entries = tuple(each for each in ENTRIES[division] if each.label in figures)
    games = Games(
        files={}, jobs=10, loads=[1.0], seeds=seeds, executor="processes:1", kept=Path("unused")
    )
    found = Played(DIVISIONS[division], entries, ("philly-like",), summaries, ())
    return found, games


def test_conclusions_say_how_far_each_kind_of_knowledge_is_behind() -> None:
    figures = {
        "fifo": [400.0, 410.0, 390.0],
        "las": [150.0, 152.0, 148.0],
        "srtf (truth)": [100.0, 101.0, 99.0],
        "sjf (truth)": [120.0, 121.0],  # a run has failed
    }
    assert list(conclusions(*played(figures))) == [
        "Told no durations, `las` is best: an average JCT 1.50 times the best of a table, "
        "on average.",
        "Told true durations, `srtf` is best: an average JCT 1.00 times the best of a table, "
        "on average.",
        "In 1 of 1 tables the best can be told from all others; on average 1.0 of 3 entries "
        "may be first.",
    ]


def test_conclusions_about_deadlines_are_in_points() -> None:
    figures = {"fifo": [0.70, 0.72], "edf": [0.90, 0.92], "srtf (truth)": [0.95, 0.97]}
    told = list(conclusions(*played(figures, "deadlines")))
    assert told[0] == (
        "Told no durations, `edf` is best: 5.0 points more deadlines missed than the best of a "
        "table, on average."
    )


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
