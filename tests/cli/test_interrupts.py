"""Ctrl-C while a command waits; services without their installed extra."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from dlsched.rpc.v1 import control_pb2 as pb


def interrupted(*words: str, once) -> tuple[int, str]:
    """Run, send SIGINT as soon as `once()` holds, and return the exit code and stderr."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dlsched", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    deadline = time.monotonic() + 60
    while not once() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=50)
    return process.returncode, err


@pytest.fixture
def endless(control):
    """Streams that never say anything."""
    over = threading.Event()

    def silence(request):
        def stream():
            over.wait(60)
            yield from ()

        return stream()

    control.answers |= {"Wait": silence, "Logs": silence}
    control.answers["Submit"] = pb.SubmitReply(jobs=[pb.Submitted(job=7)])
    yield control
    over.set()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["wait", "7"], "dlsched: no longer waiting; the jobs continue\n"),
        (["logs", "-f", "7"], ""),
        (["submit", "--logs", "--", "true"], "dlsched: no longer following; job 7 continues\n"),
    ],
)
def test_ctrl_c_does_not_end_the_jobs(endless, words, line):
    waits = ("Wait", "Logs")
    code, err = interrupted(*words, once=lambda: any(name in waits for name, _ in endless.asked))
    assert (code, err) == (130, line)
    assert [name for name, _ in endless.asked if name in waits] == [endless.asked[-1][0]]


@pytest.mark.parametrize(("verb", "module"), [("daemon", "sqlalchemy"), ("agent", "pynvml")])
def test_a_service_that_is_not_installed_says_what_to_install(dlsched, monkeypatch, verb, module):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == module else find(name)
    )
    done = dlsched(verb, "--config", "x")
    assert done == (1, "", f"dlsched: the {verb} is not installed: pip install 'dlsched[{verb}]'\n")


@pytest.mark.parametrize("verb", ["daemon", "agent"])
def test_a_service_reads_its_own_options(verb):
    done = subprocess.run(
        [sys.executable, "-m", "dlsched", verb, "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: dlsched {verb} ")
