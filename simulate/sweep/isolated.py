"""For every run of a study, another one with equal shares for all jobs, to measure fairness by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dlsched.composition.parts import option_names
from dlsched.composition.settings import split_options
from simulate.published.profiles import semantics_of
from simulate.results.finish_time_fairness import ISOLATED, against_isolated
from simulate.results.tables import ReplayResult
from simulate.settings import RunSettings
from simulate.sweep.run import Run

Cell = tuple[int, float | None, int]  # trace, load, seed


def isolated_runs(runs: Sequence[Run], *, has_quotas: bool = False) -> tuple[Run, ...]:
    """One run for each trace, load and seed, with the parts of the first run there."""
    first: dict[Cell, RunSettings] = {}
    for run in runs:
        first.setdefault(_cell(run), run.settings)
    return tuple(
        Run(number=len(runs) + place, trace=cell[0], settings=_alone(settings, has_quotas))
        for place, (cell, settings) in enumerate(first.items())
    )


def _cell(run: Run) -> Cell:
    return run.trace, run.settings.load, run.settings.seed


def _alone(settings: RunSettings, has_quotas: bool) -> RunSettings:
    """The same settings under the policy; the options of the run's own policy are left out."""
    parts = option_names(settings, semantics_of(settings), has_quotas=has_quotas)
    others = set().union(*(names for stage, names in parts.items() if stage != "scheduling"))
    kept = [
        f"{key}={value}"
        for key, value in split_options(settings.options).items()
        if key == "semantics"
        or (key in others and key not in parts["scheduling"])
        or key.partition(".")[0] in {*parts, "estimate"} - {"scheduling"}
    ]
    options = (*kept, f"gavel.objective={ISOLATED}")
    return replace(settings, policy="gavel", name=ISOLATED, options=options)


def compared(
    results: Mapping[int, ReplayResult], runs: Sequence[Run], isolated: Sequence[Run]
) -> dict[int, ReplayResult]:
    """The results of a study by number, each with ρ against its isolated run where that ended."""
    alone = {_cell(run): results[run.number] for run in isolated if run.number in results}
    found = {}
    for run in runs:
        if run.number in results:
            result = results[run.number]
            other = alone.get(_cell(run))
            found[run.number] = result if other is None else against_isolated(result, other)
    return found
