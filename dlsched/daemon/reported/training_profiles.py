"""Training profiles of elastic jobs: what they measure, and the goodput that it predicts.

A job measures how long its steps take and how noisy its gradients are. A model of its speed on each
GPU type is fitted to the times of all its runs. Policies decide by it how many GPUs are best for a
job, and the job learns which batch size is best on those that it has.

Profiles live in the main thread. Reports come from users' programs: an invalid one changes nothing
and is counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dlsched.core.errors import BadInput, plural
from dlsched.core.goodput.batch import best_batch
from dlsched.core.goodput.efficiency import UNKNOWN_NOISE, efficiency
from dlsched.core.goodput.fitting import Observations, fit
from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams
from dlsched.core.goodput.throughput import throughput
from dlsched.daemon.message_bounds import LONGEST_TAKEN_S, MOST_STEPS
from dlsched.db.trainings import TrainingRow
from dlsched.protocol.messages import JobId
from dlsched.rpc.v1.control_pb2 import TrainingReport

WORTH_A_CHANGE = 1.05  # gain in goodput for which a running job changes its batch size
MOST_KEYS = 256  # shapes and batch sizes that are kept for a job
LARGEST_BATCH = 10**9
LARGEST_NORM = 1e30


class Place(NamedTuple):
    """Where a run is: on GPUs of one type, on a number of nodes."""

    gpu_type: str
    nodes: int
    gpus: int


class Key(NamedTuple):
    """The shape and batch size that a time was measured for."""

    gpu_type: str
    nodes: int
    replicas: int
    local: int


class Expected(NamedTuple):
    """What a model predicts for a place, with the best batch size there."""

    place: Place
    goodput: float
    throughput: float
    local: int
    accumulation: int


@dataclass(slots=True)
class Times:
    """Mean seconds over some steps: of an accumulating pass, and of the last pass of a step."""

    steps: float = 0.0
    accumulation_s: float = 0.0
    optimiser_s: float = 0.0

    def plus(self, other: Times) -> Times:
        """The means over the steps of both."""
        steps = self.steps + other.steps
        part = other.steps / steps if steps else 0.0
        return Times(
            steps,
            self.accumulation_s + part * (other.accumulation_s - self.accumulation_s),
            self.optimiser_s + part * (other.optimiser_s - self.optimiser_s),
        )


@dataclass(slots=True)
class _Seen:
    """Times of earlier runs, and of the latest run, which reports its own anew each time."""

    run: int
    before: Times = field(default_factory=Times)
    latest: Times = field(default_factory=Times)


@dataclass(slots=True)
class TrainingProfile:
    """The profile of one job's training.

    Attributes:
        limits: of its batch size; None before its first report.
        gradients: their noise; None while it is not measured.
        place: where it reported from last.
        local: samples for each replica and pass, as it reported last.
        accumulation: passes before the one that synchronises, as it reported last.
        progress: in steps at the initial batch size.
        restarts: the number of restarts that were measured.
        restart_s: mean seconds from the start of the processes to the first step.
        saves: the number of checkpoints that were measured.
        save_s: mean seconds of one.
        ignored: the number of invalid reports.
        models: of its speed, by GPU type.
        version: grows with every change of what the profile predicts.
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

    # -- reports -----------------------------------------------------------------------------------

    def take(self, report: TrainingReport, run: int, place: Place) -> None:
        """Take in a valid report of the job's run, and where the run is."""
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
        """Note the seconds from a run's start to its first step."""
        self.restarts += 1
        self.restart_s += (seconds - self.restart_s) / self.restarts
        self.version += 1

    def saved(self, seconds: float) -> None:
        """Note the seconds that a checkpoint took."""
        self.saves += 1
        self.save_s += (seconds - self.save_s) / self.saves
        self.version += 1

    # -- predictions -------------------------------------------------------------------------------

    @property
    def believed_limits(self) -> BatchLimits | None:
        """Batch sizes to plan with: only the initial one while the gradients' noise is unknown."""
        if self.limits is None or self.gradients is not None:
            return self.limits
        return self.limits._replace(maximum=self.limits.initial)

    @property
    def stop_and_start_s(self) -> float:
        """Seconds that a restart costs; NaN while none was measured."""
        return self.save_s + self.restart_s if self.restarts else math.nan

    @property
    def observations(self) -> int:
        """The number of shapes and batch sizes that were measured."""
        return len(self._seen)

    def largest(self, gpu_type: str) -> int:
        """The most replicas that it ever had on a GPU type; 0 for none."""
        return max((key.replicas for key in self._seen if key.gpu_type == gpu_type), default=0)

    def one_gpu_step(self, gpu_type: str) -> float:
        """Seconds for a sample on one GPU of a type, the largest measured; NaN if none was."""
        found = [
            times.optimiser_s / key.local
            for key, times in self._times()
            if key.gpu_type == gpu_type and key.replicas == 1
        ]
        return max(found, default=math.nan)

    def expected(self, place: Place) -> Expected | None:
        """The prediction for a place; None while it is unknown."""
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
        """A better batch size: samples for each replica and pass, and passes before the last one.

        On the GPUs that the job has already, a batch size must be better by `WORTH_A_CHANGE`.
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
        """The goodput of the present batch size, by the model."""
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

    def known(self) -> dict[str, object]:
        """The profile as plain values, without its models."""
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
    def of_known(cls, known: Mapping[str, Any]) -> TrainingProfile:
        """The profile of `known`; its models are fitted anew.

        Raises:
            BadInput: the values are not of this form.
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


