"""Lucid's throughput model: how much the next slots of ten minutes will ask for."""

from __future__ import annotations

import math

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.memory import Remembering, kept
from dlsched.policies.learning.additive import AdditiveModel
from dlsched.policies.scheduling.lucid.arrivals import AHEAD, SLOT_S

HOUR, DAY, WEEK = 6, 144, 1008  # slots
KEPT = 26 * WEEK  # slots that are remembered
SHIFTS = {"an hour ago": HOUR, "3 hours ago": 3 * HOUR, "a day ago": DAY, "a week ago": WEEK}


def features_of(series: Floats, first_slot: int) -> dict[str, Floats]:
    """The features of each slot of a series, from slots that ended an hour before at the latest.

    Args:
        series: arrivals by slot.
        first_slot: its number, counted from midnight of a first day of a week.
    """
    slots: Ints = first_slot + np.arange(len(series))
    found: dict[str, Floats] = {
        "time of day": (slots % DAY).astype(np.float64),
        "day of week": (slots // DAY % 7).astype(np.float64),
    }
    for name, shift in SHIFTS.items():
        found[name] = _shifted(series, shift)
    for name in ("an hour ago", "a day ago"):
        shift = SHIFTS[name]
        around = _shifted(series, shift + 1) + _shifted(series, shift - 1)
        found[f"around {name}"] = 0.5 * found[name] + 0.25 * around
    window = np.stack([_shifted(series, HOUR + k) for k in range(HOUR)])
    found["mean of an hour"] = window.mean(axis=0)
    found["median of an hour"] = np.median(window, axis=0)
    found["spread of an hour"] = window.std(axis=0)
    return found


def _shifted(series: Floats, by: int) -> Floats:
    """The series as it was so many slots before; NaN before its beginning."""
    found = np.full(len(series), np.nan)
    if by < len(series):
        found[by:] = series[: len(series) - by]
    return found


class LearnedLoad(Remembering):
    """Arrivals by slot as they were seen, and models of them that are learned once a day.

    Before two days are known, the next slots are as those of the last hour.
    """

    _slots: dict[int, list[float]] = kept(  # jobs and GPUs, by slot since time 0
        dict,
        lambda stored: {slot: counts for slot, *counts in stored},
        store=lambda slots: [[slot, *counts] for slot, counts in slots.items()],
    )
    _models: list[AdditiveModel] = kept(
        list,
        lambda stored: [AdditiveModel.of_state(each) for each in stored],
        store=lambda models: [model.state_dict() for model in models],
    )
    _learned: int = kept(-1)  # the day of the present models

    def arrived(self, submit_time: Floats, gpus: Ints) -> None:
        """Jobs have arrived."""
        for time, count in zip(submit_time.tolist(), gpus.tolist(), strict=True):
            slot = self._slots.setdefault(math.floor(time / SLOT_S), [0.0, 0.0])
            slot[0] += 1
            slot[1] += count

    def jobs(self, now: float) -> float:
        """Mean number of jobs in each of the next slots; NaN before any is known."""
        return self._mean(now, 0)

    def gpus(self, now: float) -> float:
        """Mean number of GPUs that the jobs of each of the next slots ask for."""
        return self._mean(now, 1)

    def _mean(self, now: float, which: int) -> float:
        present = math.floor(now / SLOT_S)
        first = min(self._slots, default=present)
        known = range(first, present)
        series = np.array([self._slots.get(k, [0.0, 0.0])[which] for k in known])
        if len(series) < 2 * DAY:
            return float(series[-HOUR:].mean()) if len(series) else math.nan
        self._learn(present, first, known)
        ahead = np.concatenate([series, np.full(1 + AHEAD, np.nan)])
        features = features_of(ahead, first)
        last = {name: each[-AHEAD:] for name, each in features.items()}
        return float(np.maximum(self._models[which].predict(last), 0.0).mean())

    def _learn(self, present: int, first: int, known: range) -> None:
        if present // DAY == self._learned:
            return
        self._learned, self._models = present // DAY, []
        self._slots = {k: counts for k, counts in self._slots.items() if k > present - KEPT}
        for which in (0, 1):
            series = np.array([self._slots.get(k, [0.0, 0.0])[which] for k in known])
            features = features_of(series, first)
            later = {name: each[DAY:] for name, each in features.items()}
            self._models.append(AdditiveModel.fit(later, series[DAY:]))
