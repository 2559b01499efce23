"""All the GPUs that a job can use, in the order of deadlines: the released simulator's EDF.

A job has in each stretch of time the largest of its sizes that those before it leave free, whether
or not it needs so many, until its work is done.
"""

from __future__ import annotations

import numpy as np

from dlsched.policies.scheduling.elasticflow.planning import Demand, Plan
from dlsched.policies.scheduling.elasticflow.timeline import DUST, Steps, in_slots


def plan_greedily(demand: Demand, free: Steps, slot: float) -> Plan:
    """Plan a job into free GPUs; others can have its GPUs at whole slots.

    Args:
        demand: the job.
        free: GPUs that are free, from now on; all of them after the last time.
        slot: seconds.
    """
    sizes = demand.sizes
    gpus = sizes.below[free.gpus]
    gpus[-1] = sizes.below[-1]
    lasts = np.append(np.diff(free.times), np.inf)
    with np.errstate(invalid="ignore"):
        work = np.where(gpus > 0, lasts * sizes.rate[gpus], 0.0)
    done = np.cumsum(work)
    last = int((done >= demand.left).argmax())
    before = float(done[last - 1]) if last else 0.0
    rest = float(np.ceil((demand.left - before) / sizes.rate[gpus[last]] * (1 - DUST)))
    start = float(free.times[last])
    gpus[last + 1 :] = 0
    steps = Steps(free.times.copy(), gpus).merged()
    end = in_slots(start + rest, slot)
    return Plan(steps, end, start + rest, start + rest <= demand.due)
