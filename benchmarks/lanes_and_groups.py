"""CPU time of Salus' iterations and PipeSwitch's groups: `python benchmarks/lanes_and_groups.py`.

A replay under `salus` in which each GPU has several jobs, with the number of iterations that were
simulated one by one; and the best groups of a model's layers.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

if __package__ in (None, ""):  # run as a script: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.measure import heading
from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.policies.node.pipeswitch.grouping import Model, best_groups
from simulate.replay import replay
from simulate.settings import RunSettings
from simulate.traces.trace import Trace

JOBS, GPUS, LAYERS = 200, 16, 150
ITERATION_S = 1.0


def trace() -> Trace:
    """Jobs of one GPU that come faster than GPUs become free."""
    rng = np.random.default_rng(0)
    empty = np.array([""] * JOBS, np.object_)
    return Trace(
        name="lanes",
        source="generated",
        job_id=np.array([str(k) for k in range(JOBS)], np.object_),
        submit_time=np.sort(rng.uniform(0, 1000, JOBS)),
        num_gpus=np.ones(JOBS),
        duration=rng.integers(50, 200, JOBS).astype(np.float64),
        user=empty,
        vc=empty,
        status=empty,
        columns={
            "persistent_gib": rng.uniform(0.2, 1.5, JOBS),
            "ephemeral_gib": rng.uniform(1.0, 8.0, JOBS),
            "iteration_ms": np.full(JOBS, ITERATION_S * 1000),
        },
    )


def main() -> int:
    """Measure and print."""
    print(heading())
    jobs = trace()
    for order in ("srtf", "fair"):
        settings = RunSettings(policy="salus", clock="events", options=(f"turns={order}",))
        start = time.process_time()
        replay(jobs, parse_cluster_spec(f"1x{GPUS}:v100@16"), settings)
        took = time.process_time() - start
        count = int(jobs.duration.sum() / ITERATION_S)
        print(f"salus, {order}: {JOBS} jobs, {count} iterations on {GPUS} GPUs: {took:.2f} CPU-s")
    rng = np.random.default_rng(1)
    model = Model(
        size=rng.uniform(0.1, 5, LAYERS),
        compute=rng.uniform(0.05, 0.5, LAYERS),
        bandwidth=12.0,
        call=0.02,
        sync=0.02,
    )
    start = time.process_time()
    groups = best_groups(model)
    took = time.process_time() - start
    print(f"pipeswitch: {LAYERS} layers in {len(groups)} groups: {took * 1000:.1f} CPU-ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
