"""A keeper's connection to the agent: one at a time, made anew by each agent that starts."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable
from typing import Any

from dlsched.nodeagent.host import lean_socket
from dlsched.nodeagent.host.event_loop import WRITABLE, EventLoop
from dlsched.nodeagent.keeper.framing import FrameSocket


class AgentConnection:
    """Takes and sends messages; never waits for the agent."""

    def __init__(
        self,
        loop: EventLoop,
        connection: lean_socket.Socket,
        *,
        on_message: Callable[[dict[str, Any]], None],
        on_new_agent: Callable[[], None],
        on_close: Callable[[], None],
    ) -> None:
        """Talk over the connection that the keeper was started with.

        Args:
            loop: of the keeper.
            connection: to the agent that has started the keeper.
            on_message: takes each message.
            on_new_agent: is called when another agent has connected.
            on_close: is called when the agent has closed the connection.
        """
        self._loop = loop
        self._on_message, self._on_new_agent = on_message, on_new_agent
        self._on_close = on_close
        self._listener: lean_socket.Socket | None = None
        self._agent: FrameSocket | None = None
        self._attach(connection)

    def listen(self, path: str) -> None:
        """Listen for agents that connect later, and no longer elsewhere."""
        listener = lean_socket.listen(path)
        if self._listener is not None:
            self._loop.unwatch(self._listener.fileno())
        self._listener = listener
        self._loop.watch(listener.fileno(), lambda _mask: self._accept(listener))

    def send(self, message: dict[str, object]) -> bool:
        """Send a message; return False when no agent is connected."""
        agent = self._agent
        if agent is not None:
            agent.send(message)
            if agent.open:
                self._wait_to_write(agent)
                return True
        return False

    @property
    def backlog(self) -> int:
        """How many bytes wait until the agent reads."""
        return self._agent.backlog if self._agent is not None else 0

    def _accept(self, listener: lean_socket.Socket) -> None:
        with contextlib.suppress(OSError):
            connection = lean_socket.accept_own(listener)
            if connection is not None:
                self._attach(connection)
                self._on_new_agent()

    def _attach(self, connection: lean_socket.Socket) -> None:
        if self._agent is not None:  # there is one agent; an older connection is a dead one's
            self._close(self._agent)
            self._on_close()
        agent = self._agent = FrameSocket(connection)
        self._loop.watch(connection.fileno(), lambda mask: self._ready(agent, mask))

    def _ready(self, agent: FrameSocket, mask: int) -> None:
        if mask & WRITABLE:
            agent.flush()
        readable = mask & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR)
        messages = agent.receive() if readable else []
        if agent.open:
            self._wait_to_write(agent)
        else:
            self._close(agent)
            self._on_close()
        for message in messages:
            self._on_message(message)

    def _close(self, agent: FrameSocket) -> None:
        """End the watch first: a child that was just forked may hold the socket open."""
        self._loop.unwatch(agent.socket.fileno())
        agent.close()
        self._agent = None

    def _wait_to_write(self, agent: FrameSocket) -> None:
        self._loop.wait_to_write(agent.socket.fileno(), agent.wants_to_write)
