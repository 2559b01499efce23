"""How much a job has, or asks for: nodes, processors, memory and GPUs, as Slurm counts them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dlsched.client.job_records import Job
from dlsched.client.submission.memory import memory_text


def nodes_of(nodes: Sequence[str], gang: Sequence[int]) -> int:
    """Return on how many nodes a job is, or is to be."""
    return len(nodes) or len(gang) or 1


def cpus_of(asked: Mapping[str, Any], nodes: Sequence[str], gang: Sequence[int]) -> int:
    """Return how many processors a job has on all its nodes: one on each where it does not say."""
    return math.ceil(float(asked.get("cpus") or nodes_of(nodes, gang)))


def job_cpus(job: Job) -> int:
    """`cpus_of` a job."""
    return cpus_of(job.asked, job.nodes, job.gang)


def job_nodes(job: Job) -> int:
    """`nodes_of` a job."""
    return nodes_of(job.nodes, job.gang)


def memory_on_node(job: Job) -> int | None:
    """Bytes of memory on each node; None: it does not say."""
    size = job.asked.get("memory_bytes")
    return size if isinstance(size, int) else None


def gpus_by_type(job: Job) -> list[tuple[str, int]]:
    """On all nodes so many GPUs of each type that the job names."""
    each = (job.gpus_by_type or "").split(",") if job.gpus else ()
    pairs = [gpu.rpartition(":") for gpu in each if gpu]
    return [(kind, int(count) * job_nodes(job)) for kind, _, count in pairs]


def derived_code(job: Job) -> tuple[int, int]:
    """The highest exit code of its calls of `srun`, and the signal that goes with it: (0, 9)."""
    return max(((step.code, step.signal) for step in job.steps), default=(0, 0))


def derived_text(job: Job) -> str:
    """The same as Slurm writes it: `0:9`."""
    return "{}:{}".format(*derived_code(job))


def trackable(job: Job) -> list[tuple[str, str]]:
    """What Slurm calls trackable resources, in the order of scontrol: `("cpu", "4")`."""
    size = memory_on_node(job)
    cpus = str(job_cpus(job))
    return [
        ("cpu", cpus),
        *([("mem", memory_text(size * job_nodes(job)))] if size is not None else ()),
        ("node", str(job_nodes(job))),
        ("billing", cpus),
        *([("gres/gpu", str(job.gpus))] if job.gpus else ()),
        *((f"gres/gpu:{kind}", str(count)) for kind, count in gpus_by_type(job)),
    ]


def trackable_text(job: Job, *, by_name: bool = False) -> str:
    """`cpu=4,mem=2G,node=2,billing=4,gres/gpu=4`; by name, as in sacct."""
    pairs = trackable(job)
    return ",".join(f"{name}={value}" for name, value in (sorted(pairs) if by_name else pairs))
