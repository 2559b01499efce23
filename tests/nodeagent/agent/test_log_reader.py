"""The program that reads a job's output file as its user."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.nodeagent.agent import log_reader
from dlsched.nodeagent.agent.user_files import PROGRAM


@pytest.fixture
def reader() -> Iterator[socket.socket]:
    """A running file server, by the socket on which it takes connections."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        command = [sys.executable, "-I", "-S", "-c", PROGRAM, *filter(os.path.isabs, sys.path)]
        child = subprocess.Popen(command, stdin=its, stderr=subprocess.PIPE)
    with ours, child:
        try:
            yield ours
            ours.close()  # the agent is gone
            assert child.communicate(timeout=60)[1] == b""
            assert child.returncode == 0
        finally:
            child.kill()


def ask(reader: socket.socket, path: Path, behind: bytes = b"", **more: Any) -> socket.socket:
    """Ask for a file; `behind` arrives together with the request."""
    mine, its = socket.socketpair()
    with its:
        socket.send_fds(reader, [b"."], [its.fileno()])
    request = {
        "do": "read",
        "path": str(path),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "groups": os.getgroups(),
        "tail": -1,
        "follow": False,
        "label": "",
        **more,
    }
    mine.settimeout(60)
    assert mine.recv(1) == b"."  # it is taken
    mine.sendall(json.dumps(request).encode() + b"\n" + behind)
    return mine


def all_of(asked: socket.socket) -> bytes:
    with asked, asked.makefile("rb") as answer:
        return answer.read()


def test_a_run_that_is_over_before_the_file_is_read_ends_the_reading(
    reader: socket.socket, tmp_path: Path
) -> None:
    file = tmp_path / "out"
    file.write_bytes(b"one\ntwo\n")
    # the connection stays open, as the agent keeps it
    assert all_of(ask(reader, file, b"over\n", follow=True)) == b"ready\none\ntwo\n"


def test_one_that_is_left_ends_though_its_file_grows(reader: socket.socket, tmp_path: Path) -> None:
    file = tmp_path / "out"
    with file.open("wb") as out:
        out.truncate(1 << 40)  # a terabyte of nothing: it would take long
    with ask(reader, file, follow=True) as asked:
        assert asked.recv(6) == b"ready\n"
        asked.shutdown(socket.SHUT_WR)
        while asked.recv(1 << 20):
            pass


def test_a_file_system_that_hangs_stops_no_other_reading(
    reader: socket.socket, tmp_path: Path
) -> None:
    """An open that waits is in a process of its own; here, one whose request never comes."""
    file = tmp_path / "out"
    file.write_bytes(b"one\n")
    waiting, its = socket.socketpair()
    with waiting, its:
        socket.send_fds(reader, [b"."], [its.fileno()])
        assert all_of(ask(reader, file)) == b"ready\none\n"


@pytest.mark.parametrize("begun", [b"", b'{"path": "/x'])
def test_an_agent_that_leaves_before_it_has_asked_is_no_error(
    reader: socket.socket, tmp_path: Path, begun: bytes
) -> None:
    mine, its = socket.socketpair()
    with mine, its:
        socket.send_fds(reader, [b"."], [its.fileno()])
        its.close()
        mine.sendall(begun)
        mine.shutdown(socket.SHUT_WR)
        assert mine.recv(2) == b"."
        assert mine.recv(1) == b""
    (tmp_path / "out").write_bytes(b"one\n")
    assert all_of(ask(reader, tmp_path / "out")) == b"ready\none\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can read as another user")
def test_each_file_is_read_with_the_rights_of_its_user_only(
    reader: socket.socket, tmp_path: Path
) -> None:
    own, secret, shared = (tmp_path / name for name in ("own", "secret", "shared"))
    for file, uid, gid, mode in (
        (own, 4001, 4001, 0o400),
        (secret, 4002, 4002, 0o600),
        (shared, 4002, 4003, 0o640),
    ):
        file.write_text("text\n")
        os.chown(file, uid, gid)
        file.chmod(mode)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == 0 and folder.name.startswith(("pytest", "test", "popen")):
            folder.chmod(0o755)
    user = {"uid": 4001, "gid": 4001, "groups": [4001]}
    assert all_of(ask(reader, own, **user)) == b"ready\ntext\n"
    assert all_of(ask(reader, secret, **user)) == b"Permission denied\n"
    assert all_of(ask(reader, shared, **user)) == b"Permission denied\n"
    assert all_of(ask(reader, shared, **{**user, "groups": [4001, 4003]})) == b"ready\ntext\n"
    # the process of one user leaves nothing to the next one
    assert all_of(ask(reader, secret, uid=4002, gid=4002, groups=[])) == b"ready\ntext\n"


@given(
    st.lists(st.sampled_from([b"1: ", b"12: ", b"\n", b"x"]), max_size=40).map(b"".join),
    st.integers(0, 5),
    st.integers(1, 9),
)
def test_the_last_lines_of_one_rank(text: bytes, lines: int, chunk: int) -> None:
    label, before = b"1: ", log_reader.CHUNK
    fd = os.memfd_create("output")
    os.write(fd, text)
    log_reader.CHUNK = chunk
    try:
        begin = log_reader.begin_of_tail(fd, len(text), lines, label)
    finally:
        log_reader.CHUNK = before
        os.close(fd)
    own = [line for line in text.splitlines(keepends=True) if line.startswith(label)]
    found = [line for line in text[begin:].splitlines(keepends=True) if line.startswith(label)]
    assert found == own[len(own) - min(lines, len(own)) :]
