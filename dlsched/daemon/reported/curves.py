"""What running jobs report of their trainings: the newest values, and their course over time.

A curve has a bounded number of points. When it is full, each two neighbours become one point with
their mean, and from then on a point is the mean of twice as many reports. So is the size of what is
stored for a job bounded, and the longer a job runs, the rarer its row is written. Names and numbers
come from users' programs: their length and number are bounded here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dlsched.core.sums import ordered_sum
from dlsched.db.records import Progress
from dlsched.db.trainings import CurvesRow
from dlsched.protocol.messages import JobId, RunId

MOST_POINTS = 200  # of a curve
MOST_NAMES = 24  # of a job's own metrics
WORTH_A_ROW = 8  # new points of the longest curve, after which the row is written again
ROW_EVERY_S = 30.0  # at least, between two rows of a job
OURS = ("loss", "steps_s", "samples_s", "gpu_memory_bytes", "gpu_utilization")
Point = tuple[float, int, float]  # seconds since the epoch, step, value


@dataclass(slots=True)
class Curve:
    """One value over time."""

    points: list[Point] = field(default_factory=list)
    width: int = 1  # reports in one point
    _open: list[Point] = field(default_factory=list)  # reports of the next point

    def add(self, point: Point) -> bool:
        """Add a report; returns whether a point became complete."""
        self._open.append(point)
        if len(self._open) < self.width:
            return False
        self.points.append(_mean(self._open))
        self._open = []
        if len(self.points) >= MOST_POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=True)
            self.points = [_mean(pair) for pair in pairs]
            self.width *= 2
        return True

    def all(self) -> list[Point]:
        """All points, with the mean of the newest reports as the last one."""
        return [*self.points, _mean(self._open)] if self._open else list(self.points)


def _mean(points: Iterable[Point]) -> Point:
    """One point for several: the mean of time and value, the last step."""
    some = list(points)
    count = len(some)
    return (
        ordered_sum(p[0] for p in some) / count,
        some[-1][1],
        ordered_sum(p[2] for p in some) / count,
    )


@dataclass(slots=True)
class Hang:
    """A training that has made no step for long.

    Attributes:
        act_at: when something is done about it, by `boottime`; None: nothing, or it is done.
        stacks: ranks whose stacks have come.
    """

    act_at: float | None
    stacks: set[int] = field(default_factory=set)


@dataclass(slots=True)
class JobCurves:
    """One job's newest values and curves.

    Attributes:
        run: that reported last.
        executed_s: seconds that this run had executed then.
        reported_at: when, by `boottime`; None since a start of the daemon.
        step: the newest step; None: none was reported.
        newest: the newest finite value under each name.
        not_finite: names whose newest value was NaN or infinite.
        doing: what the job said it does in place of steps; empty: steps.
        idle_s: seconds for which the run was seen to execute since its newest step.
        usual_step_s: seconds that a step takes, a moving mean of this run's reports.
        steps_seen: reports of steps by this run.
        hang: the present hang.
        hung_at: the step at which the job hung before; a second time there fails it.
        told: names of which an event of this run says so.
        memory: the most GPU memory, in bytes, that each rank has reported.
        left_out: reported values under more names than are kept.
    """

    run: RunId = RunId("")
    executed_s: float = 0.0
    reported_at: float | None = None
    step: int | None = None
    newest: dict[str, float] = field(default_factory=dict)
    not_finite: set[str] = field(default_factory=set)
    doing: str = ""
    idle_s: float = 0.0
    usual_step_s: float = 0.0
    steps_seen: int = 0
    hang: Hang | None = None
    hung_at: int | None = None
    told: set[str] = field(default_factory=set)
    memory: dict[int, int] = field(default_factory=dict)
    left_out: int = 0
    curves: dict[str, Curve] = field(default_factory=dict)
    points: int = 0  # complete ones of the longest curve that no row has yet
    unwritten: bool = False
    written_at: float = -math.inf  # by `boottime`

    def last_progress(self) -> Progress | None:
        """What the database keeps of the run that reported last, once; None: it has it."""
        if self.reported_at is None or self.step is None:
            return None
        self.reported_at = None
        return Progress(
            run_id=self.run,
            step=self.step,
            executed_s=self.executed_s,
            loss=self.newest.get("loss"),
        )

    def add(self, at: float, step: int, values: Mapping[str, float]) -> None:
        """Add the values of one report, all finite, by name."""
        self.step = step
        grown = False
        for name, value in values.items():
            if name not in self.curves:
                if name not in OURS and self._own() >= MOST_NAMES:
                    self.left_out += 1
                    continue
                self.curves[name] = Curve()
            self.newest[name] = value
            self.not_finite.discard(name)
            grown |= self.curves[name].add((at, step, value))
        self.points += grown
        self.unwritten = self.unwritten or bool(values)

    def _own(self) -> int:
        return sum(name not in OURS for name in self.curves)

    def stepped(self, step: int, batch_s: float | None) -> None:
        """Note a report of steps: the run does not hang."""
        self.doing, self.hang = "", None
        if step != self.step or not self.steps_seen:
            self.idle_s = 0.0
        self.steps_seen += 1
        if batch_s is not None:
            weight = 1.0 / min(self.steps_seen, 20)
            self.usual_step_s += (batch_s - self.usual_step_s) * weight

    def begin(self, run: RunId) -> None:
        """Begin with the reports of another run."""
        self.run = run
        self.doing, self.hang, self.steps_seen, self.idle_s = "", None, 0, 0.0
        self.told.clear()
        self.memory.clear()

    def became_strange(self, names: Iterable[str]) -> list[str]:
        """Note names whose value is NaN or infinite; returns those that this run has first so."""
        room = MOST_NAMES + len(OURS)
        self.not_finite.update([*names][: room - len(self.not_finite)])
        news = [name for name in names if name not in self.told][: room - len(self.told)]
        self.told.update(news)
        return news

    def known(self) -> dict[str, object]:
        """All of it as plain values of bounded length."""
        return {
            "step": self.step,
            "not_finite": sorted(self.not_finite),
            "curves": {
                name: {
                    "width": curve.width,
                    "points": [[round(at, 1), step, _short(v)] for at, step, v in curve.all()],
                }
                for name, curve in self.curves.items()
            },
        }

    @classmethod
    def of_known(cls, known: Mapping[str, Any]) -> JobCurves:
        """What `known` has returned."""
        found = cls(step=known.get("step"), not_finite=set(known.get("not_finite", ())))
        for name, each in known["curves"].items():
            points = [(float(at), int(step), float(value)) for at, step, value in each["points"]]
            found.curves[name] = Curve(points=points, width=int(each["width"]))
            if points:
                found.newest[name] = points[-1][2]
        return found


def _short(value: float) -> float:
    return float(f"{value:.6g}")


class Curves:
    """The curves of all jobs in memory."""

    def __init__(self) -> None:
        self.jobs: dict[JobId, JobCurves] = {}

    def load(self, rows: Iterable[CurvesRow]) -> None:
        """Begin anew from what the database has."""
        self.jobs = {row.job: JobCurves.of_known(row.known) for row in rows}

    def of(self, job: JobId) -> JobCurves:
        """The curves of a job, which may be empty."""
        return self.jobs.setdefault(job, JobCurves())

    def due(self, now: float, at: float, over: frozenset[JobId]) -> Iterator[CurvesRow]:
        """Rows that are to be written now; each is given once.

        Args:
            now: by `boottime`.
            at: the wall clock.
            over: jobs without a live run: what they have reported is written at once.
        """
        for job, mine in self.jobs.items():
            grown = mine.points >= WORTH_A_ROW and now - mine.written_at >= ROW_EVERY_S
            if mine.unwritten and (grown or job in over):
                mine.points, mine.unwritten, mine.written_at = 0, False, now
                yield CurvesRow(job=job, known=mine.known(), at=at)
