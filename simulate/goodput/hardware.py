"""What an application does on one type of GPUs: times, batch sizes that fit, GPUs of a replica.

Batch sizes that fit are those that were measured: on the very shape, else on any shape with at
least as many nodes and replicas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dlsched.core.goodput.params import BatchLimits
from simulate.goodput.application import EPS, Application, Split
from simulate.goodput.step_times import Shape, SpreadMeasurement, StepTime, StepTimes, ring_of


@dataclass(frozen=True, slots=True)
class Hardware:
    """One type of GPUs, for one application.

    Attributes:
        times: of steps.
        shapes: samples a replica and times that were measured, by smallest rotation.
        spread: measurements of which only counts are known.
        ceiling: samples a replica that schedulers believe to fit, whatever was measured.
        unit: GPUs of one replica.
    """

    times: StepTimes
    shapes: Mapping[Shape, Sequence[tuple[int, StepTime]]]
    spread: Sequence[SpreadMeasurement] = ()
    ceiling: int = 2**31
    unit: int = 1
    _most: dict[Shape, int] = field(default_factory=dict, repr=False)

    def most_local(self, shape: Shape) -> int:
        """Samples a replica that fit at once."""
        known = self._most.get(shape)
        if known is None:
            known = self._most[shape] = self._look_up(shape)
        return known

    def _look_up(self, shape: Shape) -> int:
        measured = self.shapes.get(ring_of(shape))
        if measured:
            return max(local for local, _ in measured)
        counts = [
            each.local
            for each in self.spread
            if each.nodes >= len(shape) and each.replicas >= sum(shape)
        ]
        everything = [local for rows in self.shapes.values() for local, _ in rows]
        return max(counts or everything)

    def most_measured(self, gpus: int) -> int | None:
        """Most samples a replica on any shape of so many GPUs; None where none was measured."""
        found = [
            local for shape, rows in self.shapes.items() if sum(shape) == gpus for local, _ in rows
        ]
        return max(found, default=None)

    def together(self, gpus: int) -> Shape:
        """So many GPUs on as few nodes of this type as can be."""
        size = max(sum(shape) for shape in self.shapes if len(shape) == 1)
        whole, rest = divmod(gpus, size)
        return (*[size] * whole, *([rest] if rest else []))

    @property
    def widest(self) -> int:
        """GPUs of the largest shape that was measured."""
        listed = max(sum(shape) for shape in self.shapes)
        return max(listed, self.unit * max((each.replicas for each in self.spread), default=0))

    @property
    def one_gpu_step(self) -> float:
        """Seconds a sample on the smallest shape, from the profile that every job begins with."""
        rows = self.shapes[min(self.shapes, key=lambda shape: (sum(shape), len(shape)))]
        return max(time.step_s for _, time in rows) / max(local for local, _ in rows)

    @property
    def most_alone(self) -> int:
        """Samples that schedulers believe to fit on one replica."""
        return min(self.most_local((self.unit,)), self.ceiling)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedApplication(Application):
    """An application that was measured on several types of GPUs.

    Attributes:
        on: by type.
        restart_s: seconds that a start takes.
        believed_restart_s: seconds that schedulers take it for.
    """

    on: Mapping[str, Hardware]
    restart_s: float = 30.0
    believed_restart_s: float = 30.0

    @property
    def most_gpus(self) -> int:
        """GPUs on which a job that chooses its batch size can run."""
        unit = max(each.unit for each in self.on.values())
        return unit * max(self.maximum // self.local_min, 1)

    @property
    def digest(self) -> str:
        """Changes with anything that was measured."""
        parts = (Application.digest.fget(self), self.slowdown, self.restart_s)  # type: ignore[attr-defined]
        tables = [(gpu_type, each.times.tables) for gpu_type, each in sorted(self.on.items())]
        return repr((parts, tables))

    def limits_on(self, gpu_type: str) -> BatchLimits:
        """Batch sizes of jobs that choose theirs."""
        there = self.on.get(gpu_type)
        most = self.local_max if there is None else there.most_alone
        return self.limits._replace(local_max=most)

    def split_on(self, there: Hardware, batch: float, shape: Shape) -> Split:
        """Split a batch over replicas, and over passes where a replica cannot hold its part."""
        replicas = sum(shape) // there.unit
        part = math.ceil(batch / replicas - EPS)
        passes = max(math.ceil(part / there.most_local(shape) - EPS), 1)
        if replicas == 1 and batch > self.initial:
            passes = max(passes, 2)
        return self.capped_on(there, math.ceil(part / passes - EPS), passes - 1, shape)

    def capped_on(self, there: Hardware, local: int, accumulation: int, shape: Shape) -> Split:
        """A split with fewer samples, where more were not measured or cannot be learnt from.

        Args:
            there: the type of the GPUs.
            local: samples a replica and pass.
            accumulation: passes before the one that synchronises.
            shape: GPUs on each node.
        """
        replicas = sum(shape) // there.unit
        count = replicas * (accumulation + 1)
        measured = there.most_measured(sum(shape))
        local = max(local, 1) if measured is None else min(max(local, 1), measured)
        local = min(local, max(int(self.maximum / count), 1))
        return Split(local, accumulation, local * count)
