"""What the parts of a keeper see of it. For types only: nothing of this is loaded by a keeper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dlsched.nodeagent.child import Start
from dlsched.nodeagent.containment import Containment
from dlsched.nodeagent.job_socket import Peer
from dlsched.nodeagent.runfiles import RunFolder
from dlsched.nodeagent.spec import KeeperSpec
from dlsched.protocol.keeper import Event, KeeperState

__all__ = ["KeptRun"]


class KeptRun(Protocol):
    """One run on this node, and the loop that keeps it."""

    state: KeeperState
    spec: KeeperSpec
    folder: RunFolder
    containment: Containment

    def watch(self, fd: int, call: Callable[[int], None]) -> None:
        """Have a descriptor's events handled."""

    def unwatch(self, fd: int) -> None:
        """Look at a descriptor no more."""

    def wait_to_write(self, peer: Peer) -> None:
        """Come back when a peer reads again."""

    def start_child(self, start: Start) -> int:
        """Start one process of the job; its id."""

    def give_up_on_job(self, why: str) -> None:
        """The job cannot go on: it is killed, and this is why."""

    def soon(self, event: Event) -> None:
        """One step when what is under way is done."""

    def tell(self, message: dict[str, object]) -> bool:
        """Tell the agent, if there is one."""

    def tell_status(self) -> None:
        """Tell the agent where the run stands."""
