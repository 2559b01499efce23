"""What an agent's disk says."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.protocol.messages import (
    BootId,
    DesiredRun,
    ExitRecord,
    Incarnation,
    Term,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRecord:
    """The agent's own file: written whole, synced, renamed."""

    term: Term = Term()
    incarnation: Incarnation = Incarnation(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run's file on the node: reserved before anything runs, ended when all is over."""

    desired: DesiredRun
    boot_id: BootId
    released: bool = False
    exit: ExitRecord | None = None
