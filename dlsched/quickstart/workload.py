"""The jobs of a quickstart: small real trainings, some submitted while others hold all GPUs.

Each writes a line for each step. At the end the lines must be those of jobs that were never
interrupted: every step once, in order.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlsched.quickstart import jobs

PROGRAMS = Path(jobs.__path__[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickJob:
    """A job, and the time of its submission."""

    name: str
    after_s: float
    program: str
    words: tuple[str, ...]
    options: dict[str, str]

    def argv(self, folder: Path) -> tuple[str, ...]:
        """Return the command."""
        losses = ("--losses", str(losses_of(folder, self.name)))
        return (sys.executable, str(PROGRAMS / self.program), *self.words, *losses)


def workload(gpus_of_nodes: Sequence[int]) -> list[QuickJob]:
    """Return the jobs by submission time; with PyTorch one of them runs on two nodes."""
    half = max(1, sum(gpus_of_nodes) // 2)

    def digits(name: str, after_s: float, gpus: int, epochs: int) -> QuickJob:
        return QuickJob(
            name=name,
            after_s=after_s,
            program="digits_numpy.py",
            words=("--epochs", str(epochs), "--pause", "0.02"),
            options={"gpus": str(gpus)},
        )

    first = digits("deep", 0.0, half, 10)
    if importlib.util.find_spec("torch") is not None:
        over = min(2, len(gpus_of_nodes))
        ranks = min(2, sum(gpus_of_nodes))
        first = QuickJob(
            name="gang",
            after_s=0.0,
            program="gloo_gang.py",
            words=("--epochs", "5", "--pause", "0.02"),
            options={"nodes": str(over), "gpus_per_node": str(ranks // over), "launch": "gpu"},
        )
    return [
        first,
        digits("wide", 0.0, half, 10),
        digits("late", 5.0, half, 3),
        digits("small", 5.5, 1, 2),
        digits("tiny", 6.0, 1, 1),
    ]


def losses_of(folder: Path, name: str) -> Path:
    """Return the file to which a job writes a line for each step."""
    return folder / f"{name}.losses"


def is_unbroken(folder: Path, name: str) -> bool:
    """Has a job done every step once, in order?"""
    try:
        lines = losses_of(folder, name).read_text().splitlines()
    except OSError:
        return False
    return bool(lines) and [line.split()[0] for line in lines] == [
        str(step) for step in range(len(lines))
    ]
