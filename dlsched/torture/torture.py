"""One torture test: jobs and faults from a seed, bounded in time, and what was seen at the end."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dlsched.client.job_records import Job
from dlsched.core.errors import DlschedError
from dlsched.torture.faults import Faults
from dlsched.torture.marks import read_marks, watched_script
from dlsched.torture.users import User, Wanted
from dlsched.torture.verdict import ENDED, Accepted, History, Seen

LINES = (1, 60)  # of a job's output, ten a second
CODES = (0, 0, 0, 1, 7, 42)
PART_OF_TIME = 0.8  # in which jobs are submitted
BREATH_S = 1.5  # between two faults, at the most
LOOK_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of it."""

    jobs: int
    gpus: int  # at most for a job
    seconds: float  # of faults
    settle_s: float  # at most, until all jobs have ended
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A job of the plan."""

    at_s: float
    user: User
    gpus: int
    lines: int
    code: int


class Submissions(Protocol):
    """Submits jobs."""

    def submit(self, user: User, wanted: Wanted) -> int | None:
        """Submit one; None: no daemon has answered."""


class Looks(Protocol):
    """Looks at a cluster."""

    def jobs(self, ids: Sequence[int]) -> Iterator[Job]:
        """Some jobs."""

    def shared_gpus(self) -> list[str]:
        """GPUs that are shown with two jobs, in words."""


def plan(size: Size, users: Sequence[User]) -> list[Planned]:
    """The jobs that a seed stands for, by time."""
    rng = random.Random(f"jobs/{size.seed}")
    found = [
        Planned(
            at_s=rng.uniform(0.0, PART_OF_TIME * size.seconds),
            user=rng.choice(list(users)),
            gpus=rng.randint(1, size.gpus),
            lines=rng.randint(*LINES),
            code=rng.choice(CODES),
        )
        for _ in range(size.jobs)
    ]
    return sorted(found, key=lambda each: each.at_s)


def seen_of(job: Job) -> Seen:
    """A job as the verdict needs it."""
    return Seen(
        state=job.state,
        code=job.exit_code,
        signal=job.exit_signal,
        starts=job.starts,
        reason=job.reason or "",
    )


@dataclass(slots=True, kw_only=True)
class Torture:
    """A test under way.

    Attributes:
        size: of it.
        users: under which jobs are submitted.
        faults: that may strike.
        submissions: to the cluster.
        looks: at the cluster.
        folder: that users and nodes share: marks and outputs are below it.
        say: takes a line for each thing that happens.
    """

    size: Size
    users: Sequence[User]
    faults: Faults
    submissions: Submissions
    looks: Looks
    folder: Path
    say: Callable[[str], None] = print
    _accepted: dict[int, Planned] = field(default_factory=dict, init=False)
    _doubled: list[int] = field(default_factory=list, init=False)
    _touched: set[int] = field(default_factory=set, init=False)
    _earlier: list[tuple[int, Seen]] = field(default_factory=list, init=False)
    _shared: dict[str, None] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _began: float = field(default=0.0, init=False)

    def run(self) -> History:
        """Submit, strike, heal, wait until all has ended or the time is over, and tell what was.

        Raises:
            DlschedError: the cluster refuses the jobs.
        """
        for name in ("marks", "out"):
            place = self.folder / name
            place.mkdir(exist_ok=True)
            place.chmod(0o777)  # not sticky: users write to the same files
        self._began = time.monotonic()
        todo = plan(self.size, self.users)
        with ThreadPoolExecutor(max(1, len(self.users))) as pool:
            mine = {
                user: [each for each in todo if each.user == user]
                for user in dict.fromkeys(self.users)
            }
            streams = [pool.submit(self._stream, each) for each in mine.values()]
            self._strike_until(self._began + self.size.seconds)
            self.say(f"{self._now()}no more faults; waiting for {len(self._accepted)} jobs")
            self._settle(streams)
            for stream in streams:
                stream.result()
        return self._history()

    def _now(self) -> str:
        return f"{time.monotonic() - self._began:6.1f} s  "

    # -- jobs ------------------------------------------------------------------------------------

    def _stream(self, todo: Sequence[Planned]) -> None:
        for each in todo:
            wait = self._began + each.at_s - time.monotonic()
            if wait > 0:
                time.sleep(wait)
            body = (
                f'for i in $(seq 1 {each.lines}); do echo "$DLSCHED_RUN $i"; sleep 0.1; done; '
                f"exit {each.code}"
            )
            job = self.submissions.submit(
                each.user,
                Wanted(
                    script=watched_script(self.folder / "marks", body),
                    output=str(self.folder / "out" / "%j.%n.out"),
                    folder=str(self.folder / "out"),
                    gpus=each.gpus,
                ),
            )
            if job is not None:
                with self._lock:
                    if job in self._accepted:
                        self._doubled.append(job)
                    self._accepted[job] = each

    # -- faults ----------------------------------------------------------------------------------

    def _strike_until(self, end: float) -> None:
        """Each fault once in a turn, in an order of the seed's, one at a time."""
        rng = random.Random(f"faults/{self.size.seed}")
        while self.faults.strikes and time.monotonic() < end:
            names = sorted(self.faults.strikes)
            rng.shuffle(names)
            for name in names:
                time.sleep(rng.uniform(0.2, BREATH_S))
                if time.monotonic() >= end:
                    return
                struck = self.faults.strikes[name](rng)
                self._touched |= struck.jobs
                self.say(f"{self._now()}{struck.what}")
                self._look()
        time.sleep(max(0.0, end - time.monotonic()))

    # -- looking ---------------------------------------------------------------------------------

    def _look(self) -> bool:
        """Note how jobs are; true when all that were accepted have ended."""
        with self._lock:
            ids = sorted(self._accepted)
        try:
            seen = {job.job_id: seen_of(job) for job in self.looks.jobs(ids)}
            self._shared |= dict.fromkeys(self.looks.shared_gpus())
        except DlschedError:
            return False  # no daemon answers just now
        self._earlier += seen.items()
        return all(job in seen and seen[job].state in ENDED for job in ids)

    def _settle(self, streams: Sequence[Future[None]]) -> None:
        end = time.monotonic() + self.size.settle_s
        while time.monotonic() < end:
            if all(stream.done() for stream in streams) and self._look():
                return
            time.sleep(LOOK_S)

    def _history(self) -> History:
        ids = sorted(self._accepted)
        jobs = {job.job_id: seen_of(job) for job in self.looks.jobs(ids)}
        outputs = {}
        for job in ids:
            parts = sorted((self.folder / "out").glob(f"{job}.*.out"))
            if parts:
                outputs[job] = "".join(part.read_text(errors="replace") for part in parts)
        accepted = [
            Accepted(job=job, code=each.code, lines=each.lines, may_fail=job in self._touched)
            for job, each in sorted(self._accepted.items())
        ]
        accepted += [each for each in accepted if each.job in self._doubled]
        return History(
            accepted=accepted,
            jobs=jobs,
            marks=read_marks(self.folder / "marks"),
            outputs=outputs,
            earlier=self._earlier,
            shared=list(self._shared),
        )