class TrainingProfiles:
    """The profiles of all live jobs that have reported anything.

    Attributes:
        trainings: by job.
        ignored: the number of invalid reports of all jobs since this process began.
    """

    def __init__(self) -> None:
        self.trainings: dict[JobId, TrainingProfile] = {}
        self.ignored = 0

    def load(self, told: Iterable[TrainingRow]) -> None:
        """Begin anew from what the database has."""
        self.trainings = {each.job: TrainingProfile.of_known(each.known) for each in told}

    def of(self, job: JobId) -> TrainingProfile:
        """A job's profile, an empty one for a job that has not reported."""
        return self.trainings.setdefault(job, TrainingProfile())

    def forget(self, job: JobId) -> None:
        """Remove a job that has ended."""
        self.trainings.pop(job, None)

    def take(self, job: JobId, run: int, place: Place, report: TrainingReport) -> str:
        """Take in a report, if it is valid.

        Args:
            job: of the report.
            run: the number of its run.
            place: where the run is.
            report: of the run.

        Returns:
            why it is ignored; empty when it is not.
        """
        wrong = _invalid(report, place)
        if wrong:
            self.ignore(job)
        else:
            self.of(job).take(report, run, place)
        return wrong

    def ignore(self, job: JobId, count: int = 1) -> None:
        """Count invalid reports of a job."""
        self.ignored += count
        self.of(job).ignored += count

    def restarted(self, job: JobId, seconds: float) -> None:
        """Note the seconds from a run's start to its first step."""
        if _within(seconds, 0.0, LONGEST_TAKEN_S):
            self.of(job).restarted(seconds)
        else:
            self.ignore(job)

    def saved(self, job: JobId, seconds: float) -> None:
        """Note the seconds that a checkpoint took."""
        if _within(seconds, 0.0, LONGEST_TAKEN_S):
            self.of(job).saved(seconds)
        else:
            self.ignore(job)

    def columns(self, row_of: Mapping[int, int]) -> dict[str, object]:
        """What policies may believe, as columns of the rows that have reported; empty for none."""
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


def _invalid(report: TrainingReport, place: Place) -> str:
    """What is wrong with a report; empty when it is valid."""
    sizes = (report.initial, report.maximum, report.local_min, report.local_max, report.local_now)
    columns = (report.local, report.steps, report.accumulation_s, report.optimiser_s)
    passes = zip(report.accumulation_s, report.optimiser_s, strict=False)
    checks = {
        f"{plural(report.replicas, 'replica')} on {plural(report.nodes, 'node')}": (
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
