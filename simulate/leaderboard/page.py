"""The leaderboard as one Markdown page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlsched.core.sums import ordered_sum
from simulate.leaderboard.concluding import Table, conclusions, tables_of
from simulate.leaderboard.divisions import LONGEST_S, RESTART_S, ROUND_S
from simulate.leaderboard.entries import ABSENT, TELLS
from simulate.leaderboard.playing import Games, Played
from simulate.report.intervals import estimate


class Column(NamedTuple):
    """A column of the tables: its title, where the summary has it, and what to divide it by."""

    title: str
    path: str
    unit: float = 1.0
    digits: int = 1


RANKED = Column("avg JCT (h)", "avg_jct", 3600.0, 2)
COLUMNS = (
    Column("p99 JCT (h)", "p99_jct", 3600.0),
    Column("delay (h)", "avg_queueing_delay", 3600.0, 2),
    Column("makespan (h)", "makespan", 3600.0),
    Column("worst ρ", "finish_time_fairness.max"),
    Column("ρ > 1 (%)", "finish_time_fairness.unfair_fraction", 0.01),
    Column("deadlines met (%)", "deadlines.met_share", 0.01),
    Column("refused", "refused", 1.0, 0),
    Column("preemptions", "preemptions", 1.0, 0),
    Column("lost (GPU-h)", "lost_seconds", 3600.0),
    Column("ms a decision", "decision_s", 0.001, 2),
)


def page_of(played: Sequence[Played], games: Games) -> str:
    """The page."""
    lines = [*_head(played, games), *(line for each in played for line in _division(each, games))]
    return "\n".join(lines) + "\n"


def _head(played: Sequence[Played], games: Games) -> Iterator[str]:
    yield "# The leaderboard"
    yield ""
    loads = ", ".join(f"{load:g}" for load in games.loads)
    yield (
        f"Made by `dlsched leaderboard`: {games.jobs:,} jobs a trace, {len(games.seeds)} traces of "
        f"each kind, offered loads {loads}. Rounds of {ROUND_S:g} s; a start costs {RESTART_S:g} "
        f"s; a preempted job keeps its work; jobs longer than {LONGEST_S / 3_600:g} hours are cut. "
        "Each number is a mean over traces; ± is half of its 95 % interval."
    )
    yield ""
    yield (
        "*Rank* is by average JCT, by deadlines met where there are any: `2-5` means that chance "
        "explains the differences within these places (paired t tests on logarithms, Holm's "
        "correction over the comparisons of each entry)."
    )
    yield ""
    used = {each.told for one in played for each in one.entries}
    for told, says in TELLS.items():
        if told in used:
            yield f"- Told *{told}*: {says}."
    yield ""
    yield f"Not in it: {'; '.join(f'`{name}` {why}' for name, why in ABSENT.items())}."
    yield ""


def _division(played: Played, games: Games) -> Iterator[str]:
    yield f"## {played.division.name.capitalize()}: {played.division.says}"
    yield ""
    yield f"Cluster `{played.division.cluster}`."
    yield ""
    yield from (f"- {sentence}" for sentence in conclusions(played, games))
    yield ""
    for table in tables_of(played, games):
        yield from _lines(played, table)
    if played.failures:
        yield "Did not finish:"
        yield ""
        yield from (f"- {title}: {reason}" for title, reason in played.failures)
        yield ""


def _lines(played: Played, table: Table) -> Iterator[str]:
    def figures(label: str, column: Column) -> list[float]:
        return played.figure(table.track, table.load, label, column.path)

    shown = [
        column
        for column in COLUMNS
        if any(math.isfinite(ordered_sum(figures(label, column))) for label in table.order)
    ]
    told = {each.label: each.told for each in played.entries}
    yield f"### {table.track}, load {table.load:g}"
    yield ""
    titles = ["Rank", "Policy", "Told", RANKED.title, *(column.title for column in shown)]
    yield f"| {' | '.join(titles)} |"
    yield "| --- | --- | --- |" + " ---: |" * (len(shown) + 1)
    for label in table.order:
        cells = [_cell(figures(label, column), column) for column in (RANKED, *shown)]
        name = label.partition(" (")[0]
        place = table.places.get(label, "")
        yield f"| {place} | {name} | {told[label]} | {' | '.join(cells)} |"
    yield ""


def _cell(values: Sequence[float], column: Column) -> str:
    found = estimate(dict(enumerate(value / column.unit for value in values)))
    if math.isnan(found.mean):
        return ""
    half = "" if math.isnan(found.half_width) else f" ± {found.half_width:,.{column.digits}f}"
    return f"{found.mean:,.{column.digits}f}{half}"
