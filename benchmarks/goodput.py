"""What the goodput model costs: `python benchmarks/goodput.py PROFILES [--workload SET:N]`.

PROFILES is a folder of measured applications with a file of workloads, as `dlsched replay` reads
them. Seconds are CPU seconds, medians; the published artifact's own figures stand beside them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

if __package__ in (None, ""):  # run as a script: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from benchmarks.measure import heading
from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.goodput.batch import best_batch, best_batches
from dlsched.core.goodput.fitting import Observations, fit
from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams
from dlsched.core.goodput.throughput import accumulation_time, optimiser_time
from simulate.goodput.application import Application
from simulate.goodput.files import read_applications
from simulate.replay import replay
from simulate.settings import RunSettings
from simulate.traces.open import open_trace
from simulate.traces.options import ReadOptions

__all__ = ["main"]

PERF = PerfParams(0.05, 0.002, 0.10, 0.01, 0.02, 0.003, 1.5)
GRADS, LIMITS = GradParams(0.5, 4.0), BatchLimits.of(128, 4096, 32, 256)
FEW = (
    *((1, 1, 64), (1, 1, 128), (1, 1, 256), (1, 2, 64), (1, 4, 128)),
    *((2, 8, 64), (2, 8, 256), (4, 16, 128)),
)
FIT_BUDGET_S = 3e-3
RUN_BUDGET_S = 0.2
ARTIFACT_FIT_S = (0.070, 0.366)
ARTIFACT_RUN_S = 12.0  # 160 jobs under Tiresias


def cpu_s(call: Callable[[], object], times: int) -> float:
    """Median CPU seconds of a call."""
    found = []
    for _ in range(times):
        begun = time.process_time()
        call()
        found.append(time.process_time() - begun)
    return statistics.median(found)


def example() -> Observations:
    """Eight exact times of known parameters."""
    nodes, replicas, local = np.array(FEW).T
    last = optimiser_time(PERF, nodes, replicas, local)
    return Observations(nodes, replicas, local, accumulation_time(PERF, local), last)


def measurements(application: Application) -> Observations:
    """Every measured shape of an application, each (nodes, replicas, samples) once."""
    points, times = application.times.points()
    nodes, replicas, local = points.astype(np.int64).T
    return Observations(nodes, replicas, local, times[:, 0] - times[:, 1], times[:, 0])


def main() -> int:
    """Measure and print; exit code 1 if a budget is exceeded."""
    parser = argparse.ArgumentParser(prog="goodput", description=__doc__.split("\n")[0])
    parser.add_argument("profiles", type=Path)
    parser.add_argument("--workload", default="1.0:6", metavar="SET:N")
    given = parser.parse_args()
    heading()
    over = _fits(given.profiles)
    _tables()
    over |= _runs(given.profiles, given.workload)
    return int(over)


def _fits(folder: Path) -> bool:
    low, high = (1e3 * seconds for seconds in ARTIFACT_FIT_S)
    print(f"a fit, ms (the artifact: {low:.0f} to {high:.0f})")
    cases = {"8 exact times": example()}
    for name, application in sorted(read_applications(folder).items()):
        cases[f"all of {name}"] = measurements(application)
    over = False
    for name, seen in cases.items():
        warm = fit(seen).params
        ways = {
            "single": cpu_s(lambda seen=seen: fit(seen, starts="single"), 9),  # type: ignore[misc]
            "multi": cpu_s(lambda seen=seen: fit(seen), 9),  # type: ignore[misc]
            "warm": cpu_s(
                lambda seen=seen, warm=warm: fit(seen, starts="single", warm=warm),  # type: ignore[misc]
                9,
            ),
        }
        over |= ways["single"] > FIT_BUDGET_S
        shown = "  ".join(f"{way} {1e3 * seconds:5.2f}" for way, seconds in ways.items())
        print(f"  {name:20} {len(seen.local):5} rows  {shown}")
    return over


def _tables() -> None:
    print("best batch sizes, ms")
    one = cpu_s(lambda: best_batch(PERF, GRADS, LIMITS, 2, 8), 99)
    print(f"  one job on one shape                {1e3 * one:8.3f}")
    for jobs, gpus in ((1, 64), (80, 64), (80, 256)):
        replicas = np.tile(np.arange(1, gpus + 1), 2)
        nodes = np.repeat([1, 2], gpus)
        perf = PerfParams(*(np.full(jobs, value) for value in PERF))
        grads = GradParams(np.full(jobs, 0.5), np.full(jobs, 4.0))
        limits = BatchLimits(*(np.full(jobs, value) for value in LIMITS))
        table = cpu_s(lambda: best_batches(perf, grads, limits, nodes, replicas), 5)  # noqa: B023
        print(f"  {jobs:3} jobs on 1 to {gpus:3} GPUs, near and far {1e3 * table:8.1f}")


def _runs(folder: Path, workload: str) -> bool:
    cluster, applications = parse_cluster_spec("16x4:t4"), read_applications(folder)
    reading = cpu_s(lambda: read_applications(folder), 3)
    trace = open_trace(folder / "workloads.csv.gz", options=ReadOptions(workload=workload))
    settings = RunSettings(policy="tiresias", options=("semantics=pollux",), record=False)

    def run() -> None:
        replay(trace, cluster, settings, applications=applications)

    first, later = cpu_s(run, 1), cpu_s(run, 5)
    print(f"workload {workload} under tiresias, {len(trace)} jobs, s (the artifact: 12)")
    print(f"  reading the profiles {reading:.3f}")
    print(f"  the first run, with what it loads {first:.3f}")
    print(f"  a run {later:.3f}, {ARTIFACT_RUN_S / later:.0f} times as fast")
    return later > RUN_BUDGET_S


if __name__ == "__main__":
    raise SystemExit(main())
