"""Jobs as `squeue --json` and `scontrol show job --json` print them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from dlsched.cli.jobs.job_columns import Row
from dlsched.cli.slurm.cluster import cluster_name
from dlsched.cli.slurm.node_words import hosts_text
from dlsched.cli.slurm.people import gid_text, group_text, uid_text
from dlsched.cli.slurm.quantities import (
    derived_code,
    gpus_by_type,
    job_cpus,
    job_nodes,
    memory_on_node,
    trackable_text,
)
from dlsched.cli.slurm.queue_cells import (
    asked_features,
    asked_gres,
    command_text,
    detail_of,
    end_of,
    output_path,
    state_of,
    tasks_of,
    why,
)
from dlsched.cli.slurm.sacct_cells import eligible_at
from dlsched.cli.slurm.shown.slurm_json import exit_of, minutes, number, print_document
from dlsched.client.job_records import Job
from dlsched.client.records import Detail
from dlsched.host_lists import fold


def print_jobs(rows: Iterable[Row]) -> None:
    """Print the jobs of a queue."""
    _print(["squeue"], [_job(detail_of(row), row.tasks) for row in rows])


def print_details(details: Sequence[Detail]) -> None:
    """Print jobs that were asked for."""
    _print(["show", "jobs"], [_job(each) for each in details])


def _print(command: list[str], jobs: list[dict[str, Any]]) -> None:
    none = number(None)
    now = number(time.time())
    print_document(command, jobs=jobs, last_backfill=none, last_update=now)


NO_NUMBER = 0xFFFFFFFE  # NO_VAL of Slurm: no user has it


def id_number(text: str) -> int:
    """The number of a user or group; where this machine does not know it, Slurm's for no value."""
    return int(text) if text.isdecimal() else NO_NUMBER


