"""CPU time of whole replays in Gavel's rounds: `python benchmarks/gavel_replay.py [TRACE…]`.

The traces, the clusters and what the published simulator took for each are in the data root's
folder `gavel` (`golden_runs*.csv`, column `cpu_s`, measured once on a machine like ours, imports
not counted). A figure is the least of some runs in this process, from the trace in memory to the
result. What a round costs, and how many leases begin in it, says where the time goes.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):  # run as a script: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.measure import heading
from dlsched.core.cluster.description import parse_cluster_spec
from simulate.replay import replay
from simulate.settings import RunSettings
from simulate.traces.open import open_trace
from tests.throughputs import read_throughputs

__all__ = ["main"]

ROOT = Path(__file__).parents[2] / "shared" / "data"
TYPES = ("v100", "p100", "k80")
OURS = {
    "isolated": "isolated",
    "max_min_fairness": "max-min-agnostic",
    "max_min_fairness_perf": "max-min",
    "finish_time_fairness": "ftf-agnostic",
    "finish_time_fairness_perf": "ftf",
    "min_total_duration_perf": "makespan",
    "max_sum_throughput_perf": "max-throughput",
    "fifo_perf": "fifo",
    "allox": "allox",
    "gandiva": "gandiva",
}
PART = 0.1  # of the published simulator's CPU time that a replay should take


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="gavel_replay", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("traces", nargs="*", default=["busy1gpu_s0"], help="by name")
    parser.add_argument("--runs", type=int, default=3, help="of which the least counts")
    given = parser.parse_args(words)
    folder = Path(os.environ.get("DLSCHED_DATA", ROOT)) / "gavel"
    rows: list[dict[str, str]] = []
    for path in sorted(folder.glob("golden_runs*.csv")):
        with path.open() as file:
            rows += [row for row in csv.DictReader(file) if row["policy"] in OURS]
    names = {f"trace_{name}.csv" for name in given.traces}
    rows = [row for row in rows if row["trace"] in names]
    if not rows:
        print(f"no runs of {', '.join(given.traces)} in {folder} (set DLSCHED_DATA)")
        return 1
    yardstick = heading()
    print(
        f"{'trace':18}{'objective':18}{'CPU s':>8}{'yardsticks':>12}"
        f"{'published':>11}{'part':>8}{'starts/round':>14}"
    )
    for row in rows:
        best, starts = _least(folder, row, given.runs)
        part = best / float(row["cpu_s"])
        name = row["trace"].removeprefix("trace_").removesuffix(".csv")
        print(
            f"{name:18}{OURS[row['policy']]:18}{best:8.2f}{best / yardstick:12.2f}"
            f"{float(row['cpu_s']):11.2f}{part:8.0%}"
            f"{starts / int(row['rounds']):14.1f}{'' if part <= PART else '  over a tenth'}",
            flush=True,
        )
    return 0


def _least(folder: Path, row: dict[str, str], runs: int) -> tuple[float, int]:
    """CPU seconds of the fastest of some runs, and how many leases began."""
    counts = dict(zip(TYPES, map(int, row["cluster_v100_p100_k80"].split(":")), strict=True))
    sizes = dict(zip(TYPES, map(int, row["gpus_per_server"].split(":")), strict=True))
    parts = [f"{counts[t] // sizes[t]}x{sizes[t]}:{t}" for t in sorted(TYPES) if counts[t]]
    cluster = parse_cluster_spec("+".join(parts))
    table = read_throughputs(folder / (row["throughputs"] or "simulation_throughputs.csv.gz"))
    options = (f"objective={OURS[row['policy']]}", "semantics=gavel")
    settings = RunSettings(policy="gavel", options=options, record=False)
    trace = open_trace(folder / row["trace"])
    best, starts = float("inf"), 0
    for _ in range(runs):
        began = time.process_time()
        result = replay(trace, cluster, settings, throughputs=table)
        best = min(best, time.process_time() - began)
        starts = int(result.jobs.starts.sum())
    return best, starts


if __name__ == "__main__":
    sys.exit(main())
