"""CPU time of Lucid on the jobs of Venus: `python benchmarks/lucid_venus.py [--check]`.

The reference is a plain simulator as the published one is built: a dict a job, and every second
all running jobs are counted down, the queue is sorted, and each waiting job is tried on each
running one. Both replay the packing stage without profiling, on the same jobs and nodes and with
the same relative speeds, and every end must be the same.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):  # run as a script: the project's own folder comes first
    sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.measure import heading
from dlsched.core.cluster.description import parse_cluster_spec
from simulate.replay import replay
from simulate.settings import RunSettings
from simulate.traces.open import open_trace
from simulate.traces.trace import Trace

NODES, GPUS = 27, 8
LEAST_FACTOR = 10.0  # that the plain simulator must take longer
OPTIONS = ("semantics=lucid", "profiling_nodes=0", "sharing=always", "estimator.column=est_lucid_s")

Job = dict[str, Any]


def first_jobs(path: Path, hours: float) -> Trace:
    """The jobs of the first hours, in one virtual cluster."""
    trace = open_trace(path)
    kept = trace.submit_time < trace.submit_time[0] + 3600.0 * hours
    columns = {name: column[kept] for name, column in trace.columns.items()}
    arrays = {
        name: getattr(trace, name)[kept]
        for name in ("job_id", "submit_time", "num_gpus", "duration", "user", "status")
    }
    vc = np.full(int(kept.sum()), "", np.object_)
    return replace(trace, **arrays, vc=vc, columns=columns)


def by_the_second(trace: Trace) -> list[float]:
    """When each job ends, found by stepping through every second."""
    jobs: list[Job] = [
        {
            "submit": int(submit),
            "gpus": int(gpus),
            "remain": float(duration),
            "priority": float(estimate) * int(gpus),
            "score": float(score),
            "memory": float(memory),
            "partner": None,
            "nodes": [],
        }
        for submit, gpus, duration, estimate, score, memory in zip(
            trace.submit_time,
            trace.num_gpus,
            trace.duration,
            trace.columns["est_lucid_s"],
            trace.columns["share_score"],
            trace.columns["gpu_memory_gib"],
            strict=True,
        )
    ]
    free = [GPUS] * NODES
    queue: list[Job] = []
    running: list[Job] = []
    now, coming, packs, began = jobs[0]["submit"], list(jobs), False, jobs[0]["submit"]
    while coming or queue or running:
        for job in list(running):
            if job["remain"] <= 0:
                job["end"] = now
                running.remove(job)
                partner = job["partner"]
                if partner is None:
                    for node, count in job["nodes"]:
                        free[node] += count
                else:  # the artifact frees only the one that was there first
                    partner["partner"] = None
                    partner["spent"] = partner.get("joined", False)
            else:
                job["remain"] -= 1.0
        while coming and coming[0]["submit"] == now:
            queue.append(coming.pop(0))
        queue.sort(key=lambda job: job["priority"])
        packs = packs or (now % 100 == 0 and now >= began)
        for job in list(queue):
            host = partner_of(job, running) if packs else None
            if host is not None:
                host["partner"], job["partner"], job["joined"] = job, host, True
                job["nodes"] = host["nodes"]
            elif not placed(job, free):
                if packs:
                    continue
                break
            queue.remove(job)
            running.append(job)
        now += 1
    return [float(job["end"]) for job in jobs]


def partner_of(job: Job, running: list[Job]) -> Job | None:
    """The first running job that a waiting one may join."""
    if job["gpus"] > GPUS:
        return None
    for host in running:
        if (
            host["partner"] is None
            and not host.get("spent", False)
            and host["gpus"] == job["gpus"]
            and host["memory"] + job["memory"] < 24.0
            and host["score"] + job["score"] <= 2
            and job["priority"] <= 2 * host["priority"]
        ):
            return host
    return None


def placed(job: Job, free: list[int]) -> bool:
    """Give a job the tightest node, or whole nodes and one more."""
    need = job["gpus"]
    if need <= GPUS:
        fitting = [node for node in range(NODES) if free[node] >= need]
        if not fitting:
            return False
        node = min(fitting, key=lambda node: (free[node], node))
        job["nodes"] = [(node, need)]
    else:
        whole, rest = divmod(need, GPUS)
        emptiest = sorted(range(NODES), key=lambda node: (-free[node], node))
        used = emptiest[: whole + bool(rest)]
        wanted = [GPUS] * whole + [rest] * bool(rest)
        if len(used) < len(wanted):
            return False
        if any(free[node] < count for node, count in zip(used, wanted, strict=True)):
            return False
        job["nodes"] = list(zip(used, wanted, strict=True))
    for node, count in job["nodes"]:
        free[node] -= count
    return True


def main() -> int:
    """Measure, print, and check where asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=168.0, help="of submits; 168 are all")
    parser.add_argument("--check", action="store_true", help="exit 1 below ten times as fast")
    asked = parser.parse_args()
    data = Path(__file__).parent.parent.parent / "shared" / "data"
    trace = first_jobs(
        Path(os.environ.get("DLSCHED_DATA", data)) / "lucid" / "venus_jobs.csv.gz", asked.hours
    )
    print(heading())
    settings = RunSettings(policy="lucid", estimate="declared", options=OPTIONS, record=False)
    start = time.process_time()
    ends = replay(trace, parse_cluster_spec(f"{NODES}x{GPUS}"), settings).jobs.finish_time
    ours = time.process_time() - start
    start = time.process_time()
    plain = by_the_second(trace)
    theirs = time.process_time() - start
    print(
        f"{len(trace)} jobs, {NODES * GPUS} GPUs: {ours:.2f} s, by the second {theirs:.1f} s: "
        f"{theirs / ours:.0f} times"
    )
    assert ends.tolist() == plain
    return int(asked.check and theirs < LEAST_FACTOR * ours)


if __name__ == "__main__":
    sys.exit(main())
