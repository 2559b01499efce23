"""Workloads for the jobs of a generated trace, drawn from a table of what was measured of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dlsched.core.errors import BadInput
from simulate.profiles.workloads import WorkloadProfiles
from simulate.traces.trace import Trace

STREAM = 0x3017  # random numbers of their own: the jobs are the same, with workloads or without


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
    rng = np.random.default_rng([seed, STREAM])
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
