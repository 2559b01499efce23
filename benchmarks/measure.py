"""Run one command in a fresh process and say what it cost.

CPU seconds and peak memory come from the kernel's own account of the child and of the processes it
waited for. The kernel also counts what the child's memory was before it became another program, so
the process that measures must stay small: it imports neither numpy nor dlsched.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "ROOT",
    "Cost",
    "calls_per_decision",
    "dlsched",
    "figures_of",
    "heading",
    "machine_line",
    "measure",
    "yardstick_s",
]

ROOT = Path(__file__).parent.parent

# a fixed piece of plain Python: its CPU seconds tell how fast a machine is at the moment
YARDSTICK = "d = {}\nfor i in range(3_000_000):\n    d[i & 1023] = d.get(i & 511, 0) + 1"

START = "import sys; sys.argv[0] = 'dlsched'; from dlsched.cli.main import run; run()"

# calls of functions, in Python or built in, those of imports included
COUNTED = """
import cProfile
profile = cProfile.Profile()
profile.enable()
try:
    {start}
finally:
    profile.disable()
    print("\\ncalls:", sum(entry.callcount for entry in profile.getstats()))
"""


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
    return [sys.executable, "-c", START, *words]


def measure(command: Sequence[str], root: Path = ROOT) -> Cost:
    """Run a command to its end, with the modules of the checkout in `root`.

    Raises:
        RuntimeError: it failed; the message has what it wrote to stderr.
    """
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


def figures_of(output: str) -> dict[str, Any]:
    """The results of a run that printed its summary as JSON; empty where it did not."""
    start = output.find("{")
    if start < 0:
        return {}
    found: dict[str, Any] = json.JSONDecoder().raw_decode(output[start:])[0]
    shown = ("jobs", "avg_jct", "preemptions", "decisions")
    return {key: found[key] for key in shown if key in found}


def calls_per_decision(command: Sequence[str], root: Path = ROOT) -> float:
    """Calls of functions in a replay, over the number of its decisions.

    The command is one of `dlsched()` and prints its summary as JSON.
    """
    counted = [command[0], "-c", COUNTED.format(start=START), *command[3:]]
    output = measure(counted, root).output
    calls = re.search(r"calls: (\d+)", output)
    assert calls is not None
    return int(calls[1]) / float(figures_of(output)["decisions"])


def yardstick_s() -> float:
    """CPU seconds of the yardstick, a fixed loop of plain Python: the least of three runs."""
    return min(measure([sys.executable, "-c", YARDSTICK]).cpu_s for _ in range(3))


def heading() -> float:
    """Print the machine and the yardstick; returns the yardstick in CPU seconds."""
    print(machine_line())
    yardstick = yardstick_s()
    print(f"yardstick (plain Python loop): {yardstick:.2f} CPU-s\n", flush=True)
    return yardstick


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
