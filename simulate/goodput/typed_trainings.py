"""All trainings of a replay on several GPU types, and what is known of their speeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dlsched.core.allocation import Grant
from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.cluster.description import Cluster
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.errors import BadInput
from dlsched.core.units import UnitTable
from simulate.goodput.hardware import TypedApplication
from simulate.goodput.trainings import Trainings
from simulate.goodput.typed_training import TypedTraining
from simulate.traces.trace import Trace


class TypedTrainings(Trainings):
    """The trainings of all rows, where GPUs have types.

    Attributes:
        typed: by row.
    """

    training_type: ClassVar[Callable[[Any, float], TypedTraining]] = TypedTraining

    def __init__(self, of: Sequence[TypedTraining]) -> None:
        super().__init__(of)
        self.typed = of

    def check(self, trace: Trace, cluster: Cluster) -> None:
        """Refuse jobs that no type of the cluster was measured for.

        Raises:
            BadInput: one line that names the job.
        """
        for row, each in enumerate(self.typed):
            if not set(each.typed.on) & set(cluster.gpu_types):
                raise BadInput(
                    f"{trace.name}: job {trace.job_id[row]}: {each.typed.name} was measured on "
                    f"{', '.join(sorted(each.typed.on))}, and the cluster has "
                    f"{', '.join(cluster.gpu_types)}"
                )

    def bound(self, units: UnitTable) -> None:
        """Let every training run on as many GPUs as it can; starts take what each one's do."""
        super().bound(units)
        units.extra["restart_overhead"] = np.array([each.typed.restart_s for each in self.typed])

    def alone_s(self, gangs: Ints, gpus_a_node: int) -> Floats:
        """Not known: it depends on the type, and on how far the job adapts."""
        return np.full(len(gangs), np.nan)

    # -- for the world ----------------------------------------------------------------------------

    def begin(
        self,
        row: int,
        placement: Placement,
        occupancy: Occupancy,
        grant: Grant | None,
        ready: float,
    ) -> None:
        """A training starts; on GPUs of several types it runs as fast as on the slowest type.

        On several types, and on a shape that was not measured, it runs as on the fewest nodes, with
        as many of its GPUs as were measured there.
        """
        each = self.typed[row]
        names = occupancy.cluster.gpu_types
        gpu_types = sorted({names[int(occupancy.type_of[node])] for node in placement.nodes})
        for gpu_type in gpu_types:
            if gpu_type not in each.typed.on:
                raise BadInput(
                    f"{each.typed.name} was not measured on {gpu_type}, where it is to run"
                )
        each.gpu_type = max(gpu_types, key=lambda gpu_type: each.typed.on[gpu_type].one_gpu_step)
        shape = tuple(mask.bit_count() for mask in placement.masks)
        batch = grant.batch_size if grant is not None and grant.batch_size else each.asked
        tunes = grant is not None and grant.tunes_batch
        there, count = each.there, min(sum(shape), each.there.widest)
        nearest = (there.together(gpus) for gpus in range(count, 0, -there.unit))
        shapes = nearest if len(gpu_types) > 1 else (shape, *nearest)
        refused: BadInput | None = None
        for candidate in shapes:
            try:
                each.begin(candidate, ready, batch=batch, tunes=tunes)
                return
            except BadInput as error:
                refused = refused or error
        if refused is not None:
            raise refused

    def restart_s(self, rows: Rows) -> Floats:
        """Seconds that schedulers take a start for."""
        return np.array([self.typed[row].typed.believed_restart_s for row in rows.tolist()], float)


class TypedSpeeds:
    """Speeds of jobs that keep their GPUs and their batch size (`core.speed.truth.Speeds`).

    A job lies on as few nodes of a type as can be. A step is one of the optimiser.
    """

    def __init__(self, trainings: TypedTrainings) -> None:
        """Take the trainings of all rows."""
        self._of = trainings.typed
        self._known: dict[tuple[str, float, int, str], float] = {}

    def alone(self, rows: Rows, scales: Ints, types: Sequence[str]) -> Floats:
        """Steps/s of rows that have their GPUs for themselves, [row, type]."""
        found = [
            [self._rate(self._of[row], scale, gpu_type) for gpu_type in types]
            for row, scale in zip(rows.tolist(), scales.tolist(), strict=True)
        ]
        return np.array(found, np.float64).reshape(len(rows), len(types))

    def together(self, first: Rows, second: Rows, scales: Ints, types: Sequence[str]) -> Floats:
        """Zeros, [pair, type, job of the pair]: these trainings share no GPUs.

        Args:
            first: rows.
            second: a row for each of them.
            scales: GPUs of each.
            types: GPU types.
        """
        return np.zeros((len(first), len(types), 2))

    def steps_per_work(self, rows: Rows) -> Floats:
        """Steps at the job's own batch size in one at the initial one, which work is counted in."""
        ratios = [each.typed.initial / each.asked for each in (self._of[r] for r in rows.tolist())]
        return np.array(ratios, np.float64)

    def _rate(self, each: TypedTraining, gpus: int, gpu_type: str) -> float:
        key = (each.typed.name, each.asked, gpus, gpu_type)
        if key not in self._known:
            self._known[key] = self._look_up(each.typed, each.asked, gpus, gpu_type)
        return self._known[key]

    def _look_up(
        self, application: TypedApplication, asked: float, gpus: int, gpu_type: str
    ) -> float:
        there = application.on.get(gpu_type)
        if there is None or gpus % there.unit:
            return 0.0
        shape = there.together(gpus)
        split = application.split_on(there, asked, shape)
        try:
            time = there.times.at(shape, split.local)
        except BadInput:
            return 0.0  # it was measured on nothing like that
        step = time.step_s + (time.step_s - time.sync_s) * split.accumulation
        return 1.0 / step / application.slowdown


def typed(applications: Mapping[str, object]) -> bool:
    """Were these applications measured on several types?"""
    return any(isinstance(each, TypedApplication) for each in applications.values())
