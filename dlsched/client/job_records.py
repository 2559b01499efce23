"""Records of jobs, as the client returns them.

Times are seconds since the epoch, durations are seconds; None means "not known".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from dlsched.record import Record, field

if TYPE_CHECKING:
    from dlsched.client.listed_jobs import ListedJobs
    from dlsched.jobs.field import Value


def shown_id(job: int, array_job: int | None, task: int | None) -> str:
    """Return an id as users write it: `11160`, or `11160_3` for an element of an array."""
    return str(job) if array_job is None or task is None else f"{array_job}_{task}"


class Step(Record):
    """One call of `srun` or `dlsched run` in a job's last run."""

    number: int
    name: str | None = None
    nodes: str | None = None  # a host list
    tasks: int = 0
    cpus: int | None = None
    began_at: float | None = None
    ran_s: float = 0.0
    code: int = 0
    signal: int = 0
    cpu_s: float = 0.0  # processor time of its tasks that have ended
    peak_memory_bytes: int = 0  # of the largest process of these tasks
    running: bool = False  # it goes on; `ran_s` counts to the last that its node has told


class Job(Record):
    """One job, or one element of an array."""

    job_id: int
    array_job_id: int | None = None
    array_task_id: int | None = None
    name: str | None = None
    user: str | None = None
    account: str | None = None
    vc: str | None = None
    partition: str | None = None
    priority_class: str | None = None
    state: str = "PENDING"
    reason: str | None = None
    gpus: int = 0
    gang: tuple[int, ...] = ()  # GPUs on each node
    gpu_types: tuple[str, ...] = ()
    gpus_by_type: str | None = None  # on each node so many of each: a100:2,v100:2
    nodes: tuple[str, ...] = ()
    gpu_indices: dict[str, tuple[int, ...]] = field(default_factory=dict)
    submitted_at: float | None = None
    first_started_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    run_s: float | None = None
    gpu_s: float | None = None
    lost_s: float = 0.0
    restart_s: float | None = None  # seconds that a start takes, the mean of measured starts
    starting_s: float = 0.0  # part of run_s spent in measured starts and not in lost_s
    run: int | None = None
    starts: int = 0
    preemptions: int = 0
    migrations: int = 0
    resizes: int = 0
    failures: int = 0
    exit_code: int | None = None
    exit_signal: int | None = None
    cancelled_by: str | None = None
    time_limit_s: float | None = None
    begin_at: float | None = None
    deadline_at: float | None = None
    priority: float | None = None
    held: bool = False
    position: int | None = None
    predicted_start_at: float | None = None
    predicted_basis: str | None = None
    predicted_end_at: float | None = None
    predicted_start_p10_at: float | None = None  # eight of ten cases lie between it and p90
    predicted_start_p90_at: float | None = None
    predicted_end_p10_at: float | None = None
    predicted_end_p90_at: float | None = None
    array_limit: int | None = None
    dependencies: tuple[str, ...] = ()
    progress: float | None = None
    model: str | None = None
    comment: str | None = None
    loss: float | None = None  # the newest that it has reported, as the next ones
    steps_s: float | None = None
    samples_s: float | None = None
    gpu_memory_bytes: int | None = None  # in use, on the fullest of its GPUs
    gpu_utilization: float | None = None  # 0..1, the mean of its GPUs
    gpu_idle_s: float | None = None  # for so long its GPUs have done next to nothing
    gpu_used: float | None = None  # 0..1, the mean over its life; only in `show` and `history`
    report_age_s: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)  # its own; only in `show`
    not_finite: tuple[str, ...] = ()  # names whose newest value was NaN or infinite
    asked: Mapping[str, Value] = field(default_factory=dict)  # further fields that were said
    steps: tuple[Step, ...] = ()  # the newest calls of `srun` of its last run, ended or not
    cpu_s: float | None = None  # processor time of that run on all its nodes, once it has ended
    peak_memory_bytes: int | None = None  # of the largest process of that run
    script_cpu_s: float | None = None  # the same two without the tasks of calls of `srun`
    script_peak_bytes: int | None = None
    interactive: bool = False  # asked for with a terminal: salloc, submit --interactive
    working_directory: str | None = None  # of the caller's own; only in `history`

    @property
    def shown_id(self) -> str:
        """`11160`, or `11160_3` for an element."""
        return shown_id(self.job_id, self.array_job_id, self.array_task_id)

    @property
    def is_pending(self) -> bool:
        """Does it wait, before its first run or after one?"""
        return self.waits(self.state, self.ended_at)

    @staticmethod
    def waits(state: str, ended_at: float | None) -> bool:
        """Does a job wait that has this state?"""
        return state in {"PENDING", "PREEMPTED"} and ended_at is None

    @property
    def exit_status(self) -> int:
        """The exit status as in a shell: the code, or 128+signal.

        Without a code 1, or 0 if the job is complete, as one that was ended at its target.
        """
        if self.exit_code is None:
            return int(self.state != "COMPLETED")
        if self.state == "CANCELLED":
            return 1
        if self.exit_signal:
            return 128 + self.exit_signal
        if self.exit_code == 0 and self.state != "COMPLETED":
            return 1
        return self.exit_code


class Folded(Record):
    """Elements of one array that wait for the same reason."""

    first: Job
    tasks: str
    count: int


class Summary(Record):
    """Totals of the queue."""

    running: int = 0
    running_gpus: int = 0
    pending: int = 0
    pending_gpus: int = 0
    gpus: int = 0
    busy_gpus: int = 0
    policy: str | None = None
    round: int | None = None
    round_s: float | None = None
    others: int = 0
    policy_failure: str | None = None  # why the policy places nothing now


class Queue(Record):
    """Live jobs: pending ones in the policy's order, then running ones by their start.

    Attributes:
        lines: of a listing, by column: jobs, and elements of arrays that wait alike, of which the
            first stands there, with the columns `tasks` and `count`.
        summary: totals of the queue.
    """

    lines: ListedJobs
    summary: Summary

    @cached_property
    def jobs(self) -> tuple[Job, ...]:
        """The jobs, without those of folded lines."""
        return tuple(row for row in self.rows() if isinstance(row, Job))

    @cached_property
    def folded(self) -> tuple[Folded, ...]:
        """The folded lines."""
        return tuple(row for row in self.rows() if isinstance(row, Folded))

    def idle_for(self, least_s: float | None) -> Queue:
        """Only jobs whose GPUs have done next to nothing for so many seconds; None: all jobs."""
        if least_s is None:
            return self
        idle = self.lines.column("gpu_idle_s").each(self.lines.count)
        kept = [k for k, seconds in enumerate(idle) if seconds is not None and seconds >= least_s]
        return Queue(lines=self.lines.of(kept), summary=self.summary)

    def rows(self) -> list[Job | Folded]:
        """Return all of them in the order of a listing."""
        return self._rows.copy()

    @cached_property
    def _rows(self) -> list[Job | Folded]:
        lines = self.lines
        marks = [lines.column(name).each(lines.count) for name in ("tasks", "count")]
        return [
            Folded(first=job, tasks=tasks, count=count) if tasks else job
            for job, tasks, count in zip(lines.records(), *marks, strict=True)
        ]
