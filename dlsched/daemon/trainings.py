"""What elastic jobs tell of their trainings, and what is believed of their goodput because of it.

A job measures what steps take and how noisy its gradients are. A model of its speed on each GPU
type is fitted to the times of all its runs. Policies decide by it on how many GPUs the job is worth
most, and the job is told which batch size is best on those it has.

Main thread only. Reports come from users' programs: one that makes no sense changes nothing and is
counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dlsched.core.errors import BadInput
from dlsched.core.goodput.batch import best_batch
from dlsched.core.goodput.efficiency import UNKNOWN_NOISE, efficiency
from dlsched.core.goodput.fitting import Observations, fit
from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams
from dlsched.core.goodput.throughput import throughput
from dlsched.daemon.believable import LONGEST_TAKEN_S, MOST_STEPS
from dlsched.db.trainings import TrainingTold
from dlsched.protocol.messages import JobId
from dlsched.rpc.v1.control_pb2 import TrainingReport

__all__ = ["Expected", "Place", "Training", "TrainingBook"]

WORTH_A_CHANGE = 1.05  # gain in goodput for which a running job changes its batch size
MOST_KEYS = 256  # shapes and batch sizes that are remembered of a job
LARGEST_BATCH = 10**9
LARGEST_NORM = 1e30


class Place(NamedTuple):
    """What a run has: GPUs of one type on some nodes."""

    gpu_type: str
    nodes: int
    gpus: int


class Key(NamedTuple):
    """What a time was measured of."""

    gpu_type: str
    nodes: int
    replicas: int
    local: int


class Expected(NamedTuple):
    """What is to be expected of a place with the best batch size there."""

    place: Place
    goodput: float
    throughput: float
    local: int
    accumulation: int


@dataclass(slots=True)
class Times:
    """Mean seconds over some steps: of a pass, and of the last one of a step."""

    steps: float = 0.0
    accumulation_s: float = 0.0
    optimiser_s: float = 0.0

    def plus(self, other: Times) -> Times:
        """Both together."""
        steps = self.steps + other.steps
        part = other.steps / steps if steps else 0.0
        return Times(
            steps,
            self.accumulation_s + part * (other.accumulation_s - self.accumulation_s),
            self.optimiser_s + part * (other.optimiser_s - self.optimiser_s),
        )


@dataclass(slots=True)
class _Seen:
    """Times of earlier runs, and of the latest one, which tells its own as they grow."""

    run: int
    before: Times = field(default_factory=Times)
    latest: Times = field(default_factory=Times)


@dataclass(slots=True)
class Training:
    """One job's.

    Attributes:
        limits: of its batch size; None: it has told nothing yet.
        gradients: their noise; None: not measured.
        place: where it told last.
        local: samples a replica and pass, as it told last.
        accumulation: passes before the one that synchronises, likewise.
        progress: in steps at the initial batch size.
        restarts: how many were measured.
        restart_s: from the start of the processes to the first step, the mean.
        saves: how many checkpoints were measured.
        save_s: of one, the mean.
        ignored: reports that made no sense.
        models: of its speed, by GPU type.
        version: grows with whatever changes what is believed.
    """

    limits: BatchLimits | None = None
    gradients: GradParams | None = None
    place: Place | None = None
    local: int = 0
    accumulation: int = 0
    progress: float = 0.0
    restarts: int = 0
    restart_s: float = 0.0
    saves: int = 0
    save_s: float = 0.0
    ignored: int = 0
    models: dict[str, PerfParams] = field(default_factory=dict)
    version: int = 0
    _seen: dict[Key, _Seen] = field(default_factory=dict)

    # -- what is told ------------------------------------------------------------------------------

    def take(self, report: TrainingReport, run: int, place: Place) -> None:
        """Believe a report that was found to make sense."""
        self.version += 1
        self.limits = _limits(report)
        if report.HasField("gradient_sqr") and report.HasField("gradient_var"):
            self.gradients = GradParams(report.gradient_sqr, report.gradient_var)
        self.place = place._replace(nodes=report.nodes, gpus=report.replicas)
        self.local, self.accumulation = report.local_now, report.accumulation_now
        self.progress = max(self.progress, report.progress)
        columns = zip(
            report.local, report.steps, report.accumulation_s, report.optimiser_s, strict=True
        )
        for local, steps, accumulation_s, optimiser_s in columns:
            key = Key(place.gpu_type, report.nodes, report.replicas, local)
            if key not in self._seen and len(self._seen) >= MOST_KEYS:
                continue
            seen = self._seen.setdefault(key, _Seen(run))
            if seen.run != run:
                seen.before, seen.run = seen.before.plus(seen.latest), run
            seen.latest = Times(steps, accumulation_s, optimiser_s)
        if len(report.local):
            self._fit(place.gpu_type)

    def restarted(self, seconds: float) -> None:
        """A run has done its first step."""
        self.restarts += 1
        self.restart_s += (seconds - self.restart_s) / self.restarts
        self.version += 1

    def saved(self, seconds: float) -> None:
        """A checkpoint was written."""
        self.saves += 1
        self.save_s += (seconds - self.save_s) / self.saves
        self.version += 1

    # -- what is believed --------------------------------------------------------------------------

    @property
    def believed_limits(self) -> BatchLimits | None:
        """Batch sizes to plan with: while nobody knows the noise, the initial one."""
        if self.limits is None or self.gradients is not None:
            return self.limits
        return self.limits._replace(maximum=self.limits.initial)

    @property
    def stop_and_start_s(self) -> float:
        """Seconds without progress that a restart costs; NaN: none was measured."""
        return self.save_s + self.restart_s if self.restarts else math.nan

    @property
    def observations(self) -> int:
        """How many shapes and batch sizes were measured."""
        return len(self._seen)

    def largest(self, gpu_type: str) -> int:
        """Most replicas it ever ran on there; 0: none."""
        return max((key.replicas for key in self._seen if key.gpu_type == gpu_type), default=0)

    def one_gpu_step(self, gpu_type: str) -> float:
        """Seconds a sample on one GPU there, the largest measured; NaN: never measured."""
        found = [
            times.optimiser_s / key.local
            for key, times in self._times()
            if key.gpu_type == gpu_type and key.replicas == 1
        ]
        return max(found, default=math.nan)

    def expected(self, place: Place) -> Expected | None:
        """The best batch size somewhere; None while that cannot be said."""
        model, limits = self.models.get(place.gpu_type), self.believed_limits
        if model is None or limits is None or place.gpus < 1:
            return None
        noise = self.gradients or UNKNOWN_NOISE
        best = best_batch(model, noise, limits, place.nodes, place.gpus)
        if not float(best.goodput) > 0:
            return None
        local, passes = int(best.local), int(best.accumulation)
        speed = throughput(model, place.nodes, place.gpus, local, passes)
        return Expected(place, float(best.goodput), float(speed), local, passes)

    def better_batch(self, place: Place) -> tuple[int, int] | None:
        """Samples a replica and pass, and passes before the last, that would do better there.

        Where the job is already, only what is better by so much that it is worth a change.
        """
        best = self.expected(place)
        if best is None or self.gradients is None or self.limits is None or self.limits.fixed:
            return None
        if place != self.place:
            return best.local, best.accumulation
        if (best.local, best.accumulation) == (self.local, self.accumulation):
            return None
        if best.goodput <= WORTH_A_CHANGE * self._goodput_now():
            return None
        return best.local, best.accumulation

    def _goodput_now(self) -> float:
        """Of the present batch size, by the model."""
        if self.place is None or self.limits is None or self.gradients is None:
            return 0.0
        model = self.models[self.place.gpu_type]
        speed = throughput(model, self.place.nodes, self.place.gpus, self.local, self.accumulation)
        batch = self.place.gpus * self.local * (self.accumulation + 1)
        scale = max(batch / float(self.limits.initial), 1.0)
        return float(speed * efficiency(self.gradients, scale))

    def _times(self) -> list[tuple[Key, Times]]:
        return [(key, seen.before.plus(seen.latest)) for key, seen in self._seen.items()]

    def _fit(self, gpu_type: str) -> None:
        some = [(key, times) for key, times in self._times() if key.gpu_type == gpu_type]
        seen = Observations(
            nodes=np.array([key.nodes for key, _ in some], np.int64),
            replicas=np.array([key.replicas for key, _ in some], np.int64),
            local=np.array([key.local for key, _ in some], np.int64),
            accumulation_s=np.array([times.accumulation_s for _, times in some]),
            optimiser_s=np.array([times.optimiser_s for _, times in some]),
        )
        self.models[gpu_type] = fit(seen, warm=self.models.get(gpu_type)).params

    # -- in the database ---------------------------------------------------------------------------

    def known(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "limits": None if self.limits is None else [float(x) for x in self.limits],
            "gradients": None if self.gradients is None else [float(x) for x in self.gradients],
            "place": None if self.place is None else list(self.place),
            "batch": [self.local, self.accumulation],
            "progress": self.progress,
            "restarts": [self.restarts, self.restart_s],
            "saves": [self.saves, self.save_s],
            "ignored": self.ignored,
            "times": [
                [*key, seen.run, *astuple(seen.before), *astuple(seen.latest)]
                for key, seen in self._seen.items()
            ],
        }

    @classmethod
    def of_known(cls, known: Mapping[str, Any]) -> Training:
        """From the values of `known`; the models are fitted anew.

        Raises:
            BadInput: they are none.
        """
        try:
            found = cls(
                limits=None if known["limits"] is None else _as_limits(*known["limits"]),
                gradients=None if known["gradients"] is None else GradParams(*known["gradients"]),
                place=None if known["place"] is None else Place(*known["place"]),
                local=known["batch"][0],
                accumulation=known["batch"][1],
                progress=known["progress"],
                restarts=known["restarts"][0],
                restart_s=known["restarts"][1],
                saves=known["saves"][0],
                save_s=known["saves"][1],
                ignored=known["ignored"],
            )
            for row in known["times"]:
                key, (run, *times) = Key(*row[:4]), row[4:]
                found._seen[key] = _Seen(run, Times(*times[:3]), Times(*times[3:]))
            for gpu_type in {key.gpu_type for key in found._seen}:
                found._fit(gpu_type)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise BadInput(f"what is stored of a training cannot be read: {error}") from None
        return found


class TrainingBook:
    """All live jobs' that have told anything.

    Attributes:
        trainings: by job.
        ignored: reports that made no sense, of all jobs since this process began.
    """

    def __init__(self) -> None:
        self.trainings: dict[JobId, Training] = {}
        self.ignored = 0

    def load(self, told: Iterable[TrainingTold]) -> None:
        """Begin anew from what the database knows."""
        self.trainings = {each.job: Training.of_known(each.known) for each in told}

    def of(self, job: JobId) -> Training:
        """A job's, a new one for a job that has told nothing yet."""
        return self.trainings.setdefault(job, Training())

    def forget(self, job: JobId) -> None:
        """A job has ended."""
        self.trainings.pop(job, None)

    def told(self, job: JobId, run: int, place: Place, report: TrainingReport) -> str:
        """A run reports; why it is ignored, empty when it is believed."""
        wrong = _nonsense(report, place)
        if wrong:
            self.ignore(job)
        else:
            self.of(job).take(report, run, place)
        return wrong

    def ignore(self, job: JobId, count: int = 1) -> None:
        """A job has said what makes no sense."""
        self.ignored += count
        self.of(job).ignored += count

    def restarted(self, job: JobId, seconds: float) -> None:
        """A run has done its first step so many seconds after its start."""
        if _within(seconds, 0.0, LONGEST_TAKEN_S):
            self.of(job).restarted(seconds)
        else:
            self.ignore(job)

    def saved(self, job: JobId, seconds: float) -> None:
        """A checkpoint took so many seconds."""
        if _within(seconds, 0.0, LONGEST_TAKEN_S):
            self.of(job).saved(seconds)
        else:
            self.ignore(job)

    def columns(self, row_of: Mapping[int, int]) -> dict[str, Any]:
        """What policies may believe, as columns of the rows that have told; empty: nobody has."""
        some = [
            (row_of[job], training, limits)
            for job, training in sorted(self.trainings.items())
            if job in row_of and (limits := training.believed_limits) is not None
        ]
        if not some:
            return {}
        types = sorted({name for _, training, _ in some for name in training.models})
        unknown = PerfParams(*[math.nan] * 7)
        trainings = [training for _, training, _ in some]
        return {
            "types": tuple(types),
            "rows": np.array([row for row, _, _ in some], np.int64),
            "limits": np.array([[float(x) for x in limits] for _, _, limits in some]),
            "grads": np.array([t.gradients or UNKNOWN_NOISE for t in trainings], np.float64),
            "restart_s": np.array([t.stop_and_start_s for t in trainings]),
            "version": np.array([t.version for t in trainings], np.int64),
            "perf": np.array(
                [[t.models.get(name, unknown) for name in types] for t in trainings], np.float64
            ).reshape(len(some), len(types), 7),
            "profiled": np.array(
                [[t.largest(name) for name in types] for t in trainings], np.int64
            ).reshape(len(some), len(types)),
            "one_gpu_step": np.array(
                [[t.one_gpu_step(name) for name in types] for t in trainings], np.float64
            ).reshape(len(some), len(types)),
        }


