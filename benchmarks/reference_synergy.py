"""A deliberately plain simulator of Synergy's `tune`, written the way published simulators are.

A dict a job, a server and a GPU; each round takes every job off its GPUs and walks over the GPUs
in order of their ids for each job. Nothing of dlsched is imported. It decides as `dlsched replay
--policy synergy -o order=srtf -o semantics=synergy -o peers=that-help` does.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from pathlib import Path
from typing import Any

__all__ = ["main", "read_jobs", "simulate"]

Job = dict[str, Any]
ROUND_S = 300.0
CPUS, MEMORY_GB, GPUS = 24.0, 500.0, 8  # of a server
KINDS = ("cpus", "memory")


def read_jobs(trace: str, profiles: str) -> list[Job]:
    """Jobs of a trace of Synergy's simulator under a table of demands, in order of submit."""
    with Path(profiles).open() as file:
        of_model = {row["model"]: row for row in csv.DictReader(file)}
    jobs: list[Job] = []
    with Path(trace).open() as file:
        for row in csv.DictReader(file):
            profile, gpus = of_model[row["model"]], int(row["num_gpus"])
            fair = {"cpus": CPUS / GPUS * gpus, "memory": MEMORY_GB / GPUS * gpus}
            best = {
                "cpus": min(float(profile["ideal_cpu_per_gpu"]) * gpus, CPUS),
                "memory": min(float(profile["ideal_mem_gb_per_gpu"]) * gpus, MEMORY_GB),
            }
            gain, ideal = float(profile["speedup_at_ideal"]), float(profile["ideal_cpu_per_gpu"])
            if ideal * gpus > best["cpus"]:
                part = (best["cpus"] - fair["cpus"]) / (ideal * gpus - fair["cpus"])
                gain = 1 + (gain - 1) * part
            jobs.append(
                {
                    "id": row["job_id"], "submit": float(row["submit_time"]), "gpus": gpus,
                    "left": int(row["total_iterations"]), "gain": gain, "speed": gain,
                    "step_s": float(profile["iteration_s_at_fair_share"]), "fair": fair,
                    "best": best, "has": dict(best), "gpu_list": [], "finish": None,
                }
            )  # fmt: skip
    return sorted(jobs, key=lambda job: job["submit"])


def simulate(jobs: list[Job], *, nodes: int) -> list[Job]:
    """Step round by round until every job has finished; returns the jobs.

    Args:
        jobs: as `read_jobs` returns them; this function changes them.
        nodes: servers of the cluster.
    """
    servers = [{"id": node, "cpus": CPUS, "memory": MEMORY_GB, "free": GPUS, "jobs": []}
               for node in range(nodes)]  # fmt: skip
    gpus = [{"server": server, "job": None} for server in servers for _ in range(GPUS)]
    coming, active = list(jobs), list[Job]()
    now = math.ceil(jobs[0]["submit"] / ROUND_S) * ROUND_S
    while coming or active:
        while coming and coming[0]["submit"] <= now:
            active.append(coming.pop(0))
        active.sort(key=lambda job: (job["left"] * job["step_s"] / job["speed"], job["submit"]))
        for job in active:
            _take_back(job)
            job["has"], job["speed"] = dict(job["best"]), job["gain"]
        running = [job for job in active if _serve(job, gpus, servers)]
        now += ROUND_S
        for job in running:
            job["left"] -= int(ROUND_S / (job["step_s"] / job["speed"]))
            if job["left"] <= 0:
                job["finish"] = now
                _take_back(job)
        active = [job for job in active if job["finish"] is None]
    return jobs


def _serve(job: Job, gpus: list[dict[str, Any]], servers: list[dict[str, Any]]) -> bool:
    if sum(server["free"] for server in servers) < job["gpus"]:
        return False
    found = _fit(job, gpus)
    if found is None:
        if any(job["has"][kind] > job["fair"][kind] for kind in KINDS):
            job["has"], job["speed"] = dict(job["fair"]), 1.0
        found = _fit(job, gpus)
    if found is None:
        _make_room(job, servers)
        found = _fit(job, gpus)
    if found is None:
        return False
    for gpu in found:
        server = gpu["server"]
        gpu["job"], server["free"] = job["id"], server["free"] - 1
        for kind in KINDS:
            server[kind] -= job["has"][kind] / job["gpus"]
        if job not in server["jobs"]:
            server["jobs"].append(job)
    job["gpu_list"] = found
    return True


def _fit(job: Job, gpus: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The first free GPUs whose servers have the job's part for each."""
    need = {kind: job["has"][kind] / job["gpus"] for kind in KINDS}
    found: list[dict[str, Any]] = []
    taken: dict[int, int] = {}
    for gpu in gpus:
        if gpu["job"] is not None:
            continue
        server = gpu["server"]
        count = taken.get(server["id"], 0) + 1
        if all(server[kind] >= need[kind] * count - 1e-9 for kind in KINDS):
            found.append(gpu)
            taken[server["id"]] = count
            if len(found) == job["gpus"]:
                return found
    return None


def _make_room(job: Job, servers: list[dict[str, Any]]) -> None:
    need = job["gpus"]
    chosen = [(server, need) for server in servers if need > 1 and server["free"] >= need][:1]
    if not chosen:
        for server in sorted(servers, key=lambda server: (server["free"], server["id"])):
            if need and server["free"]:
                chosen.append((server, min(server["free"], need)))
                need -= min(server["free"], need)
    for server, count in chosen:
        short = {k: max(0.0, job["has"][k] / job["gpus"] * count - server[k]) for k in KINDS}
        for peer in sorted(server["jobs"], key=_richest):
            if not any(short.values()):
                break
            here = sum(gpu["server"] is server for gpu in peer["gpu_list"])
            above = {
                k: max(0.0, peer["has"][k] - peer["fair"][k]) / peer["gpus"] * here for k in KINDS
            }
            if not any(short[k] and above[k] for k in KINDS):
                continue
            for gpu in peer["gpu_list"]:
                for k in KINDS:
                    more = max(0.0, peer["has"][k] - peer["fair"][k]) / peer["gpus"]
                    gpu["server"][k] += more
            peer["has"] = {k: min(peer["has"][k], peer["fair"][k]) for k in KINDS}
            peer["speed"] = 1.0
            short = {k: max(0.0, short[k] - above[k]) for k in KINDS}


def _richest(peer: Job) -> tuple[int, float, float]:
    nodes = len({gpu["server"]["id"] for gpu in peer["gpu_list"]})
    return nodes, -peer["has"]["cpus"] / peer["gpus"], -peer["has"]["memory"] / peer["gpus"]


def _take_back(job: Job) -> None:
    for gpu in job["gpu_list"]:
        server = gpu["server"]
        gpu["job"], server["free"] = None, server["free"] + 1
        for kind in KINDS:
            server[kind] += job["has"][kind] / job["gpus"]
        if job in server["jobs"]:
            server["jobs"].remove(job)
    job["gpu_list"] = []


def main() -> None:
    """Simulate a trace and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trace", help="a trace of Synergy's simulator")
    parser.add_argument("profiles", help="a table of demands")
    parser.add_argument("--nodes", type=int, required=True)
    given = parser.parse_args()
    jobs = simulate(read_jobs(given.trace, given.profiles), nodes=given.nodes)
    jct = [job["finish"] - job["submit"] for job in jobs]
    print(json.dumps({"jobs": len(jobs), "avg_jct": sum(jct) / len(jct)}))


if __name__ == "__main__":
    main()
