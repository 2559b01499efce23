"""Where policies meet: traces at a load, a cluster, and what else is the same for all.

A run's trace is drawn by its seed: another generated trace, or another stretch of a recorded one.
Submit times are stretched so that the offered load on the cluster is the wanted one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from dlsched.core.cluster.description import Cluster, parse_cluster_spec
from dlsched.core.errors import BadInput
from simulate.profiles.workloads import WorkloadProfiles
from simulate.traces.generate import generate_trace
from simulate.traces.open import open_trace
from simulate.traces.statistics import offered_load
from simulate.traces.synthetic.further_columns import (
    MODELS,
    with_deadlines,
    with_elastic_jobs,
    with_opportunistic,
    with_workloads,
)
from simulate.traces.trace import Trace

LONGEST_S = 86_400.0  # longer jobs are cut, or one of them would decide a run
LARGEST = 4  # no job wants more than the cluster's GPUs divided by this
OPPORTUNISTIC = 0.5  # of the jobs that share GPUs, for policies that tell them apart
RESTART_S, ROUND_S = 30.0, 60.0
RECORDED = {  # below the folder of published data
    "philly": "traces/philly-passed/philly_passed_jobs.csv.gz",
    "helios": "traces/helios-venus-2020-05/venus_jobs_first10k.csv.gz",
    "pai": "traces/alibaba-gpu-v2023/openb_pod_list_default.csv.gz",
}
GENERATED = {"philly-like": "philly", "venus-like": "venus"}
# speeds of the models of generated jobs on the slower type, as part of those on the faster one
SLOWER = {"scales-well": 0.3, "scales": 0.5, "scales-badly": 0.8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """One set of conditions, with tables of its own.

    Attributes:
        name: as the entries have it.
        says: what is special.
        cluster: as `--cluster`.
        tracks: names of its traces.
        interference: as `replay --interference`.
        workloads: must each job train a workload of a table?
    """

    name: str
    says: str
    cluster: str
    tracks: tuple[str, ...]
    interference: str = ""
    workloads: bool = False

    @property
    def nodes(self) -> Cluster:
        """The cluster."""
        return parse_cluster_spec(self.cluster)

    def trace(
        self,
        track: str,
        found: Trace | None,
        *,
        jobs: int,
        load: float,
        seed: int,
        workloads: WorkloadProfiles | None = None,
    ) -> Trace:
        """The trace of a run.

        Args:
            track: its name.
            found: the recorded one; None for those that are generated.
            jobs: how many.
            load: to be offered.
            seed: which trace, or which stretch.
            workloads: what jobs train.

        Raises:
            BadInput: the recorded trace is too short for this seed.
        """
        gpus = self.nodes.total_gpus
        if found is None:
            drawn = generate_trace(GENERATED[track], jobs=jobs, seed=seed, gpus=gpus // LARGEST)
        else:
            drawn = _stretch(track, found, jobs, seed, gpus // LARGEST)
        short = np.minimum(drawn.duration, LONGEST_S)
        drawn = _at_load(replace(drawn, duration=short, columns={}), gpus, load)
        if self.name == "deadlines":
            drawn = with_deadlines(drawn, share=0.6, seed=seed)
        if self.name in ("elastic", "types"):
            drawn = with_elastic_jobs(drawn, seed=seed)
        if self.workloads and workloads is not None:
            drawn = with_workloads(drawn, workloads, seed=seed)
            drawn = with_opportunistic(drawn, share=OPPORTUNISTIC, seed=seed)
        return replace(drawn, name=f"{track} at {load:g}, {seed}")


DIVISIONS = {
    each.name: each
    for each in (
        Division(
            name="rigid",
            says="jobs of fixed size",
            cluster="16x8:v100",
            tracks=(*RECORDED, *GENERATED),
        ),
        Division(
            name="deadlines",
            says="60 % of the jobs have a deadline of 1.5 to 6 times their duration",
            cluster="16x8:v100",
            tracks=(*GENERATED,),
        ),
        Division(
            name="elastic",
            says="jobs may run on 1 to 8 GPUs or up to their size, with known speeds",
            cluster="16x8:v100",
            tracks=(*GENERATED,),
        ),
        Division(
            name="types",
            says="two GPU types; models gain unlike amounts from the faster one",
            cluster="8x8:v100+8x8:k80",
            tracks=(*GENERATED,),
        ),
        Division(
            name="sharing",
            says="single-GPU jobs may run beside each other, slowed as their stages say",
            cluster="16x8:v100@32",
            tracks=("philly-like",),
            interference="stages",
            workloads=True,
        ),
    )
}


def recorded(track: str, files: Mapping[str, Path]) -> Trace | None:
    """The recorded trace of a track; None where it is generated."""
    return None if track in GENERATED else open_trace(files[track])


def write_speeds(traces: list[Trace], cluster: Cluster, path: Path) -> None:
    """Write the table of speeds of elastic jobs, for all traces of a division."""
    gangs = {int(gang) for trace in traces for gang in np.ceil(trace.num_gpus)} | {1, 2, 4, 8}
    fast, *slow = cluster.gpu_types

    def lines() -> Iterator[str]:
        yield "accelerator,scale_factor,model,steps_per_s"
        for gpus in sorted(max(gang, 1) for gang in gangs):
            for model, power in MODELS.items():
                yield f"{fast},{gpus},{model},{gpus**power:.6g}"
                for kind in slow:
                    yield f"{kind},{gpus},{model},{SLOWER[model] * gpus**power:.6g}"

    path.write_text("\n".join(lines()) + "\n")


def _stretch(track: str, found: Trace, jobs: int, seed: int, largest: int) -> Trace:
    """So many jobs in a row, those that are larger left out; each seed has others."""
    fit = np.flatnonzero((found.num_gpus <= largest) & (found.duration > 0))
    rows = fit[(seed - 1) * jobs : seed * jobs]
    if len(rows) < jobs:
        raise BadInput(
            f"the trace of {track} has {len(fit)} jobs that fit, not {seed} times {jobs}: "
            "fewer --jobs or --seeds"
        )
    return replace(
        found,
        **{
            name: getattr(found, name)[rows]
            for name in ("job_id", "submit_time", "num_gpus", "duration", "user", "vc", "status")
        },
    )


def _at_load(trace: Trace, gpus: int, load: float) -> Trace:
    """The trace with its gaps stretched, so that it offers this load."""
    begun = replace(trace, submit_time=trace.submit_time - trace.submit_time[0])
    offered = offered_load(begun, gpus)
    if not offered:
        raise BadInput(f"{trace.name}: all jobs come at once, so no load can be offered")
    return replace(begun, submit_time=np.rint(begun.submit_time * (offered / load)))
