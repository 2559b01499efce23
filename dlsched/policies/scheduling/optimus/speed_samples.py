"""Samples of speeds: seconds of a step, or of a unit of work, by number of GPUs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dlsched.core.arrays import Bools, Floats
from dlsched.core.memory import Remembering, by_row, kept, moved, together
from dlsched.core.units import Units
from dlsched.policies.scheduling.optimus.speed_models import fit_ring

SAME = 0.01  # a sample that differs by at most this part is not new
RECENT = 0.5  # weight of a new sample against the mean of the previous ones


def reports_steps(units: Units) -> Bools:
    """Which units report their own steps."""
    return units.table.has("steps_done")[units.rows]


def progress_of(units: Units) -> Floats:
    """Progress of units: in the steps that they report, else in the work that the world counts."""
    if "steps_done" not in units.table.extra:
        return units.executed
    return np.where(reports_steps(units), units.extra("steps_done"), units.executed)


def _seconds_of(stored: Iterable[tuple[int, int, float]]) -> dict[int, dict[int, float]]:
    found: dict[int, dict[int, float]] = {}
    for row, size, seconds in stored:
        found.setdefault(row, {})[size] = seconds
    return found


class SpeedSamples(Remembering):
    """Samples of running rows, taken between two decisions.

    A row stays on its GPUs between decisions, so the work that it did since the last one, over the
    time since then without its start, is one sample of its speed there.
    """

    _seconds: dict[int, dict[int, float]] = kept(  # by row and size
        dict,
        _seconds_of,
        store=lambda seconds: [[row, *one] for row, of in seconds.items() for one in of.items()],
        follow=moved,
    )
    _before: dict[int, tuple[float, float, int]] = by_row(together)  # when, work, which start
    _models: dict[int, Floats] = by_row(is_stored=False)

    def __init__(self, enough: int) -> None:
        """Start without samples; `enough` sizes with a sample suffice to fit a model."""
        self._enough = enough

    def sample(self, running: Units, now: float) -> None:
        """Take a sample of every running job."""
        done = progress_of(running).tolist()
        sizes, starts = running.gpus_now, running.starts
        works = (running.table.progress_from[running.rows] <= now).tolist()
        last, self._before = self._before, {}
        for place, row in enumerate(running.rows.tolist()):
            start, work = starts.item(place), done[place]
            if works[place]:  # else it is still starting
                self._before[row] = (now, work, start)
            if row not in last or last[row][2] != start:
                continue
            then, before, _ = last[row]
            if work > before:
                self._enter(row, sizes.item(place), (now - then) / (work - before))

    def _enter(self, row: int, size: int, seconds: float) -> None:
        seen = self._seconds.setdefault(row, {})
        known = seen.get(size)
        if known is not None and abs(seconds - known) <= SAME * known:
            return
        seen[size] = seconds if known is None else known + RECENT * (seconds - known)
        self._models.pop(row, None)

    def next_size(self, row: int) -> int:
        """The number of GPUs to try next: twice the largest with a sample."""
        return 2 * max(self._seconds.get(row, {0: 0.0})) or 1

    def model(self, row: int) -> Floats | None:
        """Coefficients of `ring_step_s`; None while there are too few samples."""
        seen = self._seconds.get(row, {})
        if len(seen) < self._enough:
            return None
        known = self._models.get(row)
        if known is None:
            known = fit_ring(np.array(list(seen)), np.array(list(seen.values())))
            self._models[row] = known
        return known
