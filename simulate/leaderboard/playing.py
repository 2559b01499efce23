"""Runs the entries of divisions; what has been run is kept, so that it can be interrupted."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlsched.core.errors import DlschedError
from simulate.leaderboard.divisions import (
    RESTART_S,
    ROUND_S,
    Division,
    recorded,
    write_speeds,
)
from simulate.leaderboard.entries import ENTRIES, ESTIMATES, Entry
from simulate.profiles.workloads import WorkloadProfiles
from simulate.results.tables import ReplayResult
from simulate.study import StudyResults, study
from simulate.traces.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Games:
    """What is to be run.

    Attributes:
        files: of recorded traces, by track.
        jobs: of each trace.
        loads: offered.
        seeds: each another trace.
        executor: as `--executor`.
        kept: the folder of finished runs.
        workloads: what jobs train, where a division wants to know.
    """

    files: Mapping[str, Path]
    jobs: int
    loads: Sequence[float]
    seeds: Sequence[int]
    executor: str
    kept: Path
    workloads: WorkloadProfiles | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """A division with its results.

    Attributes:
        division: its conditions.
        entries: those of the policies that were asked for.
        tracks: that were run.
        summaries: by track, load, seed and the entry's label.
        failures: run and reason.
    """

    division: Division
    entries: tuple[Entry, ...]
    tracks: tuple[str, ...]
    summaries: Mapping[tuple[str, float, int, str], Mapping[str, Any]]
    failures: tuple[tuple[str, str], ...]

    def figure(self, track: str, load: float, label: str, path: str) -> list[float]:
        """A figure of an entry, one number a seed; NaN where a run does not know it."""
        return [
            _at(summary, path)
            for (its_track, its_load, _, its_label), summary in self.summaries.items()
            if (its_track, its_load, its_label) == (track, load, label)
        ]


def entries_of(division: str, policies: Iterable[str]) -> tuple[Entry, ...]:
    """The entries of a division, of some policies; of all where none is named."""
    wanted = set(policies)
    return tuple(each for each in ENTRIES[division] if not wanted or each.policy in wanted)


def play(
    division: Division,
    tracks: Sequence[str],
    entries: Sequence[Entry],
    games: Games,
    on_finished: Callable[[str], None],
) -> Played:
    """Run a division.

    Raises:
        BadInput: a trace is too short, or cannot be read.
        DlschedError: nothing finished.
    """
    traces: dict[str, tuple[str, float, int, Trace]] = {}
    for track in tracks:
        found = recorded(track, games.files)
        for load in games.loads:
            for seed in games.seeds:
                made = division.trace(
                    track, found, jobs=games.jobs, load=load, seed=seed, workloads=games.workloads
                )
                traces[made.name] = track, load, seed, made
    summaries: dict[tuple[str, float, int, str], Mapping[str, Any]] = {}
    failures: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="dlsched-leaderboard-") as folder:
        profiles = ""
        if division.name in ("elastic", "types"):
            profiles = f"{folder}/speeds.csv"
            write_speeds([each[3] for each in traces.values()], division.nodes, Path(profiles))
        for group in _groups(entries):
            drawn = [each[3] for each in traces.values()]
            try:
                runs = _study(division, group, drawn, profiles, games, on_finished)
            except DlschedError as error:
                failures.append((", ".join(each.label for each in group), str(error)))
                continue
            failures += runs.failures
            by_policy = {each.policy: each.label for each in group}
            for result in runs.results:
                track, load, seed, _ = traces[result.trace]
                summaries[track, load, seed, by_policy[result.policy]] = _summary_of(result)
    return Played(division, tuple(entries), tuple(tracks), summaries, tuple(failures))


def _study(
    division: Division,
    group: Sequence[Entry],
    traces: Sequence[Trace],
    profiles: str,
    games: Games,
    on_finished: Callable[[str], None],
) -> StudyResults:
    return study(
        traces,
        cluster=division.nodes,
        policies=[each.policy for each in group],
        estimate=ESTIMATES[group[0].told],
        options=[text for each in group for text in each.options],
        round_s=ROUND_S,
        restart_overhead=RESTART_S,
        interference=division.interference,
        profiles=profiles,
        record=False,
        executor=games.executor,
        resume=games.kept,
        on_finished=on_finished,
    )


def _groups(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries that can be one study: the same estimate, and each policy once."""
    groups: dict[tuple[str, int], list[Entry]] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for each in entries:
        estimate = ESTIMATES[each.told]
        groups.setdefault((estimate, seen[estimate, each.policy]), []).append(each)
        seen[estimate, each.policy] += 1
    return list(groups.values())


def _summary_of(result: ReplayResult) -> dict[str, Any]:
    """The summary, and what a decision costs."""
    summary = dict(result.summary)
    decisions = summary.get("decisions") or math.nan
    return {**summary, "decision_s": summary["cpu_seconds"] / decisions}


def _at(summary: Mapping[str, Any], path: str) -> float:
    value: Any = summary
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return math.nan if value is None else float(value)
