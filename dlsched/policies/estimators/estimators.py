"""Predicted durations: the estimate of a job's run time that policies use.

`oracle` is the true duration; `noise` the true one with an error; `declared` and `user` come from
the user (an estimate, or the job's time limit); `history` is the mean of earlier jobs of the same
user, as in QSSF-like studies. A policy never sees the true duration in any other way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.context import RoundContext
from dlsched.core.memory import finished_seen, kept
from dlsched.core.options import NoOptions, option
from dlsched.core.stage import Estimator
from dlsched.core.sums import ordered_sum
from dlsched.core.units import Units


class Oracle(Estimator[NoOptions]):
    """The true duration."""

    name = "oracle"
    summary = "the true duration (default)"
    knows = True

    def predict(self, units: Units, true_work: Floats, ctx: RoundContext) -> Floats:
        """The true durations."""
        return true_work


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseOptions:
    """The true duration times a log-normal factor."""

    sigma: float = option(0.5, "standard deviation of the factor's logarithm", low=0.0)
    seed: int = option(0, "seed of the factors; the run's unless given", low=0)


class Noise(Estimator[NoiseOptions]):
    """The true duration times exp(σ·z), z standard normal; the factor belongs to the job.

    The factor of a job depends only on the seed and its row, so that runs of different policies
    have the same errors.
    """

    name = "noise"
    summary = "the true duration times a log-normal error (noise:SIGMA)"

    def predict(self, units: Units, true_work: Floats, ctx: RoundContext) -> Floats:
        """The true durations with their errors."""
        factors = [
            np.random.default_rng((self.options.seed, ctx.seed, row)).standard_normal()
            for row in units.rows.tolist()
        ]
        return true_work * np.exp(self.options.sigma * np.array(factors))


class UserLimit(Estimator[NoOptions]):
    """The user's own time limit."""

    name = "user"
    summary = "the user's time limit (column time_limit)"
    needs = frozenset({"time_limit"})

    def predict(self, units: Units, true_work: Floats, ctx: RoundContext) -> Floats:
        """The time limit, in seconds."""
        return units.time_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredOptions:
    """The user's own estimate."""

    column: str = option("expected", "the trace's column with the user's estimate in seconds")


class Declared(Estimator[DeclaredOptions]):
    """The user's estimate, or the time limit where there is none.

    The duration of a job with neither is unknown.
    """

    name = "declared"
    summary = "the user's own estimate (column expected), else the time limit"

    def predict(self, units: Units, true_work: Floats, ctx: RoundContext) -> Floats:
        """The declared seconds."""
        said = units.table.extra.get(self.options.column)
        if said is None:
            return units.time_limit
        own = np.asarray(said[units.rows], np.float64)
        return np.where(np.isnan(own), units.time_limit, own)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions:
    """Learning from finished jobs."""

    last: int = option(20, "number of most recent similar jobs in the mean", low=1)
    default_s: float = option(3600.0, "predicted seconds before any job has finished", low=1.0)


class History(Estimator[HistoryOptions]):
    """The mean run time of the user's last jobs of the same size, else of the user, else of all.

    Only finished jobs count, as in a live cluster.
    """

    name = "history"
    summary = "mean of the user's recent jobs of that size, else of the user, else of all users"

    _seen: int = finished_seen()
    _runs: dict[tuple[int, int], list[float]] = kept(
        dict,
        lambda stored: {(user, gang): list(took) for user, gang, took in stored},
        store=lambda runs: [[*key, list(took)] for key, took in runs.items()],
    )  # run times by user and GPUs

    def predict(self, units: Units, true_work: Floats, ctx: RoundContext) -> Floats:
        """The means of the most recent similar runs."""
        self._learn(ctx)
        return np.array(
            [
                self._mean(user, gang)
                for user, gang in zip(units.user.tolist(), units.gang.tolist(), strict=True)
            ]
        )

    def _learn(self, ctx: RoundContext) -> None:
        for row in ctx.finished[self._seen :]:
            user, gang = int(ctx.table.user[row]), int(ctx.table.gang[row])
            took = float(ctx.table.executed[row])
            for key in ((user, gang), (user, -1), (-1, -1)):
                runs = self._runs.setdefault(key, [])
                runs.append(took)
                del runs[: -self.options.last]
        self._seen = len(ctx.finished)

    def _mean(self, user: int, gang: int) -> float:
        for key in ((user, gang), (user, -1), (-1, -1)):
            runs = self._runs.get(key)
            if runs:
                return ordered_sum(runs) / len(runs)
        return self.options.default_s
