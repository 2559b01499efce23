"""The estimator `additive`: durations as a sum of terms that can be read, learned from ended jobs.

Lucid's Workload Estimate Model (ASPLOS 2023): a generalised additive model with pairs over what is
known of a job when it arrives and has been profiled. It is learned anew once a week from all jobs
that have completed by then. Before that, jobs are as long as the mean of those that have completed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.context import RoundContext
from dlsched.core.memory import kept
from dlsched.core.options import option
from dlsched.core.stage import Estimator
from dlsched.core.units import Units
from dlsched.policies.learning.additive import AdditiveModel, Boosting

HOUR_S, DAY_S = 3600.0, 86400.0
MEASURED = ("batch_size", "amp", "gpu_util", "gmem_util")  # further columns, where there are any
KINDS = ("user", "account", "vc", "model")

_COLUMNS: dict[str, Callable[[Units], Floats]] = {
    "user": lambda units: _code(units.user),
    "account": lambda units: _code(units.account),
    "vc": lambda units: _code(units.vc),
    "gpus": lambda units: units.gang.astype(np.float64),
    "cpus": lambda units: units.table.cpus[units.rows],
    "hour of day": lambda units: np.floor(units.submit_time / HOUR_S) % 24,
    "day of week": lambda units: np.floor(units.submit_time / DAY_S) % 7,
    "gpu memory": lambda units: units.gpu_memory,
    "time limit": lambda units: units.time_limit,
}


def _code(codes: Rows) -> Floats:
    """Codes as numbers; unknown is NaN."""
    return np.where(codes >= 0, codes, np.nan).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditiveOptions:
    """A sum of terms, learned from completed jobs."""

    every_s: float = option(604_800.0, "seconds after which the model is learned anew", low=1.0)
    least: int = option(100, "completed jobs before the first model is learned", low=2)
    default_s: float = option(3600.0, "predicted seconds before any job has completed", low=1.0)
    negative_s: float = option(1000.0, "seconds in the place of a negative prediction", low=0.0)
    rounds: int = option(40, "turns of the learning", low=1)
    rate: float = option(0.1, "part of an error that a turn corrects", low=1e-6, high=1.0)
    pairs: int = option(5, "most pairs of features", low=0)


class Additive(Estimator[AdditiveOptions]):
    """A base value, a term for each feature, and terms for some pairs of features."""

    name = "additive"
    summary = "a sum of readable terms, learned weekly from completed jobs (Lucid)"

    _model: AdditiveModel | None = kept(
        None,
        lambda stored: None if stored is None else AdditiveModel.of_state(stored),
        store=lambda model: None if model is None else model.state_dict(),
    )
    _due: float = kept(-np.inf)  # when it is to be learned anew
    _models: dict[str, int] = kept(  # names of trained models, as numbers
        dict, lambda names: {name: number for number, name in enumerate(names)}, store=list
    )

    def predict(self, units: Units, true_work: Floats, ctx: RoundContext) -> Floats:
        """Seconds of work, as the sum of the terms says."""
        self._learn(ctx)
        if self._model is None:
            done = ctx.table.executed[ctx.finished]
            mean = float(done.mean()) if len(done) else self.options.default_s
            return np.full(len(units), mean)
        found = self._model.predict(self._features(units))
        return np.where(found < 0, self.options.negative_s, found)

    def terms(self, units: Units, ctx: RoundContext) -> Mapping[str, Floats]:
        """The base value and what each feature and pair adds, by the present model."""
        if self._model is None:
            return {}
        base = np.full(len(units), self._model.base)
        return {"base": base, **self._model.terms(self._features(units))}

    def _learn(self, ctx: RoundContext) -> None:
        if ctx.now < self._due or len(ctx.finished) < self.options.least:
            return
        units = Units(ctx.table, np.array(ctx.finished, np.int64), ctx.now)
        chosen = self.options
        boosting = Boosting(rate=chosen.rate, rounds=chosen.rounds, pairs=chosen.pairs)
        target = ctx.table.executed[units.rows]
        features = self._features(units)
        self._model = AdditiveModel.fit(features, target, kinds=KINDS, boosting=boosting)
        self._due = ctx.now + chosen.every_s

    def _features(self, units: Units) -> dict[str, Floats]:
        found = {name: column(units) for name, column in _COLUMNS.items()}
        extra = units.table.extra
        for name in MEASURED:
            column = extra.get(name)
            known = column is not None and column.dtype.kind == "f"
            found[name] = units.extra(name) if known else np.full(len(units), np.nan)
        found["model"] = np.full(len(units), np.nan)
        if "model" in extra:
            texts = units.extra("model").tolist()
            numbers = [self._models.setdefault(t, len(self._models)) if t else -1 for t in texts]
            found["model"] = _code(np.array(numbers, np.int64))
        return found
