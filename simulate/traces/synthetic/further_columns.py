"""Columns that a generated trace has on request: deadlines, guarantees, sizes, workloads.

Each has random numbers of its own, so that the jobs are the same with and without it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from dlsched.core.errors import BadInput
from dlsched.jobs.fields import GUARANTEES
from simulate.profiles.workloads import WorkloadProfiles
from simulate.traces.trace import Trace

SLACK = (1.5, 6.0)
OF_DEADLINES = 0x0D0E


def with_deadlines(
    trace: Trace, *, share: float, slack: tuple[float, float] = SLACK, seed: int
) -> Trace:
    """Give jobs a deadline at random, a uniform multiple of their duration after the submit.

    Args:
        trace: the jobs.
        share: of the jobs that get one, 0 to 1.
        slack: the smallest and the largest multiple.
        seed: of the randomness.

    Raises:
        BadInput: a share outside 0 to 1, or multiples that are not 1 or more, and in order.
    """
    low, high = slack
    if not 0 <= share <= 1:
        raise BadInput(f"the share of jobs with deadlines must be between 0 and 1, not {share:g}")
    if not (1 <= low <= high and math.isfinite(high)):
        raise BadInput(f"the slack must be LOW:HIGH with 1 <= LOW <= HIGH, not {low:g}:{high:g}")
    rng = np.random.default_rng([seed, OF_DEADLINES])
    chosen = rng.random(len(trace)) < share
    deadline = np.ceil(trace.duration * rng.uniform(low, high, len(trace)))
    deadline[~chosen] = math.nan
    return replace(trace, columns={**trace.columns, "deadline": deadline})


OF_GUARANTEES = 0x0A47
MOST_GPUS = 8.0  # of one: all its GPUs lie on one node


def with_opportunistic(trace: Trace, *, share: float, seed: int) -> Trace:
    """Let jobs of up to 8 GPUs, drawn at random, use what others leave; the rest is guaranteed.

    Args:
        trace: the jobs.
        share: of the jobs of up to 8 GPUs that are opportunistic, 0 to 1.
        seed: of the randomness.

    Raises:
        BadInput: a share outside 0 to 1.
    """
    if not 0 <= share <= 1:
        raise BadInput(f"the share of opportunistic jobs must be between 0 and 1, not {share:g}")
    drawn = np.random.default_rng([seed, OF_GUARANTEES]).random(len(trace)) < share
    chosen = drawn & (trace.num_gpus <= MOST_GPUS)
    kinds = np.array(GUARANTEES, np.object_)[chosen.astype(np.int64)]
    return replace(trace, columns={**trace.columns, "guarantee": kinds})


# steps per second on g GPUs are g to this power; one in three jobs of each
MODELS = {"scales-well": 0.95, "scales": 0.85, "scales-badly": 0.6}
NODE = 8  # GPUs that any job may have; a larger gang may have its own number
OF_ELASTIC_JOBS = 0x0E1A


def with_elastic_jobs(trace: Trace, *, seed: int) -> Trace:
    """Let jobs run on 1 to 8 GPUs or up to their gang, and count their work in steps.

    Args:
        trace: the jobs; a job takes as long on its gang as before.
        seed: of the randomness.
    """
    rng = np.random.default_rng([seed, OF_ELASTIC_JOBS])
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


OF_WORKLOADS = 0x3017


def with_workloads(trace: Trace, table: WorkloadProfiles, *, seed: int) -> Trace:
    """Let each job train a workload of the table, all equally likely.

    Where the table has a column `num_gpus`, a job gets one that was measured on its gang, or on the
    nearest number of GPUs.

    Args:
        trace: the jobs.
        table: its columns, keys and measurements, become columns of the trace.
        seed: of the randomness.

    Raises:
        BadInput: the table tells workloads apart by nothing.
    """
    keys = tuple(name for name in table.keys if name != "num_gpus")
    if not keys:
        raise BadInput("the table of workloads has no column model")
    rng = np.random.default_rng([seed, OF_WORKLOADS])
    known = list(table.values)
    gangs = np.maximum(np.ceil(trace.num_gpus), 1.0)
    rows: list[int] = []
    drawn = rng.random(len(trace))
    sizes = None
    if "num_gpus" in table.keys:
        sizes = np.array([float(key[table.keys.index("num_gpus")]) for key in known])
    for gang, chance in zip(gangs.tolist(), drawn.tolist(), strict=True):
        of_size = np.arange(len(known))
        if sizes is not None:
            distance = np.abs(np.log(sizes / gang))
            of_size = np.flatnonzero(distance == distance.min())
        rows.append(int(of_size[int(chance * len(of_size))]))
    columns = dict(trace.columns)
    for name in keys:
        place = table.keys.index(name)
        values = [known[row][place] for row in rows]
        is_text = any(isinstance(value, str) for value in values)
        columns[name] = np.array(values, np.object_ if is_text else np.float64)
    measured = np.array([table.values[known[row]] for row in rows]).reshape(len(rows), -1)
    columns |= {name: measured[:, place] for place, name in enumerate(table.names)}
    return replace(trace, columns=columns)
