"""A keeper's connection to an agent that dies, also while the keeper starts a child."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.nodeagent.host import lean_socket
from dlsched.nodeagent.host.event_loop import EventLoop
from dlsched.nodeagent.keeper.agent_connection import AgentConnection


class Connected:
    """A keeper's end of a connection, and the agent's."""

    def __init__(self) -> None:
        self.loop = EventLoop(lambda: None)
        ours, self.agent = lean_socket.pair()
        self.number = ours.fileno()
        self.ends = 0
        self.connection = AgentConnection(
            self.loop,
            ours,
            on_message=lambda _message: None,
            on_new_agent=lambda: None,
            on_close=self._ended,
        )

    def _ended(self) -> None:
        self.ends += 1


@pytest.fixture
def connected() -> Iterator[Connected]:
    """A connection of which a child of the keeper holds a copy, as between fork and exec."""
    made = Connected()
    copy = os.dup(made.number)
    yield made
    os.close(copy)


def test_nothing_is_heard_of_an_agent_that_has_died(connected: Connected) -> None:
    connected.agent.close()
    connected.loop.turn(None)
    assert connected.ends == 1
    assert not connected.loop.drain([connected.number])
    assert not connected.connection.send({"status": 1})


def test_an_agent_that_died_before_a_message_is_noticed_once(connected: Connected) -> None:
    connected.agent.close()
    assert not connected.connection.send({"status": 1})
    assert not connected.connection.send({"status": 2})
    assert connected.ends == 0
    connected.loop.turn(None)
    assert connected.ends == 1
    assert not connected.loop.drain([connected.number])


def test_a_new_agent_is_the_end_of_the_old_one(connected: Connected, tmp_path: Path) -> None:
    """Its connection may come before the end of the old one is heard."""
    path = str(tmp_path / "agent")
    connected.connection.listen(path)
    new = lean_socket.Socket(lean_socket.AF_UNIX, lean_socket.SOCK_STREAM)
    new.connect(path)
    connected.loop.turn(None)
    assert connected.ends == 1
    assert not connected.loop.drain([connected.number])
    assert connected.connection.send({"status": 1})
    assert new.recv(100).endswith(b'{"status":1}')
    for each in (new, connected.agent, connected.connection._listener):
        assert each is not None
        each.close()
    connected.loop.turn(None)
    assert connected.ends == 2
