"""Run one command in a fresh process and say what it cost.

CPU seconds and peak memory come from the kernel's own account of the child and of the processes it
waited for. The kernel also counts what the child's memory was before it became another program, so
the process that measures must stay small: it imports neither numpy nor dlsched.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Cost", "dlsched", "machine_line", "measure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one command cost.

    Attributes:
        cpu_s: seconds of CPU time, of user and system.
        wall_s: seconds from start to end.
        peak_mb: largest resident memory of one process, in 10^6 bytes.
        output: its standard output.
    """

    cpu_s: float
    wall_s: float
    peak_mb: float
    output: str


def dlsched(*words: str) -> list[str]:
    """The command line of dlsched under this Python."""
    script = "import sys; sys.argv[0] = 'dlsched'; from dlsched.cli.main import run; run()"
    return [sys.executable, "-c", script, *words]


def measure(command: Sequence[str]) -> Cost:
    """Run a command to its end.

    Raises:
        RuntimeError: it failed; the message has what it wrote to stderr.
    """
    root = Path(__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": "0"}
    began = time.perf_counter()
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
        env=environment,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    output = child.stdout.read()
    complaint = child.stderr.read()  # a few lines at most: it fits the pipe until stdout is read
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    child.stdout.close()
    child.stderr.close()
    if child.returncode:
        raise RuntimeError(f"exit {child.returncode} of {' '.join(command)}\n{complaint}")
    return Cost(
        cpu_s=usage.ru_utime + usage.ru_stime,
        wall_s=wall,
        peak_mb=usage.ru_maxrss * 1024 / 1e6,
        output=output,
    )


def machine_line() -> str:
    """The processor, its cores, Python, and how busy the machine is."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        pass
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return f"{model}, {cores} cores, Python {platform.python_version()}, load average {load:.1f}"
