"""What a line of `squeue` may show: the cells, by Slurm's letters and names."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dlsched.cli.jobs.job_columns import COLUMNS, STATE_CODES, OfFields, Row, ran
from dlsched.cli.slurm.cluster import cluster_name
from dlsched.cli.slurm.formats import Cell, moment
from dlsched.cli.slurm.node_words import hosts_text
from dlsched.cli.slurm.people import gid_text, group_text, uid_text
from dlsched.cli.slurm.quantities import cpus_of, derived_code, nodes_of, trackable_text
from dlsched.client.job_records import Job
from dlsched.client.records import Detail
from dlsched.client.submission.durations import duration_text
from dlsched.client.submission.memory import memory_text
from dlsched.host_lists import fold

_SLURMS = {"STARTING": "CONFIGURING"}  # where a state has another name there
_WHY_ENDED = {  # Slurm's words
    "FAILED": "NonZeroExitCode",
    "TIMEOUT": "TimeLimit",
    "OUT_OF_MEMORY": "OutOfMemory",
    "DEADLINE": "DeadLine",
    "NODE_FAIL": "NodeDown",
}


def asked_features(asked: Mapping[str, Any], gpu_types: Sequence[str]) -> str:
    """What a job asks of its nodes, as Slurm writes it."""
    return str(asked.get("constraint") or "|".join(gpu_types) or "(null)")


def why(state: str, ended_at: float | None, reason: str | None) -> str:
    """Why it waits or ended, in Slurm's words."""
    if ended_at is not None:
        return _WHY_ENDED.get(state, "None")
    reason = reason or ("Priority" if Job.waits(state, ended_at) else "None")
    return reason.partition(":")[0].partition(";")[0]


def _where(state: str, ended_at: float | None, reason: str | None, nodes: Sequence[str]) -> str:
    """The nodes; of jobs that wait, and as in Slurm of some that have ended, why."""
    told = Job.waits(state, ended_at) or state in _WHY_ENDED.keys() - {"NODE_FAIL"}
    return f"({why(state, ended_at, reason)})" if told else fold(nodes)


def _limit(limit: float | None) -> str:
    return "UNLIMITED" if limit is None else duration_text(limit)


def _left(limit: float | None, run_s: float | None) -> str:
    return "UNLIMITED" if limit is None else duration_text(limit - (run_s or 0.0))


def _start(
    state: str, started_at: float | None, ended_at: float | None, predicted: float | None
) -> str:
    return moment(predicted if Job.waits(state, ended_at) else started_at, "N/A")


def end_of(job: Job) -> float | None:
    """When it ended, or is ended by its time limit."""
    if job.ended_at is not None or job.is_pending:
        return job.ended_at or job.predicted_end_at
    limit, start = job.time_limit_s, job.started_at
    return None if limit is None or start is None else start + limit


def _end(started_at: float | None, ended_at: float | None, limit: float | None) -> str:
    if ended_at is not None:
        return moment(ended_at)
    return "N/A" if started_at is None or limit is None else moment(started_at + limit, "N/A")


def state_of(state: str) -> str:
    """A state in Slurm's words."""
    return _SLURMS.get(state, state)


def _time(state: str, ended_at: float | None, *others: Any) -> str:
    """Of the present run: of a job that waits again, Slurm says nothing of earlier ones."""
    found = "-" if Job.waits(state, ended_at) else ran(state, ended_at, *others)
    return "0:00" if found == "-" else found


def _or_null(value: object) -> str:
    return str(value or "(null)")


class DetailedRow(Row):
    """A row with all that is known of its job."""

    detail: Detail | None = None


def detail_of(row: Row) -> Detail:
    """All that is known of a row's job; what its list tells where nothing more was asked."""
    found = row.detail if isinstance(row, DetailedRow) else None
    return found or Detail(job=row.job)


def _of_detail(title: str, field: str) -> Cell[Row]:
    """The cell of a field that lists do not tell."""
    return Cell(title, lambda row: str(detail_of(row).job.asked.get(field) or "(null)"))


def command_text(detail: Detail) -> str:
    """The script's path with its arguments, or the command; of `--wrap` and pipes none."""
    if detail.wrap is not None:
        return ""
    if detail.has_script:
        path = str(detail.job.asked.get("script_path") or "")
        return " ".join((path, *detail.command)) if path else ""
    return " ".join(detail.command)


