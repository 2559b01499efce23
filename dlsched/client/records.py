"""Records of jobs, nodes and usage, as the client returns them.

Times are seconds since the epoch, durations are seconds; None means "not known".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dlsched.jobs.field import Value
from dlsched.jobs.sweep import Halving


def shown_id(job: int, array_job: int | None, task: int | None) -> str:
    """Return an id as users write it: `11160`, or `11160_3` for an element of an array."""
    return str(job) if array_job is None or task is None else f"{array_job}_{task}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
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


@dataclass(frozen=True, kw_only=True)  # without slots: what a message does not say is not set
class Job:
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
        return self.state in {"PENDING", "PREEMPTED"} and self.ended_at is None

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Elements of one array that wait for the same reason."""

    first: Job
    tasks: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Live jobs: pending ones in the policy's order, then running ones by their start."""

    jobs: tuple[Job, ...]
    folded: tuple[Folded, ...]
    summary: Summary

    def idle_for(self, least_s: float | None) -> Queue:
        """Only jobs whose GPUs have done next to nothing for so many seconds; None: all jobs."""
        if least_s is None:
            return self
        idle = tuple(
            job for job in self.jobs if job.gpu_idle_s is not None and job.gpu_idle_s >= least_s
        )
        return replace(self, jobs=idle, folded=())

    def rows(self) -> list[Job | Folded]:
        """Return all of them in the order of a listing."""
        rows: list[Job | Folded] = [*self.jobs, *self.folded]
        return sorted(rows, key=_place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One start of a job."""

    run: int
    nodes: tuple[str, ...] = ()
    gpus: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    end: str | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    run_s: float | None = None
    last_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event in the life of a job."""

    at: float
    kind: str
    actor: str | None = None
    text: str | None = None
    run: int | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedGoodput:
    """The expected goodput of a training on some GPUs, with the best batch size for them."""

    gpus: int
    nodes: int
    goodput: float  # useful samples/s
    throughput: float  # samples/s
    batch_size: int  # samples per step, all GPUs together


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The fitted model of an elastic training.

    Attributes:
        model_ms: parameters of the step time by name, in milliseconds (`gamma` is a number);
            empty: not fitted yet.
        observations: number of GPU shapes and batch sizes that the model is fitted to.
        noise_scale: samples per step at which efficiency is one half; None: not measured.
        sizes: expected goodput near the present number of GPUs.
    """

    gpu_type: str | None = None
    model_ms: dict[str, float] = field(default_factory=dict)
    observations: int = 0
    noise_scale: float | None = None
    gpus: int = 0
    nodes: int = 0
    batch_size: int = 0  # samples per step, all GPUs together
    local_batch: int = 0
    passes: int = 1
    initial_batch: int = 0
    maximum_batch: int = 0
    batch_is_fixed: bool = False
    progress: float = 0.0  # in steps at the initial batch size
    sizes: tuple[ExpectedGoodput, ...] = ()
    restart_s: float | None = None
    save_s: float | None = None
    ignored_reports: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """All that is known of a job."""

    job: Job
    command: tuple[str, ...] = ()
    has_script: bool = False
    wrap: str | None = None  # the line of `submit --wrap`
    extra: dict[str, str] = field(default_factory=dict)  # further columns
    parameters: dict[str, str] = field(default_factory=dict)  # of its sweep
    runs: tuple[Run, ...] = ()
    events: tuple[Event, ...] = ()
    why_pending: tuple[str, ...] = ()
    order_numbers: dict[str, str] = field(default_factory=dict)
    working_directory: str | None = None
    output: str | None = None
    error: str | None = None
    last_checkpoint: str | None = None
    last_checkpoint_step: int | None = None
    training: Training | None = None
    beside: tuple[int, ...] = ()  # jobs that run on the same GPUs
    awaited_by: tuple[int, ...] = ()  # live jobs that wait for this one, or for its array
    host_share: str = ""  # processors and memory that the policy gives, where it does
    cause: str | None = None  # the first rank that failed in the last failed run, and its error


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU of a node."""

    index: int
    uuid: str | None = None
    type: str | None = None
    state: str | None = None
    reason: str | None = None
    jobs: tuple[int, ...] = ()
    utilization: float | None = None
    memory_used_bytes: int | None = None
    memory_bytes: int | None = None
    temperature_c: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One machine."""

    name: str
    state: str
    reason: str | None = None
    reason_by: str | None = None
    reason_at: float | None = None
    gpu_type: str | None = None
    gpus: int = 0
    busy_gpus: int = 0
    cpus: int | None = None
    memory_bytes: int | None = None
    cpus_held: float = 0.0  # by jobs that say how many they need, as the next one
    memory_held_bytes: int = 0
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    jobs: tuple[int, ...] = ()
    job_names: tuple[str, ...] = ()  # as users write them, one for each of `jobs`
    heard_ago_s: float | None = None
    address: str | None = None
    agent_version: str | None = None
    launcher: str | None = None
    capabilities: tuple[str, ...] = ()
    devices: tuple[Gpu, ...] = ()

    def shown_ids(self, jobs: tuple[int, ...]) -> list[str]:
        """Some of its jobs as users write them; an older daemon says no names."""
        names = dict(zip(self.jobs, self.job_names, strict=False))
        return [names.get(job, str(job)) for job in jobs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a curve: the mean of some reports."""

    at: float
    step: int
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The course of what a job has reported of its training.

    Attributes:
        curves: points by name, oldest first; the number of points is bounded.
        left_out: reported values under more names than are kept.
    """

    curves: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """What a job had at a rung of successive halving."""

    rung: int
    step: int  # of the report
    value: float | None = None  # None: NaN or infinite
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptJob:
    """One job of a sweep, with the newest values that it has reported."""

    job_id: int
    array_job_id: int
    array_task_id: int
    parameters: Mapping[str, str]
    state: str
    reason: str | None = None
    step: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    not_finite: tuple[str, ...] = ()  # names whose newest value was NaN or infinite
    rungs: tuple[Rung, ...] = ()

    @property
    def shown_id(self) -> str:
        """`11160_3`."""
        return shown_id(self.job_id, self.array_job_id, self.array_task_id)

    def value(self, metric: str) -> float | None:
        """The newest value of a metric; NaN where it was NaN or infinite, None for none."""
        return math.nan if metric in self.not_finite else self.metrics.get(metric)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The jobs of a sweep, and the rule that stops some early."""

    name: str
    columns: tuple[str, ...]
    jobs: tuple[SweptJob, ...]
    halving: Halving | None = None

    def ranked(self, metric: str, *, largest_first: bool = False) -> list[SweptJob]:
        """The jobs by a metric, the best first; then those with NaN, then those without it."""

        def place(job: SweptJob) -> tuple[int, float, int]:
            value = job.value(metric)
            if value is None or not math.isfinite(value):
                return (2 if value is None else 1, 0.0, job.array_task_id)
            return (0, -value if largest_first else value, job.array_task_id)

        return sorted(self.jobs, key=place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One checkpoint of a job.

    Attributes:
        source: the job that wrote it, where `job_id` only begins at it.
        next: whether the job's next run begins at it.
        used_by: other jobs that begin at it.
        path: for its owner and operators.
    """

    job_id: int
    array_job_id: int | None = None
    array_task_id: int | None = None
    user: str | None = None
    run: int | None = None
    step: int = 0
    bytes: int = 0
    at: float | None = None
    loss: float | None = None
    next: bool = False
    source: int | None = None
    used_by: tuple[int, ...] = ()
    path: str | None = None

    @property
    def shown_id(self) -> str:
        """`11160`, or `11160_3` for an element."""
        return shown_id(self.job_id, self.array_job_id, self.array_task_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """GPU time of an account or a user."""

    name: str
    gpu_s: float = 0.0
    gpus_now: int = 0  # rounded up
    gpu_parts_now: float = 0.0  # the same, parts of GPUs as parts
    entitlement: float | None = None
    pending: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A tenant of the tree of fair shares; `share`, `usage` and `effective` are of the whole."""

    kind: str
    name: str
    group: str = ""
    depth: int = 0
    weight: float = 1.0
    share: float = 0.0
    used_gpu_s: float = 0.0
    usage: float = 0.0
    effective: float = 0.0
    factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The tree of fair shares; groups come before their members."""

    rows: list[Share]
    half_life_s: float
    level: str


def _place(row: Job | Folded) -> tuple[Any, ...]:
    job = row.first if isinstance(row, Folded) else row
    if job.is_pending:
        position = job.position if job.position is not None else 2**62
        return (0, position, job.submitted_at or 0.0, job.job_id)
    return (1, job.started_at or 0.0, 0.0, job.job_id)
