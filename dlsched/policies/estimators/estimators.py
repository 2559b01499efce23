"""Predicted durations: what a policy may believe about a job when it arrives.

`oracle` knows; `noise` knows roughly; `declared` and `user` ask the user (for an estimate, or for
the job's time limit); `history` looks at what the same user's jobs took before, as QSSF-like
studies do. A policy never sees the truth in any other way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.context import RoundContext
from dlsched.core.options import NoOptions, option
from dlsched.core.stage import Estimator
from dlsched.core.units import Units

__all__ = ["Declared", "History", "HistoryOptions", "Noise", "Oracle", "UserLimit"]


class Oracle(Estimator[NoOptions]):
    """The true duration."""

    name = "oracle"
    summary = "the true duration (default)"
    knows = True

    def predict(self, units: Units, true_work: Floats, ctx: RoundContext) -> Floats:
        """The truth."""
        return true_work


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseOptions:
    """The truth times a log-normal factor."""

    sigma: float = option(0.5, "standard deviation of the factor's logarithm", low=0.0)
    seed: int = option(0, "seed of the factors; the run's unless given", low=0)


class Noise(Estimator[NoiseOptions]):
    """The true duration times exp(σ·z), z standard normal; the factor belongs to the job.

    Each job's factor depends on the seed and its row only, so that runs of different policies see
    the same errors.
    """

    name = "noise"
    summary = "the true duration times a log-normal error (noise:SIGMA)"
    Options: ClassVar[type[Any]] = NoiseOptions

    def predict(self, units: Units, true_work: Floats, ctx: RoundContext) -> Floats:
        """The truth with its error."""
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

    column: str = option("expected", "the trace's column of seconds that the user thinks it takes")


class Declared(Estimator[DeclaredOptions]):
    """What the user thinks it takes; the time limit where the user does not say.

    A job that is given neither is not known.
    """

    name = "declared"
    summary = "the user's own estimate (column expected), else the time limit"
    Options: ClassVar[type[Any]] = DeclaredOptions

    def predict(self, units: Units, true_work: Floats, ctx: RoundContext) -> Floats:
        """Seconds, as declared."""
        said = units.table.extra.get(self.options.column)
        if said is None:
            return units.time_limit
        own = np.asarray(said[units.rows], np.float64)
        return np.where(np.isnan(own), units.time_limit, own)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions:
    """Learning from finished jobs."""

    last: int = option(20, "how many of the most recent similar jobs to average", low=1)
    default_s: float = option(3600.0, "prediction before any job has finished, in seconds", low=1.0)


class History(Estimator[HistoryOptions]):
    """The mean run time of the user's last jobs of the same size, else of the user, else of all.

    Only jobs that have finished by now count, so it knows no more than a live cluster would.
    """

    name = "history"
    summary = "mean of the user's recent jobs of that size, else of the user, else of everybody"
    Options: ClassVar[type[Any]] = HistoryOptions

    def __init__(self, options: HistoryOptions) -> None:
        super().__init__(options)
        self._seen = 0
        self._runs: dict[tuple[int, int], list[float]] = {}

    def predict(self, units: Units, true_work: Floats, ctx: RoundContext) -> Floats:
        """Means over the most recent similar runs."""
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
                return sum(runs) / len(runs)
        return self.options.default_s

    def state_dict(self) -> dict[str, Any]:
        """What was learnt, as [user, GPUs, run times], and from how many runs."""
        runs = [[user, gang, list(took)] for (user, gang), took in self._runs.items()]
        return {"seen": self._seen, "runs": runs}

    def load_state_dict(self, state: Any) -> None:
        """Go on learning."""
        self._seen = state["seen"]
        self._runs = {(int(user), int(gang)): list(took) for user, gang, took in state["runs"]}

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Users keep their codes; of the finished rows, the oldest are forgotten."""
        self._seen = max(self._seen - finished_gone, 0)
