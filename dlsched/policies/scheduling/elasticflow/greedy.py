"""All the GPUs that a job can use, in the order of deadlines: the released simulator's EDF.

A job has in each stretch of time the largest of its sizes that those before it leave free, whether
or not it needs so many, until its work is done.
"""

from __future__ import annotations

from itertools import accumulate

from dlsched.policies.scheduling.elasticflow.planning import Demand, Plan
from dlsched.policies.scheduling.elasticflow.timeline import FOREVER, Steps, in_slots


def plan_greedily(demand: Demand, free: Steps, slot: float) -> Plan:
    """Plan a job into free GPUs; others can have its GPUs at whole slots.

    Args:
        demand: the job.
        free: GPUs that are free, from now on; all of them after the last time.
        slot: seconds.
    """
    sizes, times = demand.sizes, free.times
    if not sizes.gpus:
        return Plan(Steps.always(0), FOREVER, FOREVER, False)
    gpus = [sizes.below[each] for each in free.gpus]
    gpus[-1] = sizes.below[-1]
    lasts = [end - start for start, end in zip(times, [*times[1:], FOREVER], strict=True)]
    done = list(accumulate(each * sizes.rate[has] for each, has in zip(lasts, gpus, strict=True)))
    last = next(place for place, steps in enumerate(done) if steps >= demand.left)
    rest = demand.seconds(demand.left - (done[last - 1] if last else 0.0), gpus[last], 0.0)
    real_end = times[last] + rest
    steps = Steps(times, [*gpus[: last + 1], *[0] * (len(gpus) - last - 1)]).merged()
    return Plan(steps, in_slots(real_end, slot), real_end, real_end <= demand.due)
