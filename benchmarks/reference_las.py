"""A deliberately simple LAS simulator, written the way published simulators are.

A dict a job, a list of dicts a cluster, and a loop that steps every round and looks at every job.
Nothing of dlsched is imported. It decides as `dlsched replay --policy las -o semantics=blox
-o misfit=skip` does: arrivals and completions are seen at round boundaries; in each round active
jobs are sorted by the time they have been on GPUs (ties by arrival), chosen in that order while
their GPUs fit, and running ones stay where they are.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from pathlib import Path
from typing import Any

__all__ = ["read_jobs", "simulate"]

Job = dict[str, Any]


def read_jobs(path: str) -> list[Job]:
    """Jobs of a native trace, in order of submit."""
    with Path(path).open() as file:
        jobs: list[Job] = [
            {
                "id": row["job_id"],
                "submit": float(row["submit_time"]),
                "gpus": math.ceil(float(row["num_gpus"])),
                "duration": float(row["duration"]),
                "executed": 0.0,
                "gpu_list": [],
                "finish": None,
                "preemptions": 0,
            }
            for row in csv.DictReader(file)
        ]
    return sorted(jobs, key=lambda job: job["submit"])


def simulate(jobs: list[Job], *, nodes: int, gpus_per_node: int, round_s: float) -> list[Job]:
    """Step round by round until every job has finished; returns the jobs.

    Args:
        jobs: as `read_jobs` returns them; this function changes them.
        nodes: of the cluster.
        gpus_per_node: of each node.
        round_s: seconds.
    """
    gpus = [
        {"node": node, "gpu": gpu, "job": None}
        for node in range(nodes)
        for gpu in range(gpus_per_node)
    ]
    coming, active, now = list(jobs), list[Job](), 0.0
    while coming or active:
        for job in active:
            if job["gpu_list"]:
                job["executed"] += round_s
                if job["executed"] >= job["duration"]:
                    job["finish"] = now
                    _take_back(job)
        active = [job for job in active if job["finish"] is None]
        while coming and coming[0]["submit"] <= now:
            active.append(coming.pop(0))
        chosen, left = [], len(gpus)
        for job in sorted(active, key=lambda job: job["executed"]):
            if job["gpus"] <= left:
                chosen.append(job)
                left -= job["gpus"]
        keep = {job["id"] for job in chosen}
        for job in active:
            if job["gpu_list"] and job["id"] not in keep:
                _take_back(job)
                job["preemptions"] += 1
        for job in chosen:
            if not job["gpu_list"]:
                free = [gpu for gpu in gpus if gpu["job"] is None]
                job["gpu_list"] = free[: job["gpus"]]
                for gpu in job["gpu_list"]:
                    gpu["job"] = job["id"]
        now += round_s
    return jobs


def _take_back(job: Job) -> None:
    for gpu in job["gpu_list"]:
        gpu["job"] = None
    job["gpu_list"] = []


def main() -> None:
    """Simulate a trace and print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("trace", help="a trace in the native format")
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--gpus", type=int, required=True, help="GPUs a node")
    parser.add_argument("--round", type=float, default=60.0, help="seconds")
    given = parser.parse_args()
    jobs = simulate(
        read_jobs(given.trace), nodes=given.nodes, gpus_per_node=given.gpus, round_s=given.round
    )
    figures = {
        "jobs": len(jobs),
        "avg_jct": sum(job["finish"] - job["submit"] for job in jobs) / len(jobs),
        "preemptions": sum(job["preemptions"] for job in jobs),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
