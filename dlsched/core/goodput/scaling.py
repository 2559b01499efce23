"""Speeds by number of GPUs of trainings that keep the batch size they asked for.

`TrainingScaling` knows the truth of a replay, `FittedScaling` what was fitted to each job. Both
speak of gangs that fill whole nodes and put the rest on one more.
"""

from __future__ import annotations

import math

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.goodput.belief import GoodputBelief, TrainingOracle
from dlsched.core.goodput.params import PerfParams
from dlsched.core.goodput.throughput import iteration_time
from dlsched.core.units import Units, UnitTable

EPS = 1e-8  # a part that is whole but for rounding is whole


def split(batch: float, gpus: int, local_max: int, maximum: int) -> tuple[int, int]:
    """A batch over GPUs and passes: samples a replica and pass, and passes before the last.

    Nothing is left out, so that the whole may be a little more than the batch, but not more than
    the maximum. One GPU takes at least two passes, without which gradients show no noise.

    Args:
        batch: samples in all.
        gpus: how many replicas there are.
        local_max: the most samples a replica and pass.
        maximum: the most samples in all.
    """
    part = math.ceil(batch / gpus - EPS)
    passes = math.ceil(part / local_max - EPS) - 1
    if gpus == 1:
        passes = max(passes, 1)
    local = math.ceil(part / (passes + 1) - EPS)
    return min(local, int(maximum / (gpus * (passes + 1)))), passes


def most_gpus(belief: GoodputBelief, table: UnitTable, rows: Rows) -> Ints:
    """GPUs on which rows can keep the batch that they asked for: each computes a part of it."""
    limits = belief.limits(rows)
    batch = np.asarray(table.extra["batch_size"], np.float64)[rows]
    apart = np.where(np.isnan(batch), limits.initial, batch) // limits.local_min
    most = np.where(np.asarray(limits.fixed, np.bool_), table.max_gpus[rows], np.maximum(apart, 1))
    found: Ints = np.minimum(most, table.max_gpus[rows]).astype(np.int64)
    return found


class TrainingScaling:
    """Step times as they were measured; those of equal trainings are looked up once."""

    def __init__(
        self, oracle: TrainingOracle, belief: GoodputBelief, table: UnitTable, node_gpus: int
    ) -> None:
        """Look at the trainings of a table.

        Args:
            oracle: the truth.
            belief: for the limits of batch sizes.
            table: its columns `model` and `batch_size` say what a row trains.
            node_gpus: GPUs of a node.
        """
        self._oracle = oracle
        self._node_gpus = node_gpus
        rows = np.arange(len(table))
        limits = [np.broadcast_to(column, rows.shape) for column in belief.limits(rows)]
        initial, self._maximum, _, self._local_max, *_ = limits
        asked = np.asarray(table.extra["batch_size"], np.float64)
        self._batch: Floats = np.where(np.isnan(asked), initial, asked)
        self._most: list[int] = most_gpus(belief, table, rows).tolist()
        models = table.extra["model"].tolist()
        self._kind = [
            (str(model), batch) for model, batch in zip(models, self._batch.tolist(), strict=True)
        ]
        self._shared: dict[tuple[str, float], dict[int, float]] = {}
        self._steps: list[dict[int, float] | None] = [None] * len(table)

    def most(self, row: int) -> int:
        """GPUs that a row can use: each has a part of its batch that is worth computing."""
        return self._most[row]

    def step(self, row: int, gpus: int) -> float:
        """Seconds of a step of one row."""
        if gpus > self._most[row]:
            return math.inf
        known = self._steps[row]
        if known is None:
            known = self._steps[row] = self._shared.setdefault(self._kind[row], {})
        seconds = known.get(gpus)
        if seconds is None:
            seconds = known[gpus] = self._measure(row, gpus)
        return seconds

    def _measure(self, row: int, gpus: int) -> float:
        local, passes = split(
            self._batch.item(row), gpus, int(self._local_max[row]), int(self._maximum[row])
        )
        whole, rest = divmod(gpus, self._node_gpus)
        shape = (self._node_gpus,) * whole + ((rest,) if rest else ())
        step_s, sync_s = self._oracle.measured(row, shape, local)
        return step_s + passes * (step_s - sync_s)

    def rates(self, rows: Rows, most: int) -> Floats:
        """Steps per second on 1 to `most` GPUs, [row, GPUs - 1]."""
        found = [1.0 / self.step(row, gpus) for row in rows.tolist() for gpus in range(1, most + 1)]
        return np.array(found, np.float64).reshape(len(rows), most)

    def version(self, rows: Rows) -> int:
        """The truth stays as it is."""
        return 0

    def steps_left(self, units: Units) -> Floats:
        """Steps from the start of the present epoch to the end."""
        return self._oracle.remaining_steps(units.rows)


class FittedScaling:
    """Step times of the model that was fitted to a job; NaN while there is none."""

    def __init__(self, belief: GoodputBelief, node_gpus: int) -> None:
        """Look at fitted models, on nodes of `node_gpus` GPUs."""
        self._belief = belief
        self._node_gpus = node_gpus

    def rates(self, rows: Rows, most: int) -> Floats:
        """Steps per second on 1 to `most` GPUs at the initial batch, [row, GPUs - 1]."""
        replicas = np.arange(1.0, most + 1)[None, :]
        nodes = np.ceil(replicas / self._node_gpus)
        perf = PerfParams(*(column[:, None] for column in self._belief.perf(rows).T))
        limits = self._belief.limits(rows)
        initial, most_local, least_local = (
            np.asarray(column, np.float64).reshape(-1, 1)
            for column in (limits.initial, limits.local_max, limits.local_min)
        )
        part = initial / replicas
        passes = np.ceil(part / most_local - EPS)
        local = np.maximum(part / passes, least_local)
        seconds = iteration_time(perf, nodes, replicas, local, passes - 1)
        return np.where((part < least_local) & (replicas > 1), 0.0, 1.0 / seconds)

    def step(self, row: int, gpus: int) -> float:
        """Seconds a step of one row takes."""
        rate = self.rates(np.array([row]), gpus).item(0, gpus - 1)
        return 1.0 / rate if rate else math.inf

    def version(self, rows: Rows) -> int:
        """Grows with every fit."""
        return int(self._belief.version(rows).sum()) + 1

    def steps_left(self, units: Units) -> Floats:
        """Predicted seconds left, which are meant on the gang that was asked for, in steps."""
        rates = self.rates(units.rows, int(units.gang.max(initial=1)))
        own = rates[np.arange(len(units)), units.gang - 1]
        left: Floats = units.remaining_work * own
        return left
