"""Which processes of a user listen at a port."""

from __future__ import annotations

import os
import socket

import pytest

from dlsched.nodeagent.host.ports import listeners


@pytest.mark.parametrize(
    ("family", "bound", "reached"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.1"),
        (socket.AF_INET, "127.0.0.9", "127.0.0.9"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "::1"),
    ],
)
def test_a_listening_socket_is_found_with_its_process(
    family: socket.AddressFamily, bound: str, reached: str
) -> None:
    try:
        server = socket.create_server((bound, 0), family=family)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server:
        port = server.getsockname()[1]
        found = [each for each in listeners(port, os.getuid()) if each.host == reached]
        assert [each.pids for each in found] == [(os.getpid(),)]
        assert listeners(port, os.getuid() + 1) == []
        with socket.create_connection((reached, port)) as line:
            connected = listeners(line.getsockname()[1], os.getuid())
            assert reached not in [each.host for each in connected]  # it does not listen
    assert reached not in [each.host for each in listeners(port, os.getuid())]
