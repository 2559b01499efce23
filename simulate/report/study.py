"""Results sorted for a reader: by load, then by what they are called, with the seeds together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from simulate.report.drawing.charts import Key
from simulate.report.wording import clean
from simulate.results.tables import Floats, JobOutcomes, ReplayResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The runs of one label at one load, by seed; `series` numbers its colour and marker."""

    label: str
    series: int
    load: float | None
    runs: tuple[ReplayResult, ...]

    @property
    def key(self) -> Key:
        """Its legend entry."""
        return Key(self.label, self.series)

    @property
    def first(self) -> ReplayResult:
        """The run of the lowest seed, which stands for the group where runs cannot be merged."""
        return self.runs[0]

    def pooled(self, column: Callable[[JobOutcomes], Floats]) -> Floats:
        """A column of all runs one after the other."""
        return np.concatenate(
            [np.asarray(column(run.counted_jobs), dtype=np.float64) for run in self.runs]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """All the runs of one report."""

    groups: tuple[Group, ...]
    loads: tuple[float | None, ...]
    labels: tuple[str, ...]

    @classmethod
    def of(cls, results: Sequence[ReplayResult]) -> Study:
        """Group runs by label and load; labels keep the order of first appearance, loads ascend.

        Runs of other traces or clusters get these in their label, since seeds of one label are
        averaged; so do repeated runs with the same label, load and seed.
        """
        many_traces = len({r.trace for r in results}) > 1
        many_clusters = len({r.cluster.spec for r in results}) > 1
        seen: dict[tuple[str, float | None, int], int] = {}
        sorted_runs: dict[tuple[str, float | None], list[ReplayResult]] = {}
        labels: dict[str, int] = {}
        for run in results:
            label = clean(run.label) or clean(run.policy) or "run"
            if many_traces:
                label += f" · {clean(run.trace)}"
            if many_clusters:
                label += f" · {clean(run.cluster.spec)}"
            again = seen.get((label, run.load, run.seed), 0)
            seen[label, run.load, run.seed] = again + 1
            if again:
                label += f" #{again + 1}"
            labels.setdefault(label, len(labels))
            sorted_runs.setdefault((label, run.load), []).append(run)
        loads = sorted(
            {load for _, load in sorted_runs}, key=lambda x: (x is not None, x if x else 0.0)
        )
        groups = tuple(
            Group(
                label=label,
                series=labels[label],
                load=load,
                runs=tuple(sorted(sorted_runs[label, load], key=lambda r: r.seed)),
            )
            for load in loads
            for label in labels
            if (label, load) in sorted_runs
        )
        return cls(groups=groups, loads=tuple(loads), labels=tuple(labels))

    def at(self, load: float | None) -> tuple[Group, ...]:
        """The groups of one load, in the order of labels."""
        return tuple(g for g in self.groups if g.load == load)

    @property
    def runs(self) -> tuple[ReplayResult, ...]:
        """Every run, by load, label and seed."""
        return tuple(run for group in self.groups for run in group.runs)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Every seed that occurs."""
        return tuple(sorted({run.seed for run in self.runs}))


def load_text(load: float | None) -> str:
    """`load 1.2`; runs without a factor replay the trace as recorded."""
    return "load as recorded" if load is None else f"load {load:.4g}"
