"""The metrics' port, which any program of a machine may reach, takes few connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPException
from typing import Any

import pytest
from prometheus_client import CollectorRegistry as Registry

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


def test_silent_connections_end(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        silent = [connected(port, stack) for _ in range(MOST)]
        monkeypatch.setattr(bounded_http, "LONGEST_S", 0.0)
        assert [each.recv(1) for each in silent] == [b""] * MOST


def test_silent_connections_give_way_to_one_that_asks(port: int) -> None:
    with ExitStack() as stack:
        silent = [connected(port, stack) for _ in range(MOST)]
        for oldest in silent:
            assert b"process_cpu_seconds_total" in scraped(port)
            assert oldest.recv(1) == b""
            connected(port, stack)


def test_answers_that_are_not_taken_give_way(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    answering = threading.Barrier(MOST + 1)
    goes_on = threading.Event()
    collect = Registry.collect

    def slow(registry: Registry) -> Iterator[Any]:
        if not goes_on.is_set():
            answering.wait(60)
            goes_on.wait(60)
        return collect(registry)

    monkeypatch.setattr(Registry, "collect", slow)
    with ExitStack() as stack:
        held = [connected(port, stack) for _ in range(MOST)]
        for each in held:
            each.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        answering.wait(60)
        goes_on.set()
        monkeypatch.setattr(bounded_http, "SOON_S", -1.0)
        assert b"process_cpu_seconds_total" in scraped(port)


def connected(port: int, stack: ExitStack) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
