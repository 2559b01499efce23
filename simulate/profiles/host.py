"""The jobs of a trace under profiles of processors and memory: how fast, and how much work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.composition.host_tables import HostTables
from dlsched.core.arrays import Floats
from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import BadInput
from dlsched.core.semantics import Semantics
from dlsched.core.speed.sensitivity import HostSpeeds, proportional_share
from simulate.traces.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class HostProfiled:
    """The jobs of a trace.

    Attributes:
        speeds: what they gain by processors and memory.
        work: how much each has to do: seconds with its proportional share, or steps where a round
            is whole steps.
    """

    speeds: HostSpeeds
    work: Floats


def host_profiled(
    trace: Trace, cluster: Cluster, tables: HostTables, semantics: Semantics
) -> HostProfiled:
    """Look up every job.

    Work in steps is counted as steps times the seconds of a round, so that what is done in a round
    is a whole number.

    Raises:
        BadInput: the nodes' processors are not known; a job has no model, one without a profile, or
            neither a duration nor iterations of known length.
    """
    proportional = proportional_share(cluster)
    if not proportional.cpus:
        raise BadInput(
            "--profiles speak of processors, which the cluster's nodes do not say: a cluster file "
            "has `cpus` and `memory_gb` of [[nodes]]"
        )
    profiles = tables.for_servers(proportional)
    count = len(trace)
    models: list[str] = [
        str(each) for each in trace.columns.get("model", np.full(count, "", object)).tolist()
    ]
    for row, model in enumerate(models):
        if model not in profiles:
            has = "no model" if not model else f"the model {model}"
            raise BadInput(
                f"{trace.name}: job {trace.job_id[row]} has {has}; --profiles know "
                f"{', '.join(sorted(profiles))}"
            )
    per_step = semantics.grid_length if semantics.whole_steps else None
    speeds = HostSpeeds(models, profiles, proportional, work_per_step=per_step)
    steps = np.asarray(trace.columns.get("total_iterations", np.full(count, np.nan)), np.float64)
    seconds = steps * speeds.step_s(np.arange(count))
    if per_step is not None:
        work = np.where(np.isnan(seconds), np.nan, steps * per_step)
    else:
        work = np.where(np.isnan(seconds), trace.duration, seconds)
    unknown = np.flatnonzero(np.isnan(work))
    if unknown.size:
        job = trace.job_id[unknown[0]]
        raise BadInput(
            f"{trace.name}: job {job} has no total_iterations of known length"
            + (f", which semantics {semantics.name} count" if per_step else " and no duration")
        )
    return HostProfiled(speeds=speeds, work=work)
