"""CPU time of Muri's grouping: `python benchmarks/muri_matching.py [--check]`.

Jobs of one gang size on GPUs for a quarter of them, so that groups of four are made: once all jobs
differ, once they are of eight models. `first matching` is the first of the rounds, each job with
each. The reference is the same matching by networkx, in pure Python as the artifact's; it grows
faster than with the square, so it is measured on fewer jobs, with ours on as many beside it.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):  # run as a script: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.measure import heading
from dlsched.core.arrays import Floats
from dlsched.policies.scheduling.muri.grouping import InterleavedJobs, Interleaving, matched_groups
from dlsched.policies.scheduling.muri.matching import best_pairs

JOBS, REFERENCE_JOBS = 1000, 300
MODELS = 8
LEAST_FACTOR = 10.0  # that pure Python must take longer


def jobs_of(count: int, models: int) -> InterleavedJobs:
    """Jobs of one gang size, of so many models."""
    rng = np.random.default_rng(0)
    known = rng.lognormal(4.0, 1.5, (models, 3)) / 1e3
    stages = known[rng.integers(0, models, count)] if models < count else known
    return InterleavedJobs(stages, stages.sum(axis=1), np.zeros(count), Interleaving())


def cpu_s(work: Callable[[], Any]) -> float:
    """Seconds of CPU that some work takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def by_networkx(weight: Floats) -> set[tuple[int, int]]:
    """The pairs of largest total weight, found in pure Python."""
    import networkx  # noqa: PLC0415 - comes with torch, and is needed here only

    graph = networkx.Graph()
    for one, other in zip(*np.nonzero(np.tril(weight, -1) > 0), strict=True):
        graph.add_edge(int(one), int(other), weight=float(weight[one, other]))
    pairs: set[tuple[int, int]] = networkx.max_weight_matching(graph)
    return pairs


def main() -> int:
    """Measure, print, and check where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 below ten times as fast")
    check = parser.parse_args().check
    print(heading())
    best_pairs(np.ones((2, 2)))  # loads the library
    for models in (JOBS, MODELS):
        jobs = jobs_of(JOBS, models)
        weight = jobs.weights([(job,) for job in range(JOBS)])
        first = cpu_s(partial(best_pairs, weight))
        whole = cpu_s(partial(matched_groups, [(1, range(JOBS))], JOBS // 4, jobs, 4))
        print(f"{JOBS} jobs of {models} models: first matching {first:.2f} s, all {whole:.2f} s")
    jobs = jobs_of(REFERENCE_JOBS, REFERENCE_JOBS)
    weight = jobs.weights([(job,) for job in range(REFERENCE_JOBS)])
    ours, theirs = cpu_s(lambda: best_pairs(weight)), cpu_s(lambda: by_networkx(weight))
    print(
        f"{REFERENCE_JOBS} jobs that differ: {ours:.3f} s, networkx {theirs:.2f} s: "
        f"{theirs / ours:.0f} times"
    )
    value, reference = (
        math.fsum(float(weight[pair]) for pair in found)
        for found in (best_pairs(weight), by_networkx(weight))
    )
    assert math.isclose(value, reference, rel_tol=1e-9)
    return int(check and theirs < LEAST_FACTOR * ours)


if __name__ == "__main__":
    sys.exit(main())
