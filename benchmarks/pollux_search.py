"""CPU time and fitness of one decision of Pollux: `python benchmarks/pollux_search.py [--check]`.

Jobs are like real ones, in the middle of a run: five kinds of trainings with models as they are
fitted, a tenth without one, ages and restarts at random, GPUs as an earlier round may have left
them. A decision is everything from models to rows: goodput tables of all jobs anew (in a run most
are kept), and the search. Beside it a genetic search (`genetic_pollux.py`), and the bound that no
state passes. Every figure is of one process, the mean of several instances.

`published` is the CPU time of the published scheduler's decision, measured once on a machine like
ours.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

if __package__ in (None, ""):  # run as a script: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.genetic_pollux import evolve
from benchmarks.measure import heading
from dlsched.core.arrays import Floats, Ints
from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams
from dlsched.policies.scheduling.pollux.blocks import find
from dlsched.policies.scheduling.pollux.problem import (
    Problem,
    fair_replicas,
    repaired,
    restart_factor,
)
from dlsched.policies.scheduling.pollux.speedups import Model, Tables, speedup_tables

__all__ = ["main", "random_problem"]

MEASURED = (  # fitted to real trainings: speed, then noise, then batch limits
    ((0.0179, 0.00069, 0.1197, 0.00316, 0.0313, 0.00197, 2.04), (0.1, 60.0), (128, 4096, 32, 1024)),
    ((0.1698, 0.0586, 1.3363, 0.0178, 0.2629, 0.0168, 1.80), (1.0, 40.0), (12, 384, 2, 12)),
    ((0.3026, 0.0241, 0.3771, 0.0318, 0.0920, 0.0060, 1.41), (1.0, 30.0), (20, 640, 5, 80)),
    ((0.0658, 0.0044, 0.2899, 0.0080, 0.0735, 0.0001, 2.45), (1.0, 120.0), (200, 12800, 16, 256)),
    ((0.1871, 0.0262, 0.7019, 0.0289, 0.1298, 0.0323, 1.19), (1.0, 20.0), (8, 512, 4, 16)),
)
PUBLISHED_S = {(5, 16): 1.3, (20, 16): 2.0, (40, 16): 3.1, (80, 16): 5.1, (20, 64): 4.0,
               (80, 64): 13.1}  # fmt: skip
SIZES = ((5, 16), (20, 16), (40, 16), (80, 16), (20, 64), (80, 64), (320, 256), (3000, 2500))
EVOLVED = 64 * 80  # jobs x nodes up to which the genetic search is run too
BUDGET_S = 0.5  # of a decision about 80 jobs on 256 GPUs
GPUS = 4  # of a node


class Jobs(NamedTuple):
    """Jobs as drawn.

    Attributes:
        model: what is believed of them.
        most: GPUs that they may have.
        age: seconds.
        restarts: so far.
    """

    model: Model
    most: Ints
    age: Floats
    restarts: Ints

    def speedups(self, gpus: int) -> Floats:
        """Tables over a fair share."""
        count = len(self.most)
        fair = fair_replicas(gpus, count)
        made = Tables().goodput(np.arange(count), np.zeros(count, np.int64), self.model, self.most)
        base = self.model.goodput(np.array([1]), np.array([fair]))[:, 0]
        return speedup_tables(made, base, fair)


def random_jobs(count: int, rng: np.random.Generator) -> Jobs:
    """Jobs like real ones, of different ages; some have no model yet."""
    kind = rng.integers(0, len(MEASURED), count)
    noise = rng.lognormal(0.0, 1.0, count)
    perf = np.array([MEASURED[k][0] for k in kind]) * rng.lognormal(0.0, 0.1, (count, 1))
    perf[:, 6] = np.clip(perf[:, 6], 1.0, 10.0)
    grads = np.array([MEASURED[k][1] for k in kind])
    limits = np.array([MEASURED[k][2] for k in kind], np.float64)
    perf[rng.random(count) < 0.1] = np.nan
    model = Model(
        PerfParams(*perf.T),
        GradParams(grads[:, 0], grads[:, 1] * noise),
        BatchLimits(limits[:, 0], limits[:, 1], limits[:, 2], limits[:, 3]),
    )
    seen = np.where(np.isnan(perf[:, 0]), 0, 2 ** rng.integers(0, 6, count))
    most = np.clip(2 * seen, 1, np.minimum(limits[:, 1] // limits[:, 2], 64)).astype(np.int64)
    return Jobs(model, most, rng.exponential(2000.0, count), rng.poisson(3.0, count))


def random_problem(
    jobs: int,
    nodes: int,
    rng: np.random.Generator,
    *,
    per_node: int = GPUS,
    exponent: float | None = -1.0,
    apart: bool = True,
) -> Problem:
    """A problem in the middle of a run; four fifths of the jobs hold GPUs.

    Args:
        jobs: how many.
        nodes: how many.
        rng: everything is drawn from it.
        per_node: GPUs.
        exponent: of the fitness.
        apart: may no two jobs that span nodes meet?
    """
    drawn = random_jobs(jobs, rng)
    problem = Problem(
        speedup=drawn.speedups(nodes * per_node),
        weight=np.full(jobs, 1 / per_node),
        factor=restart_factor(drawn.age, drawn.restarts, 30.0),
        base=np.zeros((jobs, nodes), np.int64),
        capacity=np.full(nodes, per_node),
        allowed=np.ones((jobs, nodes), np.bool_),
        least=np.ones(jobs, np.int64),
        most=drawn.most,
        pinned=np.zeros(jobs, np.bool_),
        exponent=exponent,
        apart=apart,
    )
    wanted = np.zeros((jobs, nodes), np.int64)
    for job in rng.permutation(jobs).tolist():
        if rng.random() < 0.8:
            spans = int(rng.integers(1, 4)) if rng.random() < 0.3 else 1
            where = rng.choice(nodes, min(spans, nodes), replace=False)
            wanted[job, where] = rng.integers(1, per_node + 1, len(where))
    problem.base[:] = repaired(problem, wanted, rng)
    return problem


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; with --check, 1 where it took too long or the genetic one is fitter."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="exit 1 when a budget is exceeded")
    parser.add_argument("--instances", type=int, default=3, help="of each size")
    given = parser.parse_args(words)
    heading()
    print(f"{'jobs x GPUs':>14} {'tables s':>9} {'search s':>9} {'of bound':>9} "
          f"{'genetic s':>10} {'of bound':>9} {'published s':>12}")  # fmt: skip
    good = True
    for jobs, nodes in SIZES:
        count = given.instances if jobs <= 80 else 1
        rows = np.array([_measured(jobs, nodes, seed) for seed in range(count)])
        tables, ours, fit, other, fitter = rows.mean(axis=0)
        published = PUBLISHED_S.get((jobs, nodes), np.nan)
        print(f"{f'{jobs} x {GPUS * nodes}':>14} {tables:9.3f} {ours:9.3f} {fit:9.4f} "
              f"{other:10.2f} {fitter:9.4f} {published:12.1f}")  # fmt: skip
        good &= not (rows[:, 4] > rows[:, 2] * (1 + 1e-9)).any()
        good &= (jobs, nodes) != (80, 64) or tables + ours <= BUDGET_S
    return 0 if good or not given.check else 1


def _measured(jobs: int, nodes: int, seed: int) -> tuple[float, float, float, float, float]:
    """CPU seconds and fitness over the bound, of ours and of the genetic search."""
    rng = np.random.default_rng(seed)
    drawn = random_jobs(jobs, rng)
    problem = random_problem(jobs, nodes, rng)
    start = time.process_time()
    drawn.speedups(nodes * GPUS)
    middle = time.process_time()
    found = find(problem, np.random.default_rng(seed))
    end = time.process_time()
    if jobs * nodes > EVOLVED:
        return middle - start, end - middle, found.fitness / found.bound, np.nan, np.nan
    start_other = time.process_time()
    other = evolve(problem, np.random.default_rng(seed))
    took = time.process_time() - start_other
    return (
        middle - start,
        end - middle,
        found.fitness / found.bound,
        took,
        other.fitness / found.bound,
    )


if __name__ == "__main__":
    raise SystemExit(main())
