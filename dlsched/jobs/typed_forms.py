"""The two typed forms of a job that go with the table of job fields.

They are apart from the table, which every call of the command line loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlsched.jobs.fields import LEFTOVERS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFields:
    """The fields of a job that are one value each, as they are kept; None is "not said".

    GPUs are counted; `memory_bytes` is a node's, `cpus` the whole gang's. Times are seconds since
    the epoch, durations seconds.
    """

    name: str
    working_directory: str = ""
    output: str = ""
    error: str = ""
    label: str | None = None
    truncate: bool = False
    partition: str = ""
    account: str = ""
    vc: str = ""
    priority_class: str = ""
    priority: float | None = None
    gpus: int = 1
    gpu_types: tuple[str, ...] = ()
    gpus_by_type: str = ""
    constraint: str = ""
    reservation: str = ""
    min_gpus: int | None = None
    max_gpus: int | None = None
    gpu_share: float | None = None
    guarantee: str | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    cpus_per_task: int | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    tmp_bytes: int | None = None
    only_nodes: tuple[str, ...] = ()
    not_nodes: tuple[str, ...] = ()
    exclusive: bool = False
    time_limit_s: float | None = None
    time_min_s: float | None = None
    begin_at: float | None = None
    deadline_at: float | None = None
    deadline_value: float | None = None
    deadline_kind: str | None = None
    sla: str = ""
    resume_from: str = ""
    gpu_retries: int | None = None
    max_nodes: int | None = None
    keep_checkpoints: int | None = None
    warn_signal: int = 0
    warn_before_s: float = 0.0
    warn_script_only: bool = False
    warn_at_preemption: bool = False
    requeue: bool = True
    requeue_on_timeout: bool = False
    retry_elsewhere: bool = False
    keep_on_broken_dependency: bool = False
    cell: str = ""
    model: str = ""
    batch_size: float | None = None
    total_iterations: float | None = None
    target_accuracy: float | None = None
    stop_when: str | None = None
    stop_under_load: str | None = None
    weight: float | None = None
    expected_s: float | None = None
    on_hang: str | None = None
    hang_factor: float | None = None
    comment: str = ""
    notify: str = ""
    notify_url: str = ""
    mail_user: str = ""
    container: str = ""
    container_mounts: str = ""
    slurm_environment: bool = True
    adaptive: bool = False
    fixed_batch: bool = False
    in_place: bool = False
    submit_host: str = ""
    script_path: str = ""
    terminal: str = ""
    umask: int | None = None


def uses_leftovers(job: JobFields) -> bool:
    """Whether a job may start on GPUs that other jobs have."""
    return job.guarantee in LEFTOVERS


class AskedColumns:
    """The policies' columns of what users ask for; `COLUMNS` says their units and signs."""

    __slots__ = ()

    min_gpus: Ints
    max_gpus: Ints
    gpu_share: Floats
    guarantee: Floats
    cpus: Floats
    memory_gb: Floats
    priority: Floats
    target_accuracy: Floats
    stop_when: Floats
    stop_under_load: Floats
    weight: Floats
    deadline: Floats
    deadline_value: Floats
    deadline_kind: Floats
    time_limit: Floats
    time_min: Floats
