"""Writes each signal that a process gets: rank 7 of node 2 writes `7 USR1`. It never ends by one.

With `workers` it has started two processes before: one copy of itself, and one program that SIGTERM
ends. At SIGTERM it waits for a word of both, as a training that loads its last batch, and ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from types import FrameType

RANK = os.environ.get("RANK", "0")
program: subprocess.Popen[bytes]
lines: list[object]


def say(text: str) -> None:
    os.write(1, f"{RANK} {text}\n".encode())  # one line, also beside other processes


def heard(number: int, frame: FrameType | None) -> None:
    say(signal.Signals(number).name.removeprefix("SIG"))


def load(line: object) -> None:
    """A worker, with other handlers of its parent: gives back what it is asked for."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        line.send(line.recv())  # type: ignore[attr-defined]


def save(number: int, frame: FrameType | None) -> None:
    heard(number, frame)
    ours.send("batch")
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(b"batch\n")
    program.stdin.flush()
    say(f"saved {ours.recv()} {program.stdout.readline().decode().strip()}")
    os._exit(143)  # its workers are left


for each in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
    signal.signal(each, heard)
if "workers" in sys.argv:
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    fork.Process(target=load, args=(theirs,)).start()
    program = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    signal.signal(signal.SIGTERM, save)
say("ready")
while True:
    time.sleep(0.1)
