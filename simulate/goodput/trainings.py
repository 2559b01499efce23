"""All trainings of a replay: for the world how they go on, for policies what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dlsched.core.allocation import Grant
from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.errors import BadInput
from dlsched.core.goodput.belief import TrainingOracle
from dlsched.core.goodput.efficiency import UNKNOWN_NOISE
from dlsched.core.goodput.params import BatchLimits
from dlsched.core.occupancy import Occupancy, Placement
from dlsched.core.units import UnitTable
from simulate.goodput.application import Application
from simulate.goodput.training import Training
from simulate.traces.trace import Trace

__all__ = ["Oracle", "Trainings", "trainings_of"]

UNKNOWN: tuple[float, ...] = (np.nan,) * 7


def trainings_of(
    trace: Trace, applications: Mapping[str, Application], kind: type[Trainings] | None = None
) -> Trainings:
    """The trainings of a trace, by its columns `model` and `batch_size`.

    Args:
        trace: the jobs.
        applications: what they may be.
        kind: of trainings; plain ones when None.

    Raises:
        BadInput: one line that names the job: no model, one that nobody has measured, or a batch
            size that no training of it can have.
    """
    made = kind or Trainings
    count = len(trace)
    models = trace.columns.get("model", np.full(count, "", np.object_)).tolist()
    sizes = np.asarray(trace.columns.get("batch_size", np.full(count, np.nan)), np.float64)
    found: list[Training] = []
    for row, (model, size) in enumerate(zip(models, sizes.tolist(), strict=True)):
        job = f"{trace.name}: job {trace.job_id[row]}"
        application = applications.get(model)
        if application is None:
            known = ", ".join(sorted(applications))
            raise BadInput(f"{job}: the profile has no application {model!r}; it has {known}")
        asked = application.initial if np.isnan(size) else size
        if not application.initial <= asked <= application.maximum:
            raise BadInput(
                f"{job}: {model} trains with batches of {application.initial} to "
                f"{application.maximum} samples, not {asked:g}"
            )
        found.append(made.Course(application, asked))
    return made(found)


class Trainings:
    """Courses by row; also what policies may believe (`GoodputBelief`).

    Attributes:
        of: by row.
        restart_overhead: seconds that a start costs.
        own_restarts: the same of each job, NaN where it is not known; None: of no job.
        oracle: the truth, for policies; None where the run's estimator does not know it.
        Course: what each of them is.
    """

    Course: ClassVar[Callable[[Any, float], Training]] = Training

    def __init__(self, of: Sequence[Training]) -> None:
        self.of = of
        self.restart_overhead = 0.0
        self.own_restarts: Floats | None = None
        self.oracle: TrainingOracle | None = None

    @property
    def work(self) -> Floats:
        """Progress at which each is complete."""
        return np.array([each.application.work for each in self.of])

    def bound(self, units: UnitTable) -> None:
        """Let every training run on as few or many GPUs as its batch sizes allow."""
        for row, each in enumerate(self.of):
            units.min_gpus[row] = 1
            units.max_gpus[row] = max(each.application.most_gpus, units.gang.item(row))

    def alone_s(self, gangs: Ints, gpus_a_node: int) -> Floats:
        """Seconds that each takes at its own batch size on its gang, in the fewest nodes.

        Args:
            gangs: GPUs of each.
            gpus_a_node: of the largest node.
        """
        found: dict[tuple[str, float, int], float] = {}
        for each, gang in zip(self.of, gangs.tolist(), strict=True):
            key = (each.application.name, each.asked, gang)
            if key not in found:
                whole, rest = divmod(gang, gpus_a_node)
                shape = (gpus_a_node,) * whole + ((rest,) if rest else ())
                found[key] = each.alone(shape)
        keys = zip(self.of, gangs.tolist(), strict=True)
        return np.array([found[each.application.name, each.asked, gang] for each, gang in keys])

    # -- for the world ----------------------------------------------------------------------------

    def begin(
        self,
        row: int,
        placement: Placement,
        occupancy: Occupancy,
        grant: Grant | None,
        ready: float,
    ) -> None:
        """A training starts; without a grant it keeps the batch size that its user asked for."""
        shape = tuple(mask.bit_count() for mask in placement.masks)
        each = self.of[row]
        batch = grant.batch_size if grant is not None and grant.batch_size else each.asked
        each.begin(shape, ready, batch=batch, tunes=grant is not None and grant.tunes_batch)

    def advance(self, row: int, now: float) -> None:
        """It has run until now."""
        self.of[row].advance(now)

    def reconsider(self, row: int) -> bool:
        """A round has come: does it run at another pace, with another batch size?"""
        return self.of[row].reconsider()

    def done_so_far(self, row: int) -> float:
        """Its progress."""
        return self.of[row].progress

    def rate(self, row: int) -> float:
        """Progress per second."""
        return self.of[row].rate

    def look(self, row: int) -> float:
        """The earliest time at which it could be done."""
        return self.of[row].look()

    def finish(self, row: int) -> float | None:
        """When it was done."""
        return self.of[row].finish

    def slow_down(self, row: int, part: float) -> None:
        """It loses a part of its pace."""
        self.of[row].slow_down(part)

    def fall_back(self, row: int, done: float) -> None:
        """It loses progress."""
        self.of[row].fall_back(done)

    def batch_and_goodput(self, row: int) -> tuple[float, float]:
        """Its batch size in all; its progress, in samples at the initial batch, per second."""
        each = self.of[row]
        return float(each.split.batch), each.rate * each.application.initial

    # -- for policies -----------------------------------------------------------------------------

    def perf(self, rows: Rows, gpu_type: str = "") -> Floats:
        """Fitted parameters, [row, 7]; NaN where it has not run yet."""
        found = [self.of[row].perf or UNKNOWN for row in rows.tolist()]
        return np.array(found, np.float64).reshape(len(rows), 7)

    def grads(self, rows: Rows) -> Floats:
        """Gradients, [row, 2]."""
        found = [self.of[row].grads or UNKNOWN_NOISE for row in rows.tolist()]
        return np.array(found, np.float64).reshape(len(rows), 2)

    def limits(self, rows: Rows, gpu_type: str = "") -> BatchLimits:
        """Batch limits, a column each."""
        found = np.array([self.of[row].limits for row in rows.tolist()], np.float64)
        initial, maximum, least, most, accumulates, fixed = found.reshape(len(rows), 6).T
        return BatchLimits(initial, maximum, least, most, accumulates > 0, fixed > 0)

    def replica_gpus(self, rows: Rows, gpu_type: str = "") -> Ints:
        """Every replica is one GPU."""
        return np.ones(len(rows), np.int64)

    def profiled(self, rows: Rows, gpu_type: str = "") -> Ints:
        """Most replicas it ever ran on."""
        return np.array([self.of[row].profiled for row in rows.tolist()], np.int64)

    def one_gpu_step(self, rows: Rows, gpu_type: str = "") -> Floats:
        """Most seconds a sample on one GPU."""
        return np.array([self.of[row].one_gpu_step for row in rows.tolist()], np.float64)

    def restart_s(self, rows: Rows) -> Floats:
        """Seconds that a start costs."""
        if self.own_restarts is None:
            return np.full(len(rows), self.restart_overhead)
        own = self.own_restarts[rows]
        return np.where(np.isnan(own), self.restart_overhead, own)

    def version(self, rows: Rows) -> Ints:
        """Grows with whatever they learn."""
        return np.array([self.of[row].version for row in rows.tolist()], np.int64)


@dataclass(frozen=True, slots=True)
class Oracle:
    """Perfect knowledge of trainings that keep their batch size."""

    of: Sequence[Training]

    def remaining_steps(self, rows: Rows) -> Floats:
        """Steps from the start of the present epoch to the end of the last."""
        return np.array([self._remaining(self.of[row]) for row in rows.tolist()], np.float64)

    @staticmethod
    def _remaining(each: Training) -> float:
        last = each.application.epochs - 1
        if each.epoch >= last:
            return 1.0
        learning = each.application.learning
        return learning.steps_by(each.asked, last) - learning.steps_by(each.asked, each.epoch)

    def measured(self, row: int, shape: tuple[int, ...], local: int) -> tuple[float, float]:
        """The time of a step, and of its synchronising."""
        return self.of[row].application.times.at(shape, local)
