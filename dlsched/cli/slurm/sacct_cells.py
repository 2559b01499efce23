"""What a line of `sacct` may show: the cells, by Slurm's names.

What is not measured here is empty, as in Slurm.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dlsched.cli.jobs.job_columns import exit_text
from dlsched.cli.slurm.cluster import cluster_name
from dlsched.cli.slurm.formats import Cell, moment
from dlsched.cli.slurm.people import gid_text, group_text, uid_text
from dlsched.cli.slurm.quantities import (
    derived_text,
    job_cpus,
    job_nodes,
    memory_on_node,
    trackable_text,
)
from dlsched.cli.slurm.sacct_steps import Line
from dlsched.client.job_records import Job
from dlsched.client.submission.memory import memory_text
from dlsched.host_lists import fold

_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40, "P": 50}
UNITS = "".join(_UNITS)


def clock(seconds: float) -> str:
    """`1-02:03:04`."""
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:{left:02}"


def processor_time(seconds: float | None) -> str:
    """As Slurm writes it: `00:01.250`, from an hour on `01:02:03`; empty for None."""
    if seconds is None:
        return ""
    if seconds >= 3600:
        return clock(seconds)
    minutes, seconds = divmod(seconds, 60)
    return f"{int(minutes):02}:{seconds:06.3f}"


def in_unit(size: int, unit: str) -> str:
    """Bytes in a unit of `UNITS`: `200M`, with a fraction `0.20G`."""
    amount = size / (1 << _UNITS[unit])
    return f"{amount:.0f}{unit}" if amount == int(amount) else f"{amount:.2f}{unit}"


def _peak_memory(line: Line, unit: str = "K") -> str:
    """Of the run's largest process, on the line of its script or ranks, as with Slurm."""
    peak = line.job.peak_memory_bytes
    if not line.step or not peak:
        return ""
    return f"{peak // 1024}K" if unit == "K" else in_unit(peak, unit)


def _memory(job: Job, unit: str = "") -> str:
    size = memory_on_node(job)
    return "" if size is None else in_unit(size, unit) if unit else memory_text(size)


def limit_text(job: Job) -> str:
    """The time limit."""
    return "UNLIMITED" if job.time_limit_s is None else clock(job.time_limit_s)


