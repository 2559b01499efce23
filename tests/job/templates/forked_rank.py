"""Ranks that begin as copies of a process that has imported PyTorch already."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROGRAM = Path(__file__).with_name("template_program.py")


class ForkedRank:
    """A rank, with what tests use of `subprocess.Popen`."""

    def __init__(
        self, door: socket.socket, argv: list[str], environment: Mapping[str, str], folder: Path
    ) -> None:
        wanted = {"argv": argv, "environment": dict(environment), "folder": str(folder)}
        (out, out_end), (err, err_end), (told, told_end) = (os.pipe() for _ in range(3))
        ends = [out_end, err_end, told_end]
        socket.send_fds(door, [json.dumps(wanted).encode()], ends)
        for each in ends:
            os.close(each)
        self.stdout, self.stderr, self._told = (os.fdopen(each) for each in (out, err, told))
        self.pid = int(self._told.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, once it has ended."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.returncode = int(self._told.readline())
            self._told.close()
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit code."""
        if self.returncode is None and not select.select([self._told], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        code = self.poll()
        assert code is not None
        return code

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Wait for the end and return what it has written."""
        with ThreadPoolExecutor(2) as threads:
            texts = [threads.submit(each.read) for each in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                os.killpg(self.pid, signal.SIGKILL)  # so that both texts end
                raise
            return texts[0].result(), texts[1].result()

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class Template:
    """The process that has imported some modules, until it is closed."""

    def __init__(self, modules: Iterable[str], environment: Mapping[str, str]) -> None:
        self.door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", str(PROGRAM), str(theirs.fileno()), *modules],
            env={**environment, "HF_HUB_OFFLINE": "1"},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()

    def close(self) -> None:
        """End it; it has no rank any more."""
        self.door.close()
        self._process.wait(60)
