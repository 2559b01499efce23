"""A port of a rank: a connection that says nothing costs little, and not for long."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from dlsched.job.gang import greetings
from dlsched.job.gang.greetings import MOST_WAITING, Greetings

Port = tuple[Greetings, int]


@pytest.fixture
def port() -> Iterator[Port]:
    listener = socket.create_server(("127.0.0.1", 0), backlog=2 * MOST_WAITING)
    number: int = listener.getsockname()[1]
    made = Greetings(listener, 4)
    yield made, number
    made.close()


def connected(port: Port) -> socket.socket:
    """A connection that the port has accepted."""
    link = socket.create_connection(("127.0.0.1", port[1]), timeout=10)
    assert port[0].take(10) == []
    return link


def is_open(link: socket.socket) -> bool:
    link.setblocking(False)
    try:
        return link.recv(1) != b""
    except BlockingIOError:
        return True


def test_a_greeting_in_pieces_is_handed_out_once_with_its_connection(port: Port) -> None:
    with connected(port) as silent, connected(port) as link:
        link.sendall(b"ab")
        assert port[0].take(10) == []
        link.sendall(b"cdef")
        [(said, peer)] = port[0].take(10)
        with peer:
            assert said == b"abcd"
            assert peer.recv(2) == b"ef"  # what follows is its reader's
        assert is_open(silent)


def test_of_too_many_silent_connections_the_oldest_one_makes_room(port: Port) -> None:
    first, *others = (connected(port) for _ in range(MOST_WAITING + 1))
    assert not is_open(first)
    assert all(map(is_open, others))
    for link in (first, *others):
        link.close()


def test_a_silent_connection_is_closed_after_a_while(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(port) as link:
        assert is_open(link)
        monkeypatch.setattr(greetings, "GREETING_S", 0.0)
        assert port[0].take() == []
        assert not is_open(link)
