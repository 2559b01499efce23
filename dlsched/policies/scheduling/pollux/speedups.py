"""Speedup tables: what so many replicas are worth to each job, on one node and on several.

The goodput model asks of a placement only whether it spans nodes. So a job's table is two rows of
replicas, made in one pass over arrays for all jobs of which something new is known, and kept for
the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.goodput.batch import best_batches
from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams

__all__ = ["Model", "Tables", "speedup_tables"]

ONE_NODE, SEVERAL = 0, 1


@dataclass(frozen=True, slots=True)
class Model:
    """What is believed of jobs, one array entry a job; NaN parameters where nothing is fitted."""

    perf: PerfParams
    grads: GradParams
    limits: BatchLimits

    def take(self, jobs: Ints) -> Model:
        """Of some of the jobs."""
        count = len(np.atleast_1d(self.perf.alpha_c))
        some = [np.broadcast_to(np.asarray(column), (count,))[jobs] for column in self._columns]
        return Model(PerfParams(*some[:7]), GradParams(*some[7:9]), BatchLimits(*some[9:]))

    def goodput(self, nodes: Ints, replicas: Ints) -> Floats:
        """[job, shape] with the best batch size."""
        return best_batches(self.perf, self.grads, self.limits, nodes, replicas).goodput

    @property
    def _columns(self) -> tuple[object, ...]:
        return (*self.perf, *self.grads, *self.limits)


@dataclass(slots=True)
class Tables:
    """Goodput tables of jobs, kept while what they depend on stays the same."""

    _known: dict[int, tuple[int, Floats]] = field(default_factory=dict)

    def goodput(self, ids: Ints, versions: Ints, model: Model, most: Ints) -> Floats:
        """[job, on several nodes?, replicas], replicas from 0 to the largest of `most`.

        Args:
            ids: a lasting number of each job.
            versions: of what is believed of each; a new number for anything new.
            model: what is believed of them.
            most: replicas up to which each one's entries are needed; the others may be 0.
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
        # jobs that need alike many entries at once, so that none pays for the largest
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

    def rename(self, place: Mapping[int, int]) -> None:
        """Jobs have other numbers now."""
        self._known = {place[old]: kept for old, kept in self._known.items() if old in place}


def _alike(jobs: Ints, most: Ints) -> list[Ints]:
    """Jobs by how many bits the number of their entries has."""
    size = np.ceil(np.log2(np.maximum(most[jobs], 1))).astype(np.int64)
    return [jobs[size == each] for each in np.unique(size)]


def _table(model: Model, most: int) -> Floats:
    """[job, on several nodes?, replicas] of goodput."""
    one = np.arange(1, most + 1)
    several = np.arange(2, most + 1)
    nodes = np.concatenate((np.full(len(one), 1), np.full(len(several), 2)))
    found = model.goodput(nodes, np.concatenate((one, several)))
    tables = np.zeros((found.shape[0], 2, most + 1))
    tables[:, ONE_NODE, 1:] = found[:, :most]
    tables[:, SEVERAL, 2:] = found[:, most:]
    return tables


def speedup_tables(goodput: Floats, base: Floats, fair: int | float) -> Floats:
    """Tables of goodput over a base; a job without a model is believed to scale perfectly.

    Args:
        goodput: [job, on several nodes?, replicas].
        base: [job] goodput of the share that counts as 1; 0 or NaN: there is no model.
        fair: replicas of that share.
    """
    has_model = base > 0
    perfect = np.arange(goodput.shape[2]) / fair
    scaled = goodput / np.where(has_model, base, 1.0)[:, None, None]
    return np.where(has_model[:, None, None], scaled, perfect)