def output_path(detail: Detail, *, error: bool = False) -> str:
    """The file of a job's output, or of its errors."""
    name = (error and detail.error) or detail.output or ""
    return os.path.join(detail.working_directory or "", name)


def _memory(asked: Mapping[str, Any]) -> str:
    size = asked.get("memory_bytes")
    return memory_text(size) if isinstance(size, int) else "0"


def _mib(asked: Mapping[str, Any]) -> str:
    size = asked.get("memory_bytes")
    return f"{size >> 20}M" if isinstance(size, int) else "0"


def asked_gres(gang: Sequence[int], gpus: int, gpus_by_type: str | None) -> str:
    """GPUs on each node, as Slurm writes them: `gres:gpu:a100:2,gres:gpu:v100:2`; none: empty."""
    count = max(gang, default=gpus)
    each = (gpus_by_type or str(count)).split(",")
    return ",".join(f"gres:gpu:{gpus}" for gpus in each) if count else ""


def _cell(title: str, fields: str, make: Callable[..., str] = _or_null) -> Cell[Row]:
    """A cell of some fields of a row."""
    return Cell(title, OfFields(fields, make))


def _asked(name: str, none: str) -> Callable[[Mapping[str, Any]], str]:
    """What a job asks for under a name."""
    return lambda asked: str(asked.get(name) or none)


def tasks_of(asked: Mapping[str, Any], nodes: Sequence[str], gang: Sequence[int]) -> str:
    """How many tasks a step starts that says nothing."""
    on_node = asked.get("ntasks_per_node") or 1
    return str(asked.get("ntasks") or on_node * nodes_of(nodes, gang))


def _waited(
    submitted_at: float | None, started_at: float | None, ended_at: float | None, now: float
) -> str:
    return str(int((started_at or ended_at or now) - (submitted_at or now)))


def _number(value: float | None) -> str:
    return f"{value or 0:g}"


def _submitted(at: float | None) -> str:
    return moment(at, "N/A")


