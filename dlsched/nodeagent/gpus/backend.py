"""What an agent can ask about its GPUs, of a driver or a pretended one.

GPUs are known by UUID. A value that a driver does not have is None and never an error. A call that
fails or hangs makes the GPU unhealthy and does not stop the agent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dlsched.protocol.messages import GpuId


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """What does not change of a GPU while the agent runs."""

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

    pid: int  # in the machine's namespace
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """What changes of a GPU."""

    uuid: GpuId
    utilization: float | None = None  # 0..1
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    temperature_c: float | None = None
    processes: tuple[GpuProcess, ...] | None = None
    problem: str = ""  # why no job may use it
    node_problem: str = ""  # why the whole node needs an operator
    after_job: str = ""  # why it is drained when its present job has ended
    slow: str = ""  # why its clocks are lowered by the hardware; jobs may use it
    misused: str = ""  # an error of a program on it, lately; jobs may use it


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All GPUs of a node, in order of index."""

    gpus: tuple[Gpu, ...]
    driver: str = ""
    problem: str = ""  # why this may be incomplete


class GpuBackend(Protocol):
    """Reads the GPUs of a node; called in a thread, each call with its own time limit."""

    def inventory(self) -> Inventory:
        """Return the GPUs of this node."""

    def states(self) -> tuple[GpuState, ...]:
        """Return the present state of each GPU."""

    def close(self) -> None:
        """Stop reading."""
