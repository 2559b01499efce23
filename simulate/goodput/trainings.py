"""All trainings of a replay: how they run (for the world), what is known of them (for policies)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dlsched.core.allocation import Grant
from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.errors import BadInput
from dlsched.core.goodput.belief import TrainingOracle
from dlsched.core.goodput.efficiency import UNKNOWN_NOISE
from dlsched.core.goodput.params import BatchLimits
from dlsched.core.units import UnitTable
from simulate.goodput.application import Application
from simulate.goodput.training import Training
from simulate.traces.trace import Trace

UNKNOWN: tuple[float, ...] = (np.nan,) * 7


def trainings_of(
    trace: Trace, applications: Mapping[str, Application], kind: type[Trainings] | None = None
) -> Trainings:
    """The trainings of a trace, by its columns `model` and `batch_size`; plain without a kind.

    Raises:
        BadInput: one line that names the job: no model, one that was not measured, or a batch
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
        found.append(made.training_type(application, asked))
    return made(found)


class Trainings:
    """The trainings of all rows; also what policies may believe (`GoodputBelief`).

    Attributes:
        of: by row.
        restart_overhead: seconds that a start costs.
        own_restarts: the same of each job, NaN where it is not known; None: of no job.
        oracle: the truth, for policies; None where the run's estimator does not know it.
        training_type: the class of each training.
    """

    training_type: ClassVar[Callable[[Any, float], Training]] = Training

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

        `gpus_a_node` is of the largest node.
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
        """A training starts; without a grant it keeps the batch size that its user asked for.

        Args:
            row: the unit.
            placement: its GPUs.
            occupancy: of the cluster, with these GPUs.
            grant: what the policy gave it.
            ready: when it goes on.
        """
        shape = tuple(mask.bit_count() for mask in placement.masks)
        each = self.of[row]
        batch = grant.batch_size if grant is not None and grant.batch_size else each.asked
        each.begin(shape, ready, batch=batch, tunes=grant is not None and grant.tunes_batch)

    # -- for policies -----------------------------------------------------------------------------

    def perf(self, rows: Rows, gpu_type: str = "") -> Floats:
        """Fitted parameters, [row, 7]; NaN where it has not run there yet."""
        found = [self.of[row].perf_on(gpu_type) or UNKNOWN for row in rows.tolist()]
        return np.array(found, np.float64).reshape(len(rows), 7)

    def grads(self, rows: Rows) -> Floats:
        """Gradients, [row, 2]."""
        found = [self.of[row].grads or UNKNOWN_NOISE for row in rows.tolist()]
        return np.array(found, np.float64).reshape(len(rows), 2)

    def limits(self, rows: Rows, gpu_type: str = "") -> BatchLimits:
        """Batch limits, a column each."""
        found = np.array([self.of[row].limits_on(gpu_type) for row in rows.tolist()], np.float64)
        initial, maximum, least, most, accumulates, fixed = found.reshape(len(rows), 6).T
        return BatchLimits(initial, maximum, least, most, accumulates > 0, fixed > 0)

    def replica_gpus(self, rows: Rows, gpu_type: str = "") -> Ints:
        """GPUs of a replica; 0 where it was not measured."""
        return np.array([self.of[row].replica_gpus_on(gpu_type) for row in rows.tolist()], np.int64)

    def profiled(self, rows: Rows, gpu_type: str = "") -> Ints:
        """Most replicas it ever ran on there."""
        return np.array([self.of[row].profiled_on(gpu_type) for row in rows.tolist()], np.int64)

    def one_gpu_step(self, rows: Rows, gpu_type: str = "") -> Floats:
        """Seconds a sample on one GPU; NaN where it is not known."""
        return np.array([self.of[row].one_gpu_step_on(gpu_type) for row in rows.tolist()], float)

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
