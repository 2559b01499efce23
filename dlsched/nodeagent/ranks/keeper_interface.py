"""What the parts of a keeper see of it. For types only: a keeper does not load this module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dlsched.nodeagent.host.containment import Containment
from dlsched.nodeagent.ranks.child_process import ProcessSpec
from dlsched.nodeagent.ranks.job_signals import JobSignals
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec
from dlsched.protocol.keeper import Event, KeeperState


class ProcessesInterface(Protocol):
    """The processes of one run on this node."""

    containment: Containment
    signals: JobSignals

    def start_child(self, process: ProcessSpec) -> int:
        """Start one process of the job; return its id."""

    def adopt_writer(self, forked: tuple[int, int]) -> int:
        """Take an output writer that was forked; return its id."""

    def fail_job(self, why: str) -> None:
        """Kill a job that cannot go on; its exit record says why."""

    def no_child_left(self) -> None:
        """Report the job's exit: of its processes none is left."""


class KeeperInterface(Protocol):
    """One run on this node, and the loop that keeps it."""

    state: KeeperState
    spec: KeeperSpec
    job_socket_path: str

    @property
    def processes(self) -> ProcessesInterface:
        """The processes of the run."""

    def watch(self, fd: int, call: Callable[[int], None]) -> None:
        """Call a function whenever a descriptor is readable."""

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor."""

    def wait_to_write(self, fd: int, wanted: bool) -> None:
        """Call the function of a watched descriptor also when it is writable, or no longer."""

    def feed_later(self, event: Event) -> None:
        """Take one step when the step that is under way is done."""

    def send_to_agent(self, message: dict[str, object]) -> bool:
        """Send the agent a message; return False when no agent is connected."""

    def send_status(self) -> None:
        """Send the agent the status of the run."""
