"""What an agent asks about its GPUs, whoever answers.

GPUs are known by UUID. What a driver cannot say is None and never an error; a call that fails or
hangs makes the GPU unhealthy, not the agent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dlsched.protocol.messages import GpuId


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """What a GPU is; fixed while the agent lives."""

    uuid: GpuId
    index: int
    type: str
    memory_bytes: int
    numa_node: int = -1
    minor: int | None = None  # of /dev/nvidiaN
    linked: tuple[GpuId, ...] = ()  # in the same NVLink domain


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process with a context on a GPU."""

    pid: int  # as the machine has it
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """How a GPU is now."""

    uuid: GpuId
    utilization: float | None = None  # 0..1
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    temperature_c: float | None = None
    processes: tuple[GpuProcess, ...] | None = None
    problem: str = ""  # not to be given to a job
    node_problem: str = ""  # worse: the whole node needs somebody
    after_job: str = ""  # to be drained when its present job has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All GPUs of a node, in order of index."""

    gpus: tuple[Gpu, ...]
    driver: str = ""
    problem: str = ""  # why there may be more, or others


class GpuBackend(Protocol):
    """Asked from a thread; each call has its own time limit."""

    def inventory(self) -> Inventory:
        """Which GPUs there are."""

    def states(self) -> tuple[GpuState, ...]:
        """How they are."""

    def close(self) -> None:
        """No more questions."""
