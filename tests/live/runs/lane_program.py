"""A small PyTorch training that takes turns, and writes down when it ran and what memory it held.

Arguments: its name, steps, bytes that a step needs for a while, seconds that a step lasts at least,
and the step at which it hangs within its turn (0: none).
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import torch

from dlsched.job import attach

RECORD = Path(os.environ["LANE_RECORD"])


def memory(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def record(*words: object) -> None:
    line = " ".join(map(str, words)) + "\n"
    fd = os.open(RECORD, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, line.encode())
    os.close(fd)


def train(model: torch.nn.Module, large: int, least_s: float) -> float:
    """A step: activations that are gone at its end, as those of a deep network are."""
    end = time.monotonic() + least_s
    activations = torch.ones(large // 4)
    loss = (model(activations[:1000]) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        for each in model.parameters():
            each.sub_(each.grad, alpha=0.01)
            each.grad = None
    while time.monotonic() < end:
        time.sleep(0.005)
    return float(loss)


def main() -> None:
    name, steps, large, least_s, hangs_at = sys.argv[1:6]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Linear(1000, 10)
    with attach() as job:
        for step in range(job.restore() + 1, int(steps) + 1):
            job.step_begin(steps_left=int(steps) - step + 1)
            record(name, "begins", step, time.monotonic(), memory("VmRSS"))
            loss = train(model, int(large), float(least_s))
            if step == int(hangs_at):
                record(name, "hangs", step, time.monotonic(), memory("VmRSS"))
                time.sleep(600)
            record(name, "ends", step, time.monotonic(), memory("VmHWM"))
            job.step_end()
            if not job.step(loss=loss):
                break


main()
