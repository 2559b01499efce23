"""What dividing GPUs among elastic jobs costs: `python benchmarks/elastic.py [PROFILES]`.

First AFS' and Optimus' division by itself, up to 3,000 jobs on 10,000 GPUs; then, where PROFILES
names a folder of measured applications with workloads, whole replays in Pollux' world, each in a
process of its own. Seconds are CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

if __package__ in (None, ""):  # run as a script: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

from benchmarks.measure import dlsched, heading, measure
from dlsched.policies.scheduling.afs import shares
from dlsched.policies.scheduling.optimus.marginal_gain import divide_gpus

__all__ = ["main"]

SIZES = ((20, 64), (80, 256), (400, 1024), (1000, 4096), (3000, 10000))
MOST = 64  # GPUs of a job
DIVISION_BUDGET_S = 0.5  # at the largest size
RUN_BUDGET_S = 0.8
ORIGINAL_RUN_S = 61.0  # 160 jobs under the artifact's Optimus
POLICIES = (("optimus", ("-o", "oracle=true")), ("optimus", ()), ("afs", ()))


def divisions() -> float:
    """Print a line for each size; returns the larger of both costs at the largest size."""
    rng = np.random.default_rng(0)
    dearest = 0.0
    for jobs, gpus in SIZES:
        powers, work = rng.uniform(0.4, 1.0, jobs), rng.lognormal(5.0, 1.5, jobs)
        rates = np.arange(1, MOST + 1)[None, :] ** powers[:, None]
        begun = time.process_time()
        shares(rates, work, gpus)
        afs = time.process_time() - begun
        optimus = by_marginal_gain((1 / rates).tolist(), work.tolist(), gpus)
        print(f"{jobs:5} jobs on {gpus:6} GPUs: afs {afs:.4f} s, optimus {optimus:.4f} s")
        dearest = max(afs, optimus)
    return dearest


def by_marginal_gain(steps: list[list[float]], left: list[float], gpus: int) -> float:
    """Seconds of one division by Optimus."""

    def step(job: int, count: int) -> float:
        return steps[job][count - 1]

    begun = time.process_time()
    divide_gpus([1] * len(left), [MOST] * len(left), left, gpus, step)
    return time.process_time() - begun


def runs(profiles: Path, workload: str) -> float:
    """Print a line for each policy; returns what Optimus with the oracle took."""
    found = []
    for policy, options in POLICIES:
        words = ["--profiles", str(profiles), "--workload", workload, "--cluster", "16x4:t4"]
        words += ["--round", "60", "--policy", policy, "-o", "semantics=pollux", *options]
        trace = str(profiles / "workloads.csv.gz")
        output = measure(dlsched("replay", trace, *words, "--summary-out", "-")).output
        summary = json.loads(output[output.index("{") : output.rindex("}") + 1])
        found.append(summary["cpu_seconds"])
        print(
            f"{' '.join((policy, *options[1:])):20} {summary['jobs']} jobs: "
            f"{summary['cpu_seconds']:.2f} s, average JCT {summary['avg_jct']:.1f} s, "
            f"{summary['restarts']} restarts"
        )
    return float(found[0])


def main() -> int:
    """Measure; 1 when a budget is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profiles", nargs="?", type=Path)
    parser.add_argument("--workload", default="1.0:6")
    given = parser.parse_args()
    heading()
    within = divisions() <= DIVISION_BUDGET_S
    if given.profiles is not None:
        took = runs(given.profiles, given.workload)
        print(f"the artifact took {ORIGINAL_RUN_S:g} s for what optimus oracle=true did")
        within = within and took <= RUN_BUDGET_S
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