def _as_limits(
    initial: float, maximum: float, least: float, most: float, accumulation: float, fixed: float
) -> BatchLimits:
    return BatchLimits(initial, maximum, least, most, bool(accumulation), bool(fixed))


def _limits(report: TrainingReport) -> BatchLimits:
    return BatchLimits.of(
        report.initial,
        report.maximum,
        report.local_min,
        report.local_max,
        accumulation=report.may_accumulate,
        fixed=report.fixed,
    )


def _nonsense(report: TrainingReport, place: Place) -> str:
    """What is wrong with a report; empty when it could be."""
    sizes = (report.initial, report.maximum, report.local_min, report.local_max, report.local_now)
    columns = (report.local, report.steps, report.accumulation_s, report.optimiser_s)
    passes = zip(report.accumulation_s, report.optimiser_s, strict=False)
    checks = {
        f"{report.replicas} replicas on {report.nodes} nodes": (
            1 <= report.nodes <= min(place.nodes, report.replicas)
            and report.replicas <= max(place.gpus, 1)
        ),
        "batch sizes": all(_within(size, 1, LARGEST_BATCH) for size in sizes)
        and report.initial <= report.maximum
        and report.local_min <= report.local_max,
        "accumulation": _within(report.accumulation_now, 0, LARGEST_BATCH),
        "progress": _within(report.progress, 0, MOST_STEPS),
        "gradient noise": _within(report.gradient_sqr, 0, LARGEST_NORM)
        and _within(report.gradient_var, 0, LARGEST_NORM),
        "columns": len({len(column) for column in columns}) == 1
        and len(set(report.local)) == len(report.local) <= MOST_KEYS,
        "local batch sizes": all(_within(size, 1, LARGEST_BATCH) for size in report.local),
        "steps": all(_within(count, 1, MOST_STEPS) for count in report.steps),
        "times": all(0 < a <= b <= LONGEST_TAKEN_S for a, b in passes),
    }
    wrong = [what for what, holds in checks.items() if not holds]
    if not wrong:
        try:
            _limits(report)
        except BadInput as error:
            return str(error)
    return ", ".join(wrong)


def _within(number: float, least: float, most: float) -> bool:
    return least <= number <= most  # false for NaN