def _limit_minutes(job: Job) -> str:
    return "UNLIMITED" if job.time_limit_s is None else str(int(job.time_limit_s // 60))


def state_text(job: Job) -> str:
    """Its state in Slurm's words."""
    if job.state == "CANCELLED" and job.cancelled_by:
        return f"CANCELLED by {job.cancelled_by}"
    return {"STARTING": "RUNNING"}.get(job.state, job.state)


def eligible_at(job: Job) -> float | None:
    """When it could have started at the earliest."""
    return job.begin_at or job.submitted_at


def waited_s(job: Job) -> float | None:
    """How long it waited for its first start."""
    since, until = eligible_at(job), job.first_started_at
    return None if since is None or until is None else max(until - since, 0.0)


def _waited(job: Job, *, cpus: bool = False) -> str:
    waited = waited_s(job)
    return "" if waited is None else clock(waited * (job_cpus(job) if cpus else 1))


def _held(job: Job) -> int:
    """Seconds times processors that it holds."""
    return int(job.run_s or 0) * job_cpus(job)


def _tasks(line: Line) -> str:
    """Of a step: the tasks; the job itself has none, as in Slurm."""
    return str(line.job.asked.get("ntasks") or 1) if line.step else ""


def _average(line: Line) -> str:
    """Processor time of a step for each of its tasks."""
    spent = line.job.cpu_s if line.step else None
    return "" if spent is None else processor_time(spent / int(_tasks(line)))


_OF_JOBS: dict[str, Callable[[Job], str]] = {
    "JobName": lambda job: job.name or "",
    "User": lambda job: job.user or "",
    "UID": lambda job: uid_text(job.user),
    "Group": lambda job: group_text(job.user),
    "GID": lambda job: gid_text(job.user),
    "Partition": lambda job: job.partition or "",
    "Account": lambda job: job.account or job.vc or "",
    "QOS": lambda job: job.priority_class or "",
    "QOSREQ": lambda job: job.priority_class or "",
    "AllocCPUS": lambda job: str(job_cpus(job)),
    "NCPUS": lambda job: str(job_cpus(job)),
    "ReqCPUS": lambda job: str(job_cpus(job)),
    "NNodes": lambda job: str(job_nodes(job)),
    "AllocNodes": lambda job: str(job_nodes(job)),
    "ReqNodes": lambda job: str(len(job.gang) or 1),
    "AllocTRES": lambda job: trackable_text(job, by_name=True) if job.nodes else "",
    "ReqTRES": lambda job: trackable_text(job, by_name=True),
    "State": state_text,
    "ExitCode": lambda job: exit_text(job).replace("-", "0:0"),
    "DerivedExitCode": derived_text,
    "Elapsed": lambda job: clock(job.run_s or 0),
    "ElapsedRaw": lambda job: str(int(job.run_s or 0)),
    "TotalCPU": lambda job: processor_time(job.cpu_s),
    "CPUTime": lambda job: clock(_held(job)),
    "CPUTimeRAW": lambda job: str(_held(job)),
    "Planned": _waited,
    "PlannedCPU": partial(_waited, cpus=True),
    "PlannedCPURAW": lambda job: (
        "" if (waited := waited_s(job)) is None else str(int(waited) * job_cpus(job))
    ),
    "Timelimit": limit_text,
    "TimelimitRaw": _limit_minutes,
    "Submit": lambda job: moment(job.submitted_at),
    "Eligible": lambda job: moment(eligible_at(job)),
    "Start": lambda job: moment(job.first_started_at),
    "End": lambda job: moment(job.ended_at),
    "NodeList": lambda job: fold(job.nodes) or "None assigned",
    "Reason": lambda job: job.reason or "None",
    "Restarts": lambda job: str(max(0, job.starts - 1)),
    "Priority": lambda job: f"{job.priority or 0:g}",
    "ReqMem": _memory,
    "Comment": lambda job: job.comment or "",
    "Constraints": lambda job: str(job.asked.get("constraint") or "|".join(job.gpu_types)),
    "Container": lambda job: str(job.asked.get("container") or ""),
    "Reservation": lambda job: str(job.asked.get("reservation") or ""),
    "ReqReservation": lambda job: str(job.asked.get("reservation") or ""),
    "OverSubscribe": lambda job: "NO" if job.asked.get("exclusive") else "YES",
    "Exclusive": lambda job: "EXCLUSIVE" if job.asked.get("exclusive") else "NO",
}
# what is not measured, and what there is not
_EMPTY = """
AdminComment AssocID AveCPUFreq AveDiskRead AveDiskWrite AvePages AveRSS AveVMSize BlockID
ConsumedEnergy ConsumedEnergyRaw DBIndex Extra FailedNode Flags Layout Licenses MaxDiskRead
MaxDiskReadNode MaxDiskReadTask MaxDiskWrite MaxDiskWriteNode MaxDiskWriteTask MaxPages
MaxPagesNode MaxPagesTask MaxRSSNode MaxRSSTask MaxVMSize MaxVMSizeNode MaxVMSizeTask McsLabel
MinCPU MinCPUNode MinCPUTask OriginalSLUID QOSRAW ReqCPUFreq ReqCPUFreqGov ReqCPUFreqMax
ReqCPUFreqMin ReservationId SegmentSize SLUID StdErr StdIn StdOut SubmitLine Suspended
SystemComment SystemCPU TRESUsageInAve TRESUsageInMax TRESUsageInMaxNode TRESUsageInMaxTask
TRESUsageInMin TRESUsageInMinNode TRESUsageInMinTask TRESUsageInTot TRESUsageOutAve
TRESUsageOutMax TRESUsageOutMaxNode TRESUsageOutMaxTask TRESUsageOutMin TRESUsageOutMinNode
TRESUsageOutMinTask TRESUsageOutTot UserCPU WCKey WCKeyID
"""


def _of_job(title: str, text: Callable[[Job], str]) -> Cell[Line]:
    return Cell(title, lambda line: text(line.job))


CELLS: dict[str, Cell[Line]] = {
    "JobID": Cell("JobID", lambda line: line.job.shown_id + line.suffix),
    "JobIDRaw": Cell("JobIDRaw", lambda line: f"{line.job.job_id}{line.suffix}"),
    **{name: _of_job(name, text) for name, text in _OF_JOBS.items()},
    "Cluster": Cell("Cluster", lambda line: cluster_name()),
    "MaxRSS": Cell("MaxRSS", _peak_memory),
    "AveCPU": Cell("AveCPU", _average),
    "NTasks": Cell("NTasks", _tasks),
    # of the caller's own jobs, on the line of the job, as with Slurm
    "WorkDir": Cell("WorkDir", lambda line: "" if line.step else line.job.working_directory or ""),
}
CELLS |= {name: Cell(name, lambda line: "") for name in _EMPTY.split()}


def cells_in(unit: str) -> dict[str, Cell[Line]]:
    """The cells with memory in a unit of `UNITS`."""
    return CELLS | {
        "MaxRSS": Cell("MaxRSS", partial(_peak_memory, unit=unit)),
        "ReqMem": _of_job("ReqMem", partial(_memory, unit=unit)),
    }
