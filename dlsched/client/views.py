"""What the client shows of jobs, nodes and the cluster, as plain frozen values.

Times are seconds since the epoch, durations seconds; None is "not known", never 0 or "".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "Detail",
    "Event",
    "ExpectedGoodput",
    "Folded",
    "Gpu",
    "Job",
    "Node",
    "Queue",
    "Run",
    "Summary",
    "Training",
    "Usage",
]


@dataclass(frozen=True, slots=True, kw_only=True)
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
    restart_s: float | None = None  # seconds of a start, the mean of those that were measured
    starting_s: float = 0.0  # of run_s, what measured starts took and lost_s has not
    gpu_share: float | None = None  # of each of its GPUs; None: all of it
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
    array_limit: int | None = None
    dependencies: tuple[str, ...] = ()
    progress: float | None = None
    model: str | None = None
    comment: str | None = None

    @property
    def shown_id(self) -> str:
        """`11160`, or `11160_3` for an element."""
        if self.array_job_id is not None and self.array_task_id is not None:
            return f"{self.array_job_id}_{self.array_task_id}"
        return str(self.job_id)

    @property
    def is_pending(self) -> bool:
        """Waiting, with or without a run behind it."""
        return self.state in {"PENDING", "PREEMPTED"} and self.ended_at is None

    @property
    def exit_status(self) -> int:
        """What a shell would make of its end: the code, 128+signal, 1 when it never got so far."""
        if self.state == "CANCELLED" or self.exit_code is None:
            return 1
        if self.exit_signal:
            return 128 + self.exit_signal
        if self.exit_code == 0 and self.state != "COMPLETED":
            return 1
        return self.exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Elements of one array that wait alike."""

    first: Job
    tasks: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The queue as a whole."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Live jobs: pending in the policy's order, then running by start."""

    jobs: tuple[Job, ...]
    folded: tuple[Folded, ...]
    summary: Summary

    def rows(self) -> list[Job | Folded]:
        """All of them in the order of a listing."""
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
    """One line of a job's story."""

    at: float
    kind: str
    actor: str | None = None
    text: str | None = None
    run: int | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedGoodput:
    """What a number of GPUs is expected to give a training, with the best batch size there."""

    gpus: int
    nodes: int
    goodput: float  # useful samples/s
    throughput: float  # samples/s
    batch_size: int  # samples a step, all GPUs together


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What is believed of an elastic training.

    Attributes:
        model_ms: what steps take, by name, in milliseconds (`gamma` is a number); empty: not
            fitted yet.
        observations: GPU shapes and batch sizes that it was fitted to.
        noise_scale: samples a step at which half of each is wasted; None: not measured.
        sizes: around the present number of GPUs.
    """

    gpu_type: str | None = None
    model_ms: dict[str, float] = field(default_factory=dict)
    observations: int = 0
    noise_scale: float | None = None
    gpus: int = 0
    nodes: int = 0
    batch_size: int = 0  # samples a step, all GPUs together
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
    partitions: tuple[str, ...] = ()
    jobs: tuple[int, ...] = ()
    heard_ago_s: float | None = None
    address: str | None = None
    agent_version: str | None = None
    launcher: str | None = None
    capabilities: tuple[str, ...] = ()
    devices: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """GPU time of an account or a user."""

    name: str
    gpu_s: float = 0.0
    gpus_now: int = 0
    entitlement: float | None = None
    pending: int = 0


def _place(row: Job | Folded) -> tuple[Any, ...]:
    job = row.first if isinstance(row, Folded) else row
    if job.is_pending:
        position = job.position if job.position is not None else 2**62
        return (0, position, job.submitted_at or 0.0, job.job_id)
    return (1, job.started_at or 0.0, 0.0, job.job_id)
