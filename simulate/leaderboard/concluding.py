"""Conclusions in plain words, worked out from the tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simulate.leaderboard.entries import TELLS, Told
from simulate.leaderboard.playing import Games, Played
from simulate.leaderboard.ranking import Rank, ranks

JCT, MET = "avg_jct", "deadlines.met_share"
WITHOUT: dict[Told, str] = {
    "nothing": "no durations",
    "history": "means of past jobs",
    "noise": "durations with large errors",
    "truth": "true durations",
}


@dataclass(frozen=True, slots=True)
class Table:
    """One track at one load: what is ranked, less being better, and the ranks.

    Attributes:
        track: its name.
        load: that is offered.
        values: by label, one number a trace; deadlines met are counted as missed ones.
        places: by label.
    """

    track: str
    load: float
    values: Mapping[str, Sequence[float]]
    places: Mapping[str, Rank]

    def mean(self, label: str) -> float:
        """The mean of an entry."""
        return float(np.mean(self.values[label]))

    @property
    def order(self) -> list[str]:
        """Labels, the best first; those without a rank last."""
        return sorted(
            self.values,
            key=lambda label: (label not in self.places, self.mean(label), label),
        )


def tables_of(played: Played, games: Games) -> Iterator[Table]:
    """The tables of a division that have any run."""
    by_deadlines = played.division.name == "deadlines"
    for track in played.tracks:
        for load in games.loads:
            values: dict[str, list[float]] = {}
            for each in played.entries:
                found = played.figure(track, load, each.label, MET if by_deadlines else JCT)
                if found:
                    values[each.label] = [1 - x for x in found] if by_deadlines else found
            if values:
                yield Table(track, load, values, ranks(values))


def conclusions(played: Played, games: Games) -> Iterator[str]:
    """Sentences about a division: which is best with what it is told, and how sure that is."""
    tables = [table for table in tables_of(played, games) if table.places]
    if not tables:
        return
    by_deadlines = played.division.name == "deadlines"
    for told in TELLS:
        labels = [each.label for each in played.entries if each.told == told]
        behind = {label: _behind(tables, label, by_deadlines=by_deadlines) for label in labels}
        known = {label: gap for label, gap in behind.items() if math.isfinite(gap)}
        if not known:
            continue
        best = min(known, key=lambda label: (known[label], label))
        gap = (
            f"{100 * known[best]:.1f} points more deadlines missed than the best of a table"
            if by_deadlines
            else f"an average JCT {known[best]:.2f} times the best of a table"
        )
        yield f"Told {WITHOUT[told]}, `{best.partition(' (')[0]}` is best: {gap}, on average."
    alone = sum(table.places[table.order[0]].last == 1 for table in tables)
    near = np.mean([sum(rank.first == 1 for rank in table.places.values()) for table in tables])
    count = np.mean([len(table.places) for table in tables])
    yield (
        f"In {alone} of {len(tables)} tables the best can be told from all others; on average "
        f"{near:.1f} of {count:.0f} entries may be first."
    )


def _behind(tables: Sequence[Table], label: str, *, by_deadlines: bool) -> float:
    """How far an entry is behind the best, on average over tables; NaN where a run is missing."""
    gaps = []
    for table in tables:
        if label not in table.places:
            return math.nan
        best = table.mean(table.order[0])
        own = table.mean(label)
        gaps.append(own - best if by_deadlines else math.log(own / best))
    mean = float(np.mean(gaps))
    return mean if by_deadlines else math.exp(mean)
