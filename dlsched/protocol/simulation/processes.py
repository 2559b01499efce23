"""What runs on the simulated nodes in truth, whatever anybody believes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlsched.protocol.messages import DesiredRun, NodeName

__all__ = ["Behaviour", "Process"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What a job really does."""

    work_s: float = 20.0
    code: int = 0
    on_term: Literal["leave", "die", "ignore"] = "leave"
    stuck_s: float = 0.0  # how long KILL takes
    lets_go: bool = True  # suspended, it leaves its GPUs


@dataclass(slots=True, kw_only=True, eq=False)
class Process:
    """The truth about a run's processes on one node; it exists while they do."""

    desired: DesiredRun
    node: NodeName
    behaviour: Behaviour
    left_s: float  # work left, once the gang is complete
    counting_from: float | None = None
    frozen: bool = False
    frozen_by_fence: bool = False
    let_go: bool = False  # frozen, and off its GPUs
    again: bool = False
    ending: int = 0  # invalidates planned ends
