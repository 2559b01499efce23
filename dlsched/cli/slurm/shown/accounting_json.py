"""Jobs and their steps as `sacct --json` prints them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dlsched.cli.slurm.cluster import cluster_name
from dlsched.cli.slurm.people import group_text
from dlsched.cli.slurm.quantities import derived_code, job_cpus, job_nodes, memory_on_node
from dlsched.cli.slurm.sacct_cells import eligible_at, waited_s
from dlsched.cli.slurm.sacct_steps import Line, with_steps
from dlsched.cli.slurm.shown.slurm_json import exit_of, minutes, number, print_document
from dlsched.client.job_records import Job
from dlsched.host_lists import fold

_IDS = {"cpu": 1, "mem": 2, "node": 4, "billing": 5}  # Slurm's numbers of what it accounts


def print_accounting(jobs: Iterable[Job]) -> None:
    """Print jobs with their steps."""
    print_document(["sacct"], jobs=[_job(job) for job in jobs])


def _state(job: Job) -> str:
    return {"STARTING": "RUNNING"}.get(job.state, job.state)


def _tres(job: Job, *, memory: bool = True) -> list[dict[str, Any]]:
    """What it has, each as type, name, number and count; memory in MiB."""
    size = memory_on_node(job)
    counts = {"cpu": job_cpus(job), "node": job_nodes(job), "billing": job_cpus(job)}
    if memory and size is not None:
        counts["mem"] = (size >> 20) * job_nodes(job)
    found = [
        {"type": kind, "name": "", "id": _IDS[kind], "count": count}
        for kind, count in sorted(counts.items(), key=lambda each: _IDS[each[0]])
    ]
    if job.gpus and memory:
        found.append({"type": "gres", "name": "gpu", "id": 1001, "count": job.gpus})
    return found


def _spent(seconds: float | None) -> dict[str, int]:
    whole = int(seconds or 0)
    return {"seconds": whole, "microseconds": int(((seconds or 0) - whole) * 1e6)}


def _times(job: Job) -> dict[str, Any]:
    nothing = _spent(None)
    return {
        "elapsed": int(job.run_s or 0),
        "suspended": 0,
        "system": nothing,  # not measured apart from the total
        "total": _spent(job.cpu_s),
        "user": nothing,
    }


def _job(job: Job) -> dict[str, Any]:
    memory = memory_on_node(job)
    by = job.cancelled_by or ""
    return {
        "account": job.account or job.vc or "",
        "comment": {"administrator": "", "job": job.comment or "", "system": ""},
        "allocation_nodes": len(job.nodes),
        "array": {
            "job_id": job.array_job_id or 0,
            "limits": {"max": {"running": {"tasks": job.array_limit or 0}}},
            "task_id": number(job.array_task_id),
            "task": "",
        },
        "association": {
            "account": job.account or job.vc or "",
            "cluster": cluster_name(),
            "partition": "",
            "user": job.user or "",
            "id": 0,
        },
        "cluster": cluster_name(),
        "constraints": str(job.asked.get("constraint") or "|".join(job.gpu_types)),
        "container": str(job.asked.get("container") or ""),
        "derived_exit_code": exit_of(*derived_code(job)),
        "time": {
            **_times(job),
            "eligible": int(eligible_at(job) or 0),
            "end": int(job.ended_at or 0),
            "planned": number(waited_s(job)),
            "start": int(job.first_started_at or 0),
            "submission": int(job.submitted_at or 0),
            "limit": minutes(job.time_limit_s),
        },
        "exit_code": exit_of(job.exit_code, job.exit_signal),
        "flags": [],
        "group": group_text(job.user),
        "het": {"job_id": 0, "job_offset": number(None)},
        "job_id": job.job_id,
        "name": job.name or "",
        "licenses": "",
        "mcs": {"label": ""},
        "nodes": fold(job.nodes) or "None assigned",
        "partition": job.partition or "",
        "hold": job.held,
        "priority": number(job.priority or 0),
        "qos": job.priority_class or "",
        "required": {
            "CPUs": job_cpus(job),
            "memory_per_cpu": number(None),
            "memory_per_node": number(None if memory is None else memory >> 20),
        },
        "kill_request_user": by,
        "restart_cnt": max(0, job.starts - 1),
        "reservation": {"id": 0, "name": str(job.asked.get("reservation") or "")},
        "state": {"current": [_state(job)], "reason": job.reason or "None"},
        "steps": [_step(job, line) for line in with_steps(job) if line.step],
        "submit_line": "",
        "tres": {"allocated": _tres(job) if job.nodes else [], "requested": _tres(job)},
        "used_gres": "",
        "user": job.user or "",
        "wckey": {"wckey": "", "flags": []},
        "working_directory": job.working_directory or "",
    }


def _step(job: Job, line: Line) -> dict[str, Any]:
    step = line.job
    peak = step.peak_memory_bytes
    memory = [] if not peak else [{"type": "mem", "name": "", "id": 2, "count": peak}]
    return {
        "time": {
            **_times(step),
            "end": number(step.ended_at),
            "start": number(step.first_started_at),
        },
        "exit_code": exit_of(step.exit_code, step.exit_signal),
        "nodes": {
            "count": len(step.nodes),
            "range": fold(step.nodes),
            "list": list(step.nodes),
        },
        "tasks": {"count": int(str(step.asked.get("ntasks") or 1))},
        "pid": "",
        "kill_request_user": "",
        "state": [_state(step)],
        "step": {"id": f"{job.job_id}{line.suffix}", "name": step.name or ""},
        "task": {"distribution": "Unknown"},
        "tres": {
            "requested": {"max": memory, "min": [], "average": [], "total": []},
            "consumed": {"max": [], "min": [], "average": [], "total": []},
            "allocated": _tres(step, memory=False),
        },
    }
