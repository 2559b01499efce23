"""The program that reads a job's output file as its user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dlsched.nodeagent.agent import tail


def test_a_run_that_is_over_before_the_file_is_read_ends_the_reading(tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_bytes(b"one\ntwo\n")
    request = {
        "path": str(file),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "groups": os.getgroups(),
        "tail": -1,
        "follow": True,
    }
    with subprocess.Popen(
        [sys.executable, "-I", "-S", tail.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdin is not None
        # Both lines arrive in one read; the input stays open, as the agent keeps it.
        os.write(child.stdin.fileno(), json.dumps(request).encode() + b"\nover\n")
        try:
            assert child.wait(60) == 0
        finally:
            child.kill()
        assert child.stdout is not None
        assert child.stdout.read() == b"one\ntwo\n"


@given(
    st.lists(st.sampled_from([b"1: ", b"12: ", b"\n", b"x"]), max_size=40).map(b"".join),
    st.integers(0, 5),
    st.integers(1, 9),
)
def test_the_last_lines_of_one_rank(text: bytes, lines: int, chunk: int) -> None:
    label, before = b"1: ", tail.CHUNK
    fd = os.memfd_create("output")
    os.write(fd, text)
    tail.CHUNK = chunk
    try:
        begin = tail.begin_of_tail(fd, len(text), lines, label)
    finally:
        tail.CHUNK = before
        os.close(fd)
    own = [line for line in text.splitlines(keepends=True) if line.startswith(label)]
    found = [line for line in text[begin:].splitlines(keepends=True) if line.startswith(label)]
    assert found == own[len(own) - min(lines, len(own)) :]
