"""In which order the runs of a sweep begin: long ones first, so that none is last and alone.

How long a run takes is estimated by its jobs, its load, and the seconds that runs of the same
policy, parts and options have taken for each. Settings of which no run has ended begin first, since
nothing is known of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulate.settings import RunSettings
from simulate.sweep.run import Inputs, Run


class LongestFirst:
    """The runs that have not begun."""

    def __init__(self, inputs: Inputs, runs: Sequence[Run]) -> None:
        """Take the runs of a sweep, in the order in which equal ones are to begin."""
        self._traces = inputs.traces
        self._left = list(runs)
        self._seconds: dict[RunSettings, float] = {}  # for each job at load 1
        self._begun: set[RunSettings] = set()

    def __len__(self) -> int:
        return len(self._left)

    def take(self) -> Run:
        """The run to begin next; it is left no more."""
        run = max(self._left, key=self._urgency)
        self._left.remove(run)
        self._begun.add(_alike(run))
        return run

    def took(self, run: Run, seconds: float) -> None:
        """Learn how long a run has taken."""
        alike, new = _alike(run), seconds / self._size(run)
        self._seconds[alike] = max(new, self._seconds.get(alike, 0.0))

    def _urgency(self, run: Run) -> tuple[bool, float]:
        alike = _alike(run)
        dearest = max(self._seconds.values(), default=1.0)
        seconds = self._seconds.get(alike, dearest) * self._size(run)
        return alike not in self._begun, seconds

    def _size(self, run: Run) -> float:
        load = run.settings.load
        return len(self._traces[run.trace]) * (1.0 if load is None else load)


def _alike(run: Run) -> RunSettings:
    return replace(run.settings, load=None, seed=0)
