"""What a zygote answers when it cannot do what a keeper needs."""

from __future__ import annotations

import json
import os
import socket

from dlsched.nodeagent.host import lean_socket
from dlsched.nodeagent.keeper.zygote import Zygote


def test_a_keeper_that_needs_a_namespace_is_not_forked_without_one() -> None:
    """It would take itself for the first process of one, and every other one for its job."""
    ours, theirs = lean_socket.pair(lean_socket.SOCK_SEQPACKET)
    with open(os.devnull, "rb") as nothing:
        lean_socket.send_fds(
            ours, json.dumps({"number": 7, "namespace": True}).encode(), [nothing.fileno()] * 2
        )
        ours.shutdown(socket.SHUT_WR)
        Zygote(theirs, -1, namespaces=False).serve()
    assert json.loads(ours.recv(1000)) == {"namespaces": False}
    data, fds, _ = lean_socket.recv_fds(ours, 1000, 1)
    answer = json.loads(data)
    assert (answer["number"], answer.get("pid"), fds) == (7, None, [])
    assert "namespaces" in answer["failed"]
    for line in (ours, theirs):
        line.close()