def _job(detail: Detail, tasks: str = "") -> dict[str, Any]:
    """A job.

    Args:
        detail: all that is known of it.
        tasks: the elements of an array that it stands for; empty: it stands for itself.
    """
    job, asked = detail.job, detail.job.asked
    start = job.predicted_start_at if job.is_pending else job.started_at
    memory = memory_on_node(job)
    features = asked_features(asked, job.gpu_types)
    gres = asked_gres(job.gang, job.gpus, job.gpus_by_type)
    return {
        "account": job.account or job.vc or "",
        "accrue_time": number(eligible_at(job)),
        "admin_comment": "",
        "allocating_node": str(asked.get("submit_host") or ""),
        "array_job_id": number(job.array_job_id or 0),
        "array_task_id": number(None if tasks else job.array_task_id),
        "array_max_tasks": number(job.array_limit or 0),
        "array_task_string": tasks,
        "association_id": 0,
        "batch_flag": not job.interactive,
        "batch_host": job.nodes[0] if job.nodes else "",
        "flags": [],
        "cluster": cluster_name(),
        "command": command_text(detail),
        "comment": job.comment or "",
        "container": str(asked.get("container") or ""),
        "contiguous": False,
        "billable_tres": number(job_cpus(job)),
        "cpus_per_task": number(_whole(asked.get("cpus_per_task"))),
        "cron": "",
        "deadline": number(job.deadline_at or 0),
        "delay_boot": number(0),
        "dependency": ",".join(job.dependencies),
        "derived_exit_code": exit_of(*derived_code(job)),
        "eligible_time": number(eligible_at(job)),
        "end_time": number(end_of(job) or 0),
        "excluded_nodes": hosts_text(asked.get("not_nodes")),
        "exit_code": exit_of(job.exit_code, job.exit_signal),
        "features": "" if features == "(null)" else features,
        "gres_detail": _gres_detail(job),
        "group_id": id_number(gid_text(job.user)),
        "group_name": group_text(job.user),
        "het_job_id": number(0),
        "het_job_id_set": "",
        "het_job_offset": number(0),
        "hold": job.held,
        "job_id": job.job_id,
        "job_resources": _resources(job),
        "job_state": [state_of(job.state)],
        "licenses": "",
        "max_cpus": number(0),
        "max_nodes": number(_whole(asked.get("max_nodes")) or 0),
        "mcs_label": "",
        "name": job.name or "",
        "network": "",
        "nodes": fold(job.nodes),
        "nice": int(-(job.priority or 0)),
        "tasks_per_node": number(_whole(asked.get("ntasks_per_node")) or 0),
        "cpus": number(job_cpus(job)),
        "node_count": number(job_nodes(job)),
        "tasks": number(int(tasks_of(asked, job.nodes, job.gang))),
        "partition": job.partition or "",
        "memory_per_cpu": number(None),
        "memory_per_node": number(None if memory is None else memory >> 20),
        "minimum_cpus_per_node": number(_whole(asked.get("cpus_per_task")) or 1),
        "minimum_tmp_disk_per_node": number((_whole(asked.get("tmp_bytes")) or 0) >> 20),
        "preempt_time": number(0),
        "pre_sus_time": number(0),
        "priority": number(job.priority or 0),
        "qos": job.priority_class or "",
        "reboot": False,
        "required_nodes": hosts_text(asked.get("only_nodes")),
        "requeue": asked.get("requeue", True) is not False,
        "resize_time": number(0),
        "restart_cnt": max(0, job.starts - 1),
        "resv_name": str(asked.get("reservation") or ""),
        "shared": ["none"] if asked.get("exclusive") else [],
        "exclusive": ["true"] if asked.get("exclusive") else [],
        "oversubscribe": not asked.get("exclusive"),
        "start_time": number(start or 0),
        "state_description": job.reason or "",
        "state_reason": why(job.state, job.ended_at, job.reason),
        "standard_error": output_path(detail, error=True),
        "standard_input": "/dev/null",
        "standard_output": output_path(detail),
        "submit_time": number(job.submitted_at),
        "suspend_time": number(0),
        "system_comment": "",
        "time_limit": minutes(job.time_limit_s),
        "time_minimum": number((_whole(asked.get("time_min_s")) or 0) // 60),
        "tres_bind": "",
        "tres_freq": "",
        "tres_per_job": "",
        "tres_per_node": gres,
        "tres_per_socket": "",
        "tres_per_task": "",
        "tres_req_str": trackable_text(job),
        "tres_alloc_str": trackable_text(job) if job.nodes else "",
        "user_id": id_number(uid_text(job.user)),
        "user_name": job.user or "",
        "wckey": "",
        "current_working_directory": detail.working_directory or "",
    }


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) else None


def _gres_detail(job: Job) -> list[str]:
    """Of each node: the GPUs and their indices."""
    kinds = [kind for kind, _ in gpus_by_type(job)] or list(job.gpu_types)
    kind = f"{kinds[0]}:" if len(kinds) == 1 else ""
    found = []
    for indices in job.gpu_indices.values():
        places = fold([str(index) for index in indices]).strip("[]")
        found.append(f"gpu:{kind}{len(indices)}(IDX:{places})")
    return found


def _resources(job: Job) -> dict[str, Any]:
    """What it has of its nodes; nothing where it has none."""
    if not job.nodes:
        return {}
    count, cpus = len(job.nodes), job_cpus(job)
    memory = (memory_on_node(job) or 0) >> 20
    return {
        "select_type": [],
        "nodes": {
            "count": count,
            "select_type": [],
            "list": fold(job.nodes),
            "whole": bool(job.asked.get("exclusive")),
            "allocation": [
                {
                    "index": place,
                    "name": name,
                    "cpus": {"count": -(-cpus // count), "used": 0},
                    "memory": {"used": 0, "allocated": memory},
                }
                for place, name in enumerate(job.nodes)
            ],
        },
        "cpus": cpus,
        "threads_per_core": number(None),
    }
