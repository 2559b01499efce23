"""How busy a study keeps its processes: `python benchmarks/study.py [--check]`.

A hundred runs of unequal length: four policies, five loads, five seeds, on one trace of 150 jobs.
`in order` begins them as the grid lists them. A process counts as busy while it has a run, so that
other programs of the machine do not matter. The start of the processes is part of the time.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from unittest.mock import patch

if __package__ in (None, ""):  # run as a script: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.measure import heading
from dlsched.core.cluster.description import parse_cluster_spec
from simulate.settings import RunSettings
from simulate.sweep import Dimensions, Inputs, Run, expand
from simulate.sweep.order import LongestFirst
from simulate.sweep.processes import Processes
from simulate.traces.generate import generate_trace

__all__ = ["main"]

POLICIES = ("fifo", "srtf", "themis", "gandiva-fair")
LOADS = (0.6, 0.8, 1.0, 1.2, 1.4)
JOBS = 150
WORKERS = 2
LEAST_BUSY = 0.9


class _InOrder(LongestFirst):
    def take(self) -> Run:
        """The first that is left."""
        return self._left.pop(0)


def busy(order: type[LongestFirst], inputs: Inputs, runs: tuple[Run, ...]) -> tuple[float, float]:
    """The share of the time in which a process had a run, and the seconds of the study."""
    spent: list[float] = []

    class Watched(order):  # type: ignore[valid-type, misc]
        def took(self, run: Run, seconds: float) -> None:
            spent.append(seconds)
            super().took(run, seconds)

    begun = time.monotonic()
    with patch("simulate.sweep.processes.LongestFirst", Watched):
        for _ in Processes(WORKERS).start(inputs, runs, lambda run, ended: None):
            pass
    took = time.monotonic() - begun
    return math.fsum(spent) / (WORKERS * took), took


def main() -> int:
    """Run the study in both orders; with --check, exit 1 where processes wait too much."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    heading()
    trace = generate_trace("philly", jobs=JOBS, seed=1, gpus=64, load=1.0)
    inputs = Inputs(traces=(trace,), cluster=parse_cluster_spec("8x8"))
    runs = expand(
        Dimensions(policy=POLICIES, load=LOADS, seed=(1, 2, 3, 4, 5)), RunSettings(record=False)
    )
    shares = {}
    for name, order in (("in order", _InOrder), ("longest first", LongestFirst)):
        shares[name], took = busy(order, inputs, runs)
        print(f"  {name:14} {len(runs)} runs: busy {shares[name]:.1%}, {took:.1f} s")
    return int(given.check and shares["longest first"] < LEAST_BUSY)


if __name__ == "__main__":
    raise SystemExit(main())
