"""CPU time of one solve of Gavel's objectives: `python benchmarks/gavel_solver.py [--check]`.

Jobs are drawn as the published generator does: 26 kinds on three GPU types, gangs of 1 (70 %), 2, 4
and 8, a fifth of weight 5, m/4 GPUs a type. `distinct` perturbs every throughput by 10 %, so that
no two jobs are alike. With `--profiles FILE` kinds and pairs come from a table of measured
throughputs, else they are made up. Every figure is the median of several solves in this process,
each by a solver that remembers nothing, everything from columns to X included.

`published` is the median of one call of the published implementation (cvxpy with ECOS; GLPK for the
saturation tests of water filling) in CPU ms, measured once on a machine like ours; its water
filling had five entities.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

if __package__ in (None, ""):  # run as a script: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.measure import heading
from dlsched.core.speed.throughput_table import JobKind, Measurement, ThroughputTable
from dlsched.policies.scheduling.gavel import Entity, Problem, Solver
from dlsched.policies.scheduling.gavel.problem import all_pairs
from tests.throughputs import read_throughputs

__all__ = ["instance", "made_up", "main"]

TYPES = ("k80", "p100", "v100")
SCALES = (1, 2, 4, 8)
SIZES = (32, 128, 512, 1024, 2048)
PACKED_SIZES = (32, 64, 128, 512)

# CPU ms of one call of the published implementation, by objective and number of jobs
PUBLISHED = {
    "isolated": {32: 0.3, 128: 0.7, 512: 1.8, 1024: 3.6, 2048: 6.4},
    "fifo": {32: 0.2, 128: 0.3, 512: 0.9, 1024: 1.8, 2048: 3.7},
    "max-min": {32: 5.6, 128: 7.6, 512: 20.0, 1024: 32.9, 2048: 67.2},
    "max-throughput": {32: 4.4, 128: 4.9, 512: 12.4, 1024: 19.3, 2048: 36.5},
    "makespan": {32: 22.8, 128: 28.8, 512: 62.0, 1024: 112.8, 2048: 207.3},
    "ftf": {32: 54.8, 128: 209.7, 512: 1106.6, 1024: 2639.7, 2048: 6671.7},
    "hierarchical": {32: 85.3, 128: 173.7, 512: 5316.7, 1024: 24152.4},
    "allox": {32: 1.4, 128: 155.4},
    "max-min-packed": {32: 29.9, 64: 109.4, 128: 585.0},
}
BUDGET = {
    ("max-min", 2048): 30.0,
    ("ftf", 2048): 300.0,
    ("makespan", 2048): 60.0,
    ("water-filling", 512): 500.0,
    ("hierarchical", 512): 500.0,
    ("max-min-packed", 512): 3000.0,
    ("allox", 2048): 1000.0,
}
UNPACKED: tuple[str, ...] = (
    "isolated",
    "fifo",
    "max-min",
    "max-min-agnostic",
    "water-filling",
    "hierarchical",
)
UNPACKED += ("ftf", "makespan", "max-throughput", "cost", "allox")
PACKED = ("max-min-packed", "ftf-packed", "hierarchical-packed")


@dataclass(frozen=True, slots=True)
class Figure:
    """What one objective took on one instance."""

    objective: str
    jobs: int
    distinct: bool
    cpu_ms: float

    @property
    def budget(self) -> float | None:
        """CPU ms that it may take."""
        return BUDGET.get((self.objective, self.jobs))

    def line(self) -> str:
        """As printed."""
        published = PUBLISHED.get(self.objective, {}).get(self.jobs)
        times = "" if published is None else f"{published / self.cpu_ms:.1f} x"
        return (
            f"{self.objective:20}{self.jobs:6}{'  distinct' if self.distinct else '':10}"
            f"{self.cpu_ms:10.1f}{'' if published is None else f'{published:.1f}':>12}{times:>9}"
            f"{'' if self.budget is None else f'{self.budget:g}':>8}"
        )


def made_up(seed: int = 0) -> ThroughputTable:
    """26 kinds whose speeds differ by type as published ones do, faster types not always faster."""
    rng = np.random.default_rng(seed)
    kinds = [JobKind(f"model {n // 5}", 2 ** (n % 5 + 4)) for n in range(26)]
    found = []
    for kind in kinds:
        base = float(np.exp(rng.uniform(0, 4)))
        by_type = dict(zip(TYPES, base * np.exp(rng.normal([-1.6, -0.5, 0], 0.5)), strict=True))
        for name, speed in by_type.items():
            for scale in SCALES:
                rate = float(speed * scale ** rng.uniform(0.6, 1.0))
                found.append(Measurement(gpu_type=name, scale=scale, kind=kind, rate=rate))
    alone = {(m.gpu_type, m.scale, m.kind): m.rate for m in found}
    for name in TYPES:
        for scale in SCALES:
            for n, kind in enumerate(kinds):
                for partner in kinds[: n + 1]:
                    part = rng.uniform(0.25, 0.95, 2) * (rng.random() < 0.6)
                    if kind == partner:
                        part[1] = part[0]
                    found.append(
                        Measurement(
                            gpu_type=name,
                            scale=scale,
                            kind=kind,
                            rate=float(part[0] * alone[name, scale, kind]),
                            partner=partner,
                            partner_rate=float(part[1] * alone[name, scale, partner]),
                        )
                    )
    return ThroughputTable(found)


def instance(
    table: ThroughputTable,
    jobs: int,
    *,
    distinct: bool = False,
    packed: bool = False,
    singles: bool = False,
    seed: int = 0,
) -> Problem:
    """Jobs as the published generator draws them.

    Args:
        table: throughputs of the kinds.
        jobs: how many.
        distinct: every job has throughputs of its own.
        packed: with all pairs of jobs.
        singles: jobs of one GPU only.
        seed: of everything random.
    """
    rng = np.random.default_rng((seed, jobs))
    scales = rng.choice(SCALES, jobs, p=[0.7, 0.1, 0.15, 0.05])
    if singles:
        scales[:] = 1
    usable = ~np.isnan(table.alone[0]).any(axis=0)  # [scale, kind]
    kinds = np.array(
        [rng.choice(np.flatnonzero(usable[table.scales.index(int(s))])) for s in scales], np.int64
    )
    speed = table.speeds(kinds, scales, TYPES)
    if distinct:
        speed = speed * np.exp(0.1 * rng.standard_normal(speed.shape))
    length = 60 * 10 ** np.where(
        rng.random(jobs) < 0.2, rng.uniform(3, 4, jobs), rng.uniform(1.5, 3, jobs)
    )
    return Problem.of(
        speed,
        [max(jobs // 4, 1)] * 3,
        types=TYPES,
        scale=scales,
        weight=np.where(rng.random(jobs) < 0.2, 5.0, 1.0),
        remaining=np.floor(length * speed.max(axis=1)) + 1,
        elapsed=rng.uniform(0, 40_000, jobs),
        price=[0.135, 0.43, 0.74],
        pairs=all_pairs(
            scales, lambda a, b: table.pair_speeds(kinds[a], kinds[b], scales[a], TYPES)
        )
        if packed
        else None,
        entities=[
            Entity(
                jobs=tuple(range(n, jobs, 5)),
                weight=n + 1,
                policy="fairness" if n % 2 else "fifo",
            )
            for n in range(5)
        ],
    )


def cpu_ms(solve: Callable[[], object], least: int = 3) -> float:
    """Median CPU ms of some calls: more of them when they are short."""
    costs: list[float] = []
    while len(costs) < least or (math.fsum(costs) < 200 and len(costs) < 15):
        began = time.process_time()
        solve()
        costs.append(1e3 * (time.process_time() - began))
    return statistics.median(costs)


def measured(objective: str, problem: Problem, *, distinct: bool) -> Figure:
    """One objective on one instance."""

    def solve() -> object:
        return Solver(objective).solve(problem, np.random.default_rng(0))

    return Figure(objective, problem.size, distinct, cpu_ms(solve))


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; with --check, exit code 1 when a budget is exceeded."""
    parser = argparse.ArgumentParser(
        prog="gavel_solver", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("objectives", nargs="*", help="only these")
    parser.add_argument("--profiles", metavar="FILE", help="measured throughputs")
    parser.add_argument("--sizes", help="numbers of jobs, comma-separated")
    parser.add_argument("--check", action="store_true", help="exit 1 when a budget is exceeded")
    given = parser.parse_args(words)
    table = read_throughputs(given.profiles) if given.profiles else made_up()
    wanted = given.objectives or [*UNPACKED, *PACKED]
    sizes = [int(size) for size in given.sizes.split(",")] if given.sizes else None
    heading()
    print(f"{'objective':20}{'jobs':>6}{'':10}{'CPU ms':>10}{'published':>12}{'':9}{'budget':>8}")
    figures = []
    for objective in wanted:
        packed = objective in PACKED
        for jobs in sizes or (PACKED_SIZES if packed else SIZES):
            for distinct in (False, True) if objective in UNPACKED[2:] else (False,):
                problem = instance(
                    table, jobs, distinct=distinct, packed=packed, singles=objective == "allox"
                )
                if objective not in ("hierarchical", "hierarchical-packed"):
                    problem = replace(problem, entities=())
                figures.append(measured(objective, problem, distinct=distinct))
                print(figures[-1].line(), flush=True)
    over = [f for f in figures if f.budget is not None and f.cpu_ms > f.budget]
    for figure in over:
        print(f"over budget: {figure.line()}")
    return 1 if given.check and over else 0


if __name__ == "__main__":
    sys.exit(main())
