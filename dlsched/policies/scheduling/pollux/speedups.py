"""Speedup tables of jobs, by number of replicas, on one node and on several.

Of a placement, the goodput model uses only whether it spans nodes. So a job's table is two rows by
number of replicas. Tables are computed in one pass over arrays for all jobs with a new model, and
kept for the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.goodput.batch import best_batches
from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams
from dlsched.core.memory import Remembering, by_row

ONE_NODE, SEVERAL = 0, 1


@dataclass(frozen=True, slots=True)
class Model:
    """The goodput models of jobs, one array entry a job; NaN parameters where nothing is fitted."""

    perf: PerfParams
    grads: GradParams
    limits: BatchLimits

    def take(self, jobs: Ints) -> Model:
        """The models of some of the jobs."""
        count = len(np.atleast_1d(self.perf.alpha_c))
        some = [np.broadcast_to(np.asarray(column), (count,))[jobs] for column in self._columns]
        return Model(PerfParams(*some[:7]), GradParams(*some[7:9]), BatchLimits(*some[9:]))

    def goodput(self, nodes: Ints, replicas: Ints) -> Floats:
        """Goodput with the best batch size, [job, shape]."""
        return best_batches(self.perf, self.grads, self.limits, nodes, replicas).goodput

    @property
    def _columns(self) -> tuple[object, ...]:
        return (*self.perf, *self.grads, *self.limits)


class Tables(Remembering):
    """Goodput tables of jobs, kept while their models stay the same."""

    _known: dict[int, tuple[int, Floats]] = by_row(is_stored=False)

    def goodput(self, ids: Ints, versions: Ints, model: Model, most: Ints) -> Floats:
        """Goodput, [job, on several nodes?, replicas], replicas from 0 to the largest of `most`.

        Args:
            ids: a permanent number of each job.
            versions: version of each job's model.
            model: the models.
            most: replicas up to which a job's entries are needed; entries beyond may be 0.
        """
        largest = int(most.max(initial=1))
        known: dict[int, tuple[int, Floats]] = {}
        missing = []
        for job, (number, version, need) in enumerate(
            zip(ids.tolist(), versions.tolist(), most.tolist(), strict=True)
        ):
            kept = self._known.get(number)
            if kept is not None and kept[0] == version and kept[1].shape[1] > need:
                known[number] = kept
            else:
                missing.append(job)
        # jobs with about equally many entries together, so that small ones stay cheap
        for jobs in _alike(np.array(missing, np.int64), most):
            need = int(most[jobs].max())
            made = _table(model.take(jobs), need)
            for job, table in zip(jobs.tolist(), made, strict=True):
                known[int(ids[job])] = (int(versions[job]), table)
        self._known = known
        tables = np.zeros((len(ids), 2, largest + 1))
        for job, number in enumerate(ids.tolist()):
            table = known[number][1]
            width = min(table.shape[1], largest + 1)
            tables[job, :, :width] = table[:, :width]
        return tables


def _alike(jobs: Ints, most: Ints) -> list[Ints]:
    """Groups of jobs with about equally many entries (equal numbers of bits)."""
    size = np.ceil(np.log2(np.maximum(most[jobs], 1))).astype(np.int64)
    return [jobs[size == each] for each in np.unique(size)]


def _table(model: Model, most: int) -> Floats:
    """Goodput, [job, on several nodes?, replicas]."""
    one = np.arange(1, most + 1)
    several = np.arange(2, most + 1)
    nodes = np.concatenate((np.full(len(one), 1), np.full(len(several), 2)))
    found = model.goodput(nodes, np.concatenate((one, several)))
    tables = np.zeros((found.shape[0], 2, most + 1))
    tables[:, ONE_NODE, 1:] = found[:, :most]
    tables[:, SEVERAL, 2:] = found[:, most:]
    return tables


def speedup_tables(goodput: Floats, base: Floats, fair: int | float) -> Floats:
    """Tables of speedups: goodput over a base; jobs without a model are assumed to scale linearly.

    `goodput` is [job, on several nodes?, replicas]; `base` is the goodput of `fair` replicas, which
    counts as 1, by job, and 0 or NaN without a model.
    """
    has_model = base > 0
    perfect = np.arange(goodput.shape[2]) / fair
    scaled = goodput / np.where(has_model, base, 1.0)[:, None, None]
    return np.where(has_model[:, None, None], scaled, perfect)