_CELLS: dict[str, tuple[str, Cell[Row]]] = {  # by name: the letter, and the cell
    "JobID": ("A", _cell("JOBID", "job_id", str)),
    "JobArrayID": ("i", Cell("JOBID", COLUMNS["id"].text)),
    "ArrayJobID": (
        "F",
        _cell("ARRAY_JOB_ID", "array_job_id job_id", lambda *ids: str(ids[0] or ids[1])),
    ),
    "ArrayTaskID": (
        "K",
        _cell("ARRAY_TASK_ID", "array_task_id", lambda task: "N/A" if task is None else str(task)),
    ),
    "Partition": ("P", _cell("PARTITION", "partition")),
    "Name": ("j", _cell("NAME", "name")),
    "UserName": ("u", _cell("USER", "user")),
    "Account": ("a", _cell("ACCOUNT", "account vc", lambda account, vc: _or_null(account or vc))),
    "QOS": ("q", _cell("QOS", "priority_class")),
    "StateCompact": ("t", _cell("ST", "state", lambda state: STATE_CODES.get(state, "?"))),
    "State": ("T", _cell("STATE", "state", state_of)),
    "TimeUsed": ("M", _cell("TIME", "state ended_at run_s started_at now", _time)),
    "TimeLimit": ("l", _cell("TIME_LIMIT", "time_limit_s", _limit)),
    "TimeLeft": ("L", _cell("TIME_LEFT", "time_limit_s run_s", _left)),
    "NumNodes": ("D", _cell("NODES", "nodes gang", lambda *of: str(nodes_of(*of)))),
    "NumCPUs": ("C", _cell("CPUS", "asked nodes gang", lambda *of: str(cpus_of(*of)))),
    "ReasonList": ("R", _cell("NODELIST(REASON)", "state ended_at reason nodes", _where)),
    "NodeList": ("N", _cell("NODELIST", "nodes", fold)),
    "Reason": ("r", _cell("REASON", "state ended_at reason", why)),
    "Priority": ("p", _cell("PRIORITY", "priority", _number)),
    "PriorityLong": ("Q", _cell("PRIORITY", "priority", _number)),
    "SubmitTime": ("V", _cell("SUBMIT_TIME", "submitted_at", _submitted)),
    "StartTime": ("S", _cell("START_TIME", "state started_at ended_at predicted_start_at", _start)),
    "EndTime": ("e", _cell("END_TIME", "started_at ended_at time_limit_s", _end)),
    "Dependency": ("E", _cell("DEPENDENCY", "dependencies", lambda all_: _or_null(",".join(all_)))),
    "tres-alloc": ("", Cell("TRES_ALLOC", lambda row: trackable_text(row.job))),
    "tres-per-node": (
        "b",
        _cell("TRES_PER_NODE", "gang gpus gpus_by_type", lambda *of: asked_gres(*of) or "N/A"),
    ),
    "Feature": ("f", _cell("FEATURES", "asked gpu_types", asked_features)),
    "Comment": ("k", _cell("COMMENT", "comment")),
    "SchedNodes": ("Y", _cell("SCHEDNODES", "", lambda: "(null)")),
    "Why": ("", Cell("WHY", COLUMNS["where"].text)),
    "MinMemory": ("m", _cell("MIN_MEMORY", "asked", _memory)),
    "MinCPUs": (
        "c",
        _cell("MIN_CPUS", "asked", lambda asked: str(asked.get("cpus_per_task") or 1)),
    ),
    "UserID": ("U", _cell("USER", "user", uid_text)),
    "BatchHost": ("B", _cell("EXEC_HOST", "nodes", lambda nodes: (*nodes, "n/a")[0])),
    "ReqNodes": (
        "n",
        _cell("REQ_NODES", "asked", lambda asked: hosts_text(asked.get("only_nodes"))),
    ),
    "ExcNodes": (
        "x",
        _cell("EXC_NODES", "asked", lambda asked: hosts_text(asked.get("not_nodes"))),
    ),
    "Nice": ("y", _cell("NICE", "priority", lambda priority: f"{-(priority or 0):g}")),
    "OverSubscribe": (
        "h",
        _cell("OVER_SUBSCRIBE", "asked", lambda asked: "NO" if asked.get("exclusive") else "OK"),
    ),
    "Reservation": ("v", _cell("RESERVATION", "asked", _asked("reservation", "(null)"))),
    "GroupID": ("G", _cell("GROUP", "user", gid_text)),
    "GroupName": ("g", _cell("GROUP", "user", group_text)),
    "MinTmpDisk": (
        "d",
        _cell("MIN_TMP_DISK", "asked", lambda asked: str((asked.get("tmp_bytes") or 0) >> 20)),
    ),
    "CPUsPerTask": ("", _cell("CPUS_PER_TASK", "asked", _asked("cpus_per_task", "1"))),
    "NumTasks": ("", _cell("TASKS", "asked nodes gang", tasks_of)),
    "NTPerNode": ("", _cell("NTASKS_PER_NODE", "asked", _asked("ntasks_per_node", "0"))),
    "MaxCPUs": ("", _cell("MAX_CPUS", "", lambda: "0")),
    "MaxNodes": ("", _cell("MAX_NODES", "asked", _asked("max_nodes", "0"))),
    "MinTime": (
        "",
        _cell("TIME_MIN", "asked", lambda asked: duration_text(asked.get("time_min_s") or 0)),
    ),
    "Deadline": ("", _cell("DEADLINE", "deadline_at", _submitted)),
    "EligibleTime": (
        "",
        _cell("ELIGIBLE_TIME", "begin_at submitted_at", lambda begin, at: _submitted(begin or at)),
    ),
    "PendingTime": ("", _cell("PENDING_TIME", "submitted_at started_at ended_at now", _waited)),
    "Runtime": ("", _cell("RUNTIME", "run_s", lambda run_s: str(int(run_s or 0)))),
    "RestartCnt": ("", _cell("RESTART_COUNT", "starts", lambda starts: str(max(0, starts - 1)))),
    "Requeue": (
        "",
        _cell("REQUEUE", "asked", lambda asked: str(int(asked.get("requeue", True) is not False))),
    ),
    "exit_code": ("", _cell("EXIT_CODE", "exit_code", _number)),
    "DerivedEC": ("", Cell("DERIVED_EC", lambda row: str(derived_code(detail_of(row).job)[0]))),
    "BatchFlag": ("", _cell("BATCH_FLAG", "interactive", lambda it: str(int(not it)))),
    "Container": ("", _of_detail("CONTAINER", "container")),
    "Exclusive": (
        "",
        _cell("EXCLUSIVE", "asked", lambda asked: "YES" if asked.get("exclusive") else "NO"),
    ),
    "AllocNodes": ("", _of_detail("ALLOC_NODES", "submit_host")),
    "Cluster": ("", Cell("CLUSTER", lambda row: cluster_name())),
    "WorkDir": ("Z", Cell("WORK_DIR", lambda row: detail_of(row).working_directory or "")),
    "Command": ("o", Cell("COMMAND", lambda row: command_text(detail_of(row)) or "(null)")),
    "StdOut": ("", Cell("STDOUT", lambda row: output_path(detail_of(row)))),
    "StdErr": ("", Cell("STDERR", lambda row: output_path(detail_of(row), error=True))),
}
# what is not here, or not told: always the same, as Slurm shows what a job does not have
_CONSTANT = """
AccrueTime|ACCRUE_TIME|N/A admin_comment|ADMIN_COMMENT|(null) AllocSID|ALLOC_SID|0
AssocId|ASSOC_ID|0 BoardsPerNode|BOARDS_PER_NODE|0 BurstBuffer|BURST_BUFFER|(null)
BurstBufferState|BURST_BUFFER_STATE|(null) ClusterFeature|CLUSTER_FEATURES|(null)
ContainerId|CONTAINER_ID|(null) Contiguous|CONTIGUOUS|0|O Cores|CORES_PER_SOCKET|*|I
CoreSpec|CORE_SPEC|N/A|X cpus-per-tres|CPUS_PER_TRES|N/A CronJob|CRON_JOB|No
DelayBoot|DELAY_BOOT|0:00 HetJobId|HET_JOB_ID|N/A HetJobIdSet|HET_JOB_ID_SET|N/A
HetJobOffset|HET_JOB_OFFSET|N/A LastSchedEval|LAST_SCHED_EVAL|N/A Licenses|LICENSES|(null)|W
LicensesAlloc|LICENSES_ALLOC|(null) mem-per-tres|MEM_PER_TRES|N/A MCSLabel|MCSLABEL|(null)
Network|NETWORK|(null) NTPerCore|NTASKS_PER_CORE|N/A NTPerSocket|NTASKS_PER_SOCKET|N/A
NTPerBoard|NTASKS_PER_BOARD|N/A Origin|ORIGIN|NA OriginRaw|ORIGIN_RAW|NA
PreemptTime|PREEMPT_TIME|N/A Prefer|PREFER|(null) Profile|PROFILE|NotSet Reboot|REBOOT|0
ReqSwitch|REQ_SWITCH|0 ResizeTime|RESIZE_TIME|N/A SCT|S:C:T|*:*:*|z SegmentSize|SEGMENT_SIZE|0
SiblingsActive|ACTIVE_SIBLINGS|NA SiblingsActiveRaw|ACTIVE_SIBLINGS_RAW|NA
SiblingsViable|VIABLE_SIBLINGS|NA SiblingsViableRaw|VIABLE_SIBLINGS_RAW|NA SLUID|SLUID|N/A|s
Sockets|SOCKETS_PER_NODE|*|H SPerBoard|SOCKETS_PER_BOARD|0 StdIn|STDIN|/dev/null
system_comment|SYSTEM_COMMENT|(null) Threads|THREADS_PER_CORE|*|J tres-bind|TRES_BIND|N/A
tres-freq|TRES_FREQ|N/A tres-per-job|TRES_PER_JOB|N/A tres-per-socket|TRES_PER_SOCKET|N/A
tres-per-task|TRES_PER_TASK|N/A WCKey|WCKEY|(null)|w
"""
for _row in _CONSTANT.split():
    _name, _title, _value, *_letter = _row.split("|")
    _CELLS[_name] = ("".join(_letter), _cell(_title, "", partial(str, _value)))
LETTERS = {letter: cell for letter, cell in _CELLS.values() if letter}
NAMES = {name: cell for name, (_, cell) in _CELLS.items()}
_SAME = {
    "Tres": "tres-alloc",
    "Gres": "tres-per-node",
    "Shared": "OverSubscribe",
    "cpus-per-task": "CPUsPerTask",
    "PackJobId": "HetJobId",
    "PackJobIdSet": "HetJobIdSet",
    "PackJobOffset": "HetJobOffset",
}
ALIASES = NAMES | {name: NAMES[other] for name, other in _SAME.items()}
# of which the queue itself says nothing
OF_DETAILS = ("WorkDir", "Command", "StdOut", "StdErr", "AllocNodes", "Container")
NOT_CONVERTED = {"MIN_MEMORY": _cell("MIN_MEMORY", "asked", _mib)}
