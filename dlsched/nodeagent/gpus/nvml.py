"""NVIDIA GPUs, read through a process of its own: a call that hangs does not stop the agent.

A question has a number, and its answer the same one. The process that does not answer in time, or
answers another question, is killed, and another one is started for the next question.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import subprocess
import sys
import threading
import time
from typing import Any

from dlsched.core.errors import DlschedError
from dlsched.nodeagent.gpus.backend import GpuState, Inventory
from dlsched.nodeagent.json_values import value_of

LIMIT_S = 8.0
START_S = 30.0  # for the process and the driver's initialisation


class DriverSilent(DlschedError):
    """The driver does not answer, or answers with an error."""


class NvmlGpus:
    """The NVIDIA GPUs of this machine; none where there is no driver."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._given_up: list[subprocess.Popen[bytes]] = []
        self._numbers = itertools.count(1)
        self._one_at_a_time = threading.Lock()  # a thread that was given up may still ask

    def inventory(self) -> Inventory:
        """Return the GPUs; on a machine without a driver there are none, with the reason."""
        try:
            return value_of(Inventory, self._ask("inventory"))
        except DriverSilent as error:
            return Inventory(gpus=(), problem=f"no GPUs: {error}")

    def states(self) -> tuple[GpuState, ...]:
        """Return the present state of each GPU.

        Raises:
            DriverSilent: when the driver does not say.
        """
        return tuple(value_of(GpuState, each) for each in self._ask("states"))

    def _ask(self, question: str) -> Any:
        if not self._one_at_a_time.acquire(timeout=self._limit_s):
            raise DriverSilent("the driver does not answer")
        try:
            return self._asked(question)
        finally:
            self._one_at_a_time.release()

    def _asked(self, question: str) -> Any:
        self._given_up = [each for each in self._given_up if each.poll() is None]
        if self._given_up:
            raise DriverSilent("the driver does not answer")
        if self._process is None or self._process.poll() is not None:
            self._start()
        process, number = self._process, next(self._numbers)
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.write(f"{number} {question}\n".encode())
            process.stdin.flush()
        except OSError:
            self._drop()
            raise DriverSilent("the process that asks the driver has ended") from None
        return self._answer(number)

    def _start(self) -> None:
        self._rest = b""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "dlsched.nodeagent.gpus.nvml_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
        )
        self._answer(0, START_S)

    def _answer(self, number: int, limit_s: float | None = None) -> Any:
        line = self._line(limit_s or self._limit_s)
        found = json.loads(line)
        if "failed" in found or found.get("number") != number:
            self._drop()
            raise DriverSilent(found.get("failed", "the answer is another question's"))
        return found.get("answer")

    def _line(self, limit_s: float) -> bytes:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        until = time.monotonic() + limit_s
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            readable = select.select([process.stdout], [], [], left)[0] if left > 0 else []
            if not readable:
                self._drop()
                raise DriverSilent("the driver does not answer")
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                self._drop()
                raise DriverSilent("the process that asks the driver has ended")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _drop(self) -> None:
        """Let go of the process; one stuck in the kernel is waited for before another is made."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        try:
            process.wait(1)
        except subprocess.TimeoutExpired:
            self._given_up.append(process)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    continue

    def close(self) -> None:
        """No more questions."""
        self._drop()
