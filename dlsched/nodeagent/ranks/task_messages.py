"""Short tasks of one run: what its process asks for, on its way to the agent, and the answers.

One request is under way at a time; it is kept until it is answered, and sent again to each new
agent. Of those that come meanwhile the newest one follows it.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from dlsched.job import messages as words
from dlsched.nodeagent.json_values import value_of

if TYPE_CHECKING:
    from dlsched.nodeagent.ranks.job_socket import Peer
    from dlsched.nodeagent.ranks.keeper_interface import KeeperInterface


class TaskMessages:
    """The messages between the process that executes short tasks and the agent."""

    def __init__(self, keeper: KeeperInterface) -> None:
        """No process has asked yet."""
        self._keeper = keeper
        self._asked: words.WantTasks | None = None
        self._asking: Peer | None = None
        self._next: tuple[Peer, words.WantTasks] | None = None
        self._number = 0  # of the request under way: its answer has the same

    def from_job(self, peer: Peer, message: words.FromJob) -> None:
        """Take a request of a process."""
        if isinstance(message, words.WantTasks) and not peer.is_foreign:
            if not self._keeper.spec.launch.takes_tasks:
                peer.send_message(words.Tasks(over=True))
                return
            self._next = peer, message
            if self._asked is None:
                self._begin_next()

    def _begin_next(self) -> None:
        self._asking, self._asked = self._next or (None, None)
        self._next = None
        self._number += self._asked is not None
        self._send()

    def _send(self) -> None:
        asked = self._asked
        if asked is not None:
            values = {each.name: getattr(asked, each.name) for each in fields(asked)}
            self._keeper.send_to_agent({"want_tasks": values, "number": self._number})

    def new_agent(self) -> None:
        """Send a request again that the old agent may not have passed on."""
        self._send()

    def from_agent(self, message: dict[str, object]) -> None:
        """Pass the daemon's answer on."""
        answer = message.get("tasks")
        if isinstance(answer, dict) and message.get("number") == self._number and self._asked:
            if self._asking is not None:
                self._asking.send_message(value_of(words.Tasks, answer))
            self._begin_next()

    def closed(self, peer: Peer) -> None:
        """Forget a process that has closed its connection."""
        if self._asking is peer:
            self._asking = None  # its answer is still to come
        if self._next is not None and self._next[0] is peer:
            self._next = None
