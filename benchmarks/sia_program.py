"""CPU time of one decision of Sia: `python benchmarks/sia_program.py [--check]`.

Jobs and clusters are made up after the published evaluation: clusters of three types (6 nodes of 4
GPUs, 2 of 8 and 3 of 8) times a scale, jobs that scale well or badly, most of them running
somewhere already. `rows` is what configurations are worth (goodputs, bootstrapped across types),
`program` the integer program at gap 1e-4. Every figure is the median over several instances.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

if __package__ in (None, ""):  # run as a script: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.measure import heading
from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.goodput.params import BatchLimits
from dlsched.policies.highs import Limits
from dlsched.policies.scheduling.sia.adaptive_goodput import Adaptive, goodput_rows, normalised
from dlsched.policies.scheduling.sia.configurations import NONE, Configurations
from dlsched.policies.scheduling.sia.goodput_matrix import charge_moves
from dlsched.policies.scheduling.sia.integer_program import Program
from dlsched.policies.scheduling.sia.solving import solve

__all__ = ["Jobs", "main", "running"]

TYPES = ("aws", "dgx-ext", "rtx")
SCALES = ((1, 12), (1, 24), (8, 96), (16, 192), (32, 384), (64, 768), (156, 1872))
BUDGET_MS = {64: 5.0, 2048: 1000.0}  # by GPUs, rows and program together
SEEDS = 5


def cluster(scale: int) -> Configurations:
    return Configurations.of(TYPES, (6 * scale, 2 * scale, 3 * scale), (4, 8, 8))


class Jobs:
    """Made-up jobs, each known on one type (`GoodputBelief`)."""

    oracle = None

    def __init__(self, count: int, seed: int) -> None:
        """Draw them."""
        rng = np.random.default_rng(seed)
        self.count = count
        self._perf: Floats = rng.uniform(0.5, 2.0, (count, 7)) * [
            0.05,
            0.002,
            0.1,
            0.01,
            0.02,
            0.003,
            1.0,
        ]
        self._perf[:, 6] = rng.uniform(1.0, 3.0, count)
        self._grads = np.column_stack([np.full(count, 0.5), rng.uniform(1.0, 50.0, count)])
        self._home = rng.integers(0, len(TYPES), count)
        self._profiled = 2 ** rng.integers(0, 6, count)
        self._step: Floats = rng.uniform(0.7, 1.3, (count, 3)) * [0.006, 0.001, 0.0025]

    def perf(self, rows: Rows, gpu_type: str = "") -> Floats:
        """Known on one type only."""
        here = self._home[rows] == TYPES.index(gpu_type)
        return np.asarray(np.where(here[:, None], self._perf[rows], np.nan))

    def grads(self, rows: Rows) -> Floats:
        """Gradients."""
        return self._grads[rows]

    def limits(self, rows: Rows, gpu_type: str = "") -> BatchLimits:
        """The same for all."""
        return BatchLimits(
            *(np.full(len(rows), each) for each in (128, 4096, 32, 256, True, False))
        )

    def replica_gpus(self, rows: Rows, gpu_type: str = "") -> Ints:
        """One GPU each."""
        return np.ones(len(rows), np.int64)

    def profiled(self, rows: Rows, gpu_type: str = "") -> Ints:
        """Most replicas so far."""
        return self._profiled[rows]

    def one_gpu_step(self, rows: Rows, gpu_type: str = "") -> Floats:
        """Seconds a sample."""
        return np.asarray(self._step[rows, TYPES.index(gpu_type)])

    def restart_s(self, rows: Rows) -> Floats:
        """The same for all."""
        return np.full(len(rows), 30.0)

    def version(self, rows: Rows) -> Ints:
        """Nothing changes."""
        return np.zeros(len(rows), np.int64)


def running(worth: Floats, room: Configurations, seed: int) -> Ints:
    """A plausible present state: most jobs on something that they can have, while there is room."""
    rng = np.random.default_rng(seed)
    now, left = np.full(len(worth), NONE), room.capacity.copy()
    for job in range(len(worth)):
        if rng.random() < 0.7:
            for at in rng.permutation(np.flatnonzero(worth[job] > 1e-3)).tolist():
                if room.gpus[at] <= min(left[room.gpu_type[at]], 16):
                    now[job] = at
                    left[room.gpu_type[at]] -= room.gpus[at]
                    break
    return now


@dataclass(frozen=True, slots=True)
class Figure:
    """What one decision took: CPU ms, and the distance from the bound."""

    rows_ms: float
    program_ms: float
    gap: float


def decision(scale: int, count: int, seed: int) -> Figure:
    """One decision, from what is believed to what is chosen."""
    room, jobs = cluster(scale), Jobs(count, seed)
    rows, unit = np.arange(count), np.ones((count, 3), np.int64)
    ones = np.ones(count, np.int64)
    asked = Adaptive(rows, unit, np.full(count, np.nan), ones, 64 * ones)
    begin = time.process_time()
    worth = normalised(goodput_rows(asked, jobs, room), unit, room)
    after_rows = time.process_time()
    now = running(worth, room, seed)
    factor = np.random.default_rng(seed).uniform(0.5, 1.0, count)
    start = time.process_time()
    problem = Program.of(room, charge_moves(worth, now, factor), now=now)
    found = solve(problem, Limits())
    end = time.process_time()
    gap = (found.objective - found.bound) / found.objective
    return Figure(1e3 * (after_rows - begin), 1e3 * (end - start), gap)


def main() -> int:
    """Measure, print, and say whether a budget was exceeded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 when a budget is exceeded")
    check = parser.parse_args().check
    heading()
    late = False
    decision(1, 4, 0)  # loads the solver
    for scale, count in SCALES:
        figures = [decision(scale, count, seed) for seed in range(SEEDS)]
        gpus = int(cluster(scale).capacity.sum())
        rows = statistics.median(each.rows_ms for each in figures)
        program = statistics.median(each.program_ms for each in figures)
        longest = max(each.program_ms for each in figures)
        budget = BUDGET_MS.get(gpus, np.inf)
        late |= rows + program > budget
        print(
            f"{gpus:6} GPUs {count:5} jobs   rows {rows:7.1f} ms   program {program:7.1f} ms "
            f"(longest {longest:7.1f})   gap {max(each.gap for each in figures):.0e}"
            f"{'' if np.isinf(budget) else f'   budget {budget:g} ms'}"
        )
    return int(check and late)


if __name__ == "__main__":
    sys.exit(main())
