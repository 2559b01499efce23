"""What the parts of an agent see of it, beside its settings. For types only."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from dlsched.nodeagent.peers import Peers
from dlsched.protocol.agent import AgentState
from dlsched.protocol.messages import RunId, RunKey

__all__ = ["HeldRuns"]


class HeldRuns(Protocol):
    """The runs on this node, their keepers, and the other nodes."""

    state: AgentState
    peers: Peers

    def task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run beside; a failure ends the agent, loudly."""

    def tell_keeper(self, run_id: RunId, message: dict[str, Any]) -> bool:
        """Say something that is no order; False when there is no keeper."""

    def has_keeper(self, run_id: RunId) -> bool:
        """Whether a run has a live keeper here."""

    def key(self, run_id: RunId) -> RunKey | None:
        """The run's whole name."""
