"""What a job may use of its GPUs for now, as a node policy has decided, on its way to the ranks.

Ranks that obey limits are told, those that connect later too: the keeper remembers, so that limits
outlast the agent. Where no rank obeys them, the processes can only run or stand still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlsched.job import messages as words
from dlsched.protocol.keeper import Stage

if TYPE_CHECKING:
    from dlsched.nodeagent.ranks.job_socket import JobSocket, Peer
    from dlsched.nodeagent.ranks.keeper_interface import KeeperInterface

CAPABILITY = "limit"


class JobLimits:
    """The limits of one run on this node."""

    def __init__(self, keeper: KeeperInterface, job: JobSocket) -> None:
        """Limit nothing yet."""
        self._keeper, self._job = keeper, job
        self._limit: words.Limit | None = None
        self._may_stop_processes = False
        self._stands_still = False
        self._has_told = False  # this agent that a rank obeys limits

    def from_agent(self, message: dict[str, object]) -> None:
        """Take a limit: `share` in percent, `memory_bytes`, `leaves`, `stand_still`.

        `leaves`: the job saves and goes back to the queue. `stand_still`: with a share of 0 its
        processes are stopped where none of them obeys limits.
        """
        given = message.get("limit")
        if not isinstance(given, dict):
            return
        memory = given.get("memory_bytes")
        self._limit = words.Limit(
            share=int(given["share"]) / 100, memory_bytes=None if memory is None else int(memory)
        )
        self._may_stop_processes = bool(given.get("stand_still"))
        for peer in self._job.able_to(CAPABILITY):
            peer.send_message(self._limit)
            if given.get("leaves"):
                peer.send_message(words.Stop(reason="memory"))
        self.apply()

    def from_job(self, peer: Peer, message: words.FromJob) -> None:
        """Tell a rank that connects, and the agent that the job has such a rank."""
        if isinstance(message, words.Hello) and CAPABILITY in peer.capabilities:
            if self._limit is not None:
                peer.send_message(self._limit)
            if not self._has_told:
                self.tell_agent()

    def tell_agent(self) -> None:
        """Tell an agent whether any rank obeys limits."""
        obeyed = bool(self._job.able_to(CAPABILITY))
        self._has_told = obeyed and self._keeper.send_to_agent({"obeys_limits": True})

    def apply(self) -> None:
        """Let the processes stand still or go on, as the limit says."""
        runs = self._keeper.state.stage is Stage.RUNNING and not self._keeper.state.suspended
        stops = self._limit is not None and self._limit.share == 0 and self._may_stop_processes
        wanted = bool(runs and stops and not self._job.able_to(CAPABILITY))
        if wanted and not self._stands_still:
            self._stands_still = True
            self._keeper.processes.containment.freeze()
        elif not wanted:
            self.let_go()

    def let_go(self) -> None:
        """Let the processes go on: they are about to be told to stop, or to be suspended."""
        if self._stands_still:
            self._stands_still = False
            self._keeper.processes.containment.thaw()
