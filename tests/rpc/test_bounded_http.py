"""The metrics' port, which any program of a machine may reach, takes few connections."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPException

import pytest

from dlsched.rpc import bounded_http
from dlsched.rpc.metrics_port import MetricsPort, new_registry

MOST = 3


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(bounded_http, "MOST", MOST)
    metrics = MetricsPort(new_registry())
    yield metrics.listen("127.0.0.1:0", "metrics")
    metrics.close()


def scraped(port: int) -> bytes:
    """The metrics; nothing: there was no room."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read()
    except (OSError, HTTPException):
        return b""
    finally:
        connection.close()


def test_silent_connections_are_few_and_end(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:

        def connected() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))

        silent = [connected() for _ in range(MOST)]
        assert connected().recv(1) == b""  # one too many
        monkeypatch.setattr(bounded_http, "LONGEST_S", 0.0)
        assert [each.recv(1) for each in silent] == [b""] * MOST
    monkeypatch.setattr(bounded_http, "LONGEST_S", 60.0)
    while not (found := scraped(port)):  # their threads end
        pass
    assert b"process_cpu_seconds_total" in found
