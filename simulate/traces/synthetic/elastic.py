"""Elastic jobs for a generated trace, with a table of how fast they are on how many GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from simulate.traces.trace import Trace

# steps per second on g GPUs are g to this power; one in three jobs of each
MODELS = {"scales-well": 0.95, "scales": 0.85, "scales-badly": 0.6}
NODE = 8  # GPUs that any job may have; a larger gang may have its own number
STREAM = 0x0E1A  # random numbers of their own: the jobs are the same, elastic or not


def with_elastic_jobs(trace: Trace, *, seed: int) -> Trace:
    """Let jobs run on 1 to 8 GPUs or up to their gang, and count their work in steps.

    Args:
        trace: the jobs; a job takes as long on its gang as before.
        seed: of the randomness.
    """
    rng = np.random.default_rng([seed, STREAM])
    kind = rng.integers(0, len(MODELS), len(trace))
    power = np.array(list(MODELS.values()))[kind]
    gang = np.maximum(np.ceil(trace.num_gpus), 1.0)
    columns = {
        "model": np.array(list(MODELS), dtype=object)[kind],
        "total_iterations": np.ceil(trace.duration * gang**power),
        "min_gpus": np.ones(len(trace)),
        "max_gpus": np.maximum(gang, NODE),
    }
    return replace(trace, columns={**trace.columns, **columns})


def speed_lines(trace: Trace, gpu_types: Sequence[str]) -> Iterator[str]:
    """The lines of the table of throughputs, alike on all GPU types.

    Args:
        trace: elastic jobs.
        gpu_types: of the cluster.
    """
    most = int(np.max(trace.columns["max_gpus"], initial=NODE))
    powers = {1 << k for k in range(most.bit_length())}
    gangs = set(np.maximum(np.ceil(trace.num_gpus), 1).astype(int).tolist())
    yield "accelerator,scale_factor,model,steps_per_s"
    for gpu_type in gpu_types:
        for model, power in MODELS.items():
            for gpus in sorted(powers | gangs):
                yield f"{gpu_type},{gpus},{model},{gpus**power:.6g}"
