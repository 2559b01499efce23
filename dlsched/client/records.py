"""Records of runs, nodes, usage and the like, as the client returns them.

Times are seconds since the epoch, durations are seconds; None means "not known".
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dlsched.client.job_records import Job, shown_id
from dlsched.jobs.sweep import Halving
from dlsched.record import Record, field


class Run(Record):
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


class Event(Record):
    """One event in the life of a job."""

    at: float
    kind: str
    actor: str | None = None
    text: str | None = None
    run: int | None = None
    node: str | None = None


class ExpectedGoodput(Record):
    """The expected goodput of a training on some GPUs, with the best batch size for them."""

    gpus: int
    nodes: int
    goodput: float  # useful samples/s
    throughput: float  # samples/s
    batch_size: int  # samples per step, all GPUs together


class Training(Record):
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


class Unsaved(Record):
    """A job's latest checkpoint could not be written.

    Attributes:
        step: after which there is none.
        why: in words, for its owner and operators.
        in_a_row: how many have failed one after the other.
        newest_step: of the newest checkpoint that there is.
        newest_at: when that was written.
    """

    job_id: int
    array_job_id: int | None = None
    array_task_id: int | None = None
    step: int = 0
    at: float = 0.0
    why: str | None = None
    in_a_row: int = 1
    newest_step: int | None = None
    newest_at: float | None = None

    @property
    def shown_id(self) -> str:
        """`11160`, or `11160_3` for an element."""
        return shown_id(self.job_id, self.array_job_id, self.array_task_id)

    @property
    def text(self) -> str:
        """The same in words, with how old the newest checkpoint is now."""
        import time  # noqa: PLC0415

        from dlsched.jobs.unsaved import unsaved_text  # noqa: PLC0415

        age_s = time.time() - (self.newest_at or 0.0)
        return unsaved_text(self.step, self.why or "", self.in_a_row, self.newest_step, age_s)


class Detail(Record):
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
    unsaved: Unsaved | None = None  # while its latest checkpoint has failed
    training: Training | None = None
    beside: tuple[int, ...] = ()  # jobs that run on the same GPUs
    awaited_by: tuple[int, ...] = ()  # live jobs that wait for this one, or for its array
    host_share: str = ""  # processors and memory that the policy gives, where it does
    cause: str | None = None  # the first rank that failed in the last failed run, and its error


class Gpu(Record):
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


class Node(Record):
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
        """Some of its jobs as users write them."""
        names = dict(zip(self.jobs, self.job_names, strict=True))
        return [names[job] for job in jobs]


class Point(Record):
    """One point of a curve: the mean of some reports."""

    at: float
    step: int
    value: float


class Metrics(Record):
    """The course of what a job has reported of its training.

    Attributes:
        curves: points by name, oldest first; the number of points is bounded.
        left_out: reported values under more names than are kept.
    """

    curves: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    left_out: int = 0


class Rung(Record):
    """What a job had at a rung of successive halving."""

    rung: int
    step: int  # of the report
    value: float | None = None  # None: NaN or infinite
    stopped: bool = False


class SweptJob(Record):
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


class Sweep(Record):
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


class Checkpoint(Record):
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


class Usage(Record):
    """GPU time of an account or a user."""

    name: str
    gpu_s: float = 0.0
    gpus_now: int = 0  # rounded up
    gpu_parts_now: float = 0.0  # the same, parts of GPUs as parts
    entitlement: float | None = None
    pending: int = 0


class Share(Record):
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


class Shares(Record):
    """The tree of fair shares; groups come before their members."""

    rows: list[Share]
    half_life_s: float
    level: str
