"""What a line of `squeue` may show: the cells, by Slurm's letters and names."""

from __future__ import annotations

import pwd
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dlsched.cli.jobs.job_columns import COLUMNS, STATE_CODES, OfFields, Row, ran
from dlsched.cli.slurm.formats import Cell, moment
from dlsched.cli.slurm.sacct import CELLS
from dlsched.cli.slurm.sacct_steps import Line
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


def nodes_of(nodes: Sequence[str], gang: Sequence[int]) -> int:
    """Return on how many nodes a job is, or is to be."""
    return len(nodes) or len(gang) or 1


def asked_features(asked: Mapping[str, Any], gpu_types: Sequence[str]) -> str:
    """What a job asks of its nodes, as Slurm writes it."""
    return str(asked.get("constraint") or "|".join(gpu_types) or "(null)")


def _why(state: str, ended_at: float | None, reason: str | None) -> str:
    if ended_at is not None:
        return _WHY_ENDED.get(state, "None")
    reason = reason or ("Priority" if Job.waits(state, ended_at) else "None")
    return reason.partition(":")[0].partition(";")[0]


def _where(state: str, ended_at: float | None, reason: str | None, nodes: Sequence[str]) -> str:
    """The nodes; of jobs that wait, and as in Slurm of some that have ended, why."""
    told = Job.waits(state, ended_at) or state in _WHY_ENDED.keys() - {"NODE_FAIL"}
    return f"({_why(state, ended_at, reason)})" if told else fold(nodes)


def _limit(limit: float | None) -> str:
    return "UNLIMITED" if limit is None else duration_text(limit)


def _left(limit: float | None, run_s: float | None) -> str:
    return "UNLIMITED" if limit is None else duration_text(limit - (run_s or 0.0))


def _start(
    state: str, started_at: float | None, ended_at: float | None, predicted: float | None
) -> str:
    return moment(predicted if Job.waits(state, ended_at) else started_at, "N/A")


def _end(started_at: float | None, ended_at: float | None, limit: float | None) -> str:
    if ended_at is not None:
        return moment(ended_at)
    return "N/A" if started_at is None or limit is None else moment(started_at + limit, "N/A")


def _state(state: str) -> str:
    return _SLURMS.get(state, state)


def _time(state: str, ended_at: float | None, *others: Any) -> str:
    """Of the present run: of a job that waits again, Slurm says nothing of earlier ones."""
    found = "-" if Job.waits(state, ended_at) else ran(state, ended_at, *others)
    return "0:00" if found == "-" else found


def _or_null(value: object) -> str:
    return str(value or "(null)")


def _tres(row: Row) -> str:
    return CELLS["AllocTRES"].text(Line(row.job))


class DetailedRow(Row):
    """A row with all that is known of its job."""

    detail: Detail | None = None


def _detail_of(row: Row) -> Detail:
    found = row.detail if isinstance(row, DetailedRow) else None
    return found or Detail(job=row.job)


def _command(row: Row) -> str:
    detail = _detail_of(row)
    return detail.wrap or " ".join(detail.command) or "(null)"


def _memory(asked: Mapping[str, Any]) -> str:
    size = asked.get("memory_bytes")
    return memory_text(size) if isinstance(size, int) else "0"


def _user_id(user: str | None) -> str:
    try:
        return str(pwd.getpwnam(user or "").pw_uid)
    except KeyError:
        return user or ""


def _hosts(names: object) -> str:
    return fold(names) if isinstance(names, list | tuple) else ""


def asked_gres(gang: Sequence[int], gpus: int, gpus_by_type: str | None) -> str:
    """GPUs on each node, as Slurm writes them: `gres:gpu:a100:2,gres:gpu:v100:2`; none: empty."""
    count = max(gang, default=gpus)
    each = (gpus_by_type or str(count)).split(",")
    return ",".join(f"gres:gpu:{gpus}" for gpus in each) if count else ""


def _cell(title: str, fields: str, make: Callable[..., str] = _or_null) -> Cell[Row]:
    """A cell of some fields of a row."""
    return Cell(title, OfFields(fields, make))


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
    "State": ("T", _cell("STATE", "state", _state)),
    "TimeUsed": ("M", _cell("TIME", "state ended_at run_s started_at now", _time)),
    "TimeLimit": ("l", _cell("TIME_LIMIT", "time_limit_s", _limit)),
    "TimeLeft": ("L", _cell("TIME_LEFT", "time_limit_s run_s", _left)),
    "NumNodes": ("D", _cell("NODES", "nodes gang", lambda *of: str(nodes_of(*of)))),
    "NumCPUs": ("C", _cell("CPUS", "asked", lambda asked: str(asked.get("cpus") or ""))),
    "ReasonList": ("R", _cell("NODELIST(REASON)", "state ended_at reason nodes", _where)),
    "NodeList": ("N", _cell("NODELIST", "nodes", fold)),
    "Reason": ("r", _cell("REASON", "state ended_at reason", _why)),
    "Priority": ("Q", _cell("PRIORITY", "priority", _number)),
    "PriorityLong": ("p", _cell("PRIORITY", "priority", _number)),
    "SubmitTime": ("V", _cell("SUBMIT_TIME", "submitted_at", _submitted)),
    "StartTime": ("S", _cell("START_TIME", "state started_at ended_at predicted_start_at", _start)),
    "EndTime": ("e", _cell("END_TIME", "started_at ended_at time_limit_s", _end)),
    "Dependency": ("E", _cell("DEPENDENCY", "dependencies", lambda all_: _or_null(",".join(all_)))),
    "tres-alloc": ("", Cell("TRES_ALLOC", _tres)),
    "tres-per-node": (
        "b",
        _cell("TRES_PER_NODE", "gang gpus gpus_by_type", lambda *of: asked_gres(*of) or "N/A"),
    ),
    "Feature": ("f", _cell("FEATURES", "asked gpu_types", asked_features)),
    "Comment": ("k", _cell("COMMENT", "comment")),
    "SchedNodes": ("Y", _cell("SCHEDNODES", "", lambda: "(null)")),
    "Why": ("W", Cell("WHY", COLUMNS["where"].text)),
    "MinMemory": ("m", _cell("MIN_MEMORY", "asked", _memory)),
    "MinCPUs": (
        "c",
        _cell("MIN_CPUS", "asked", lambda asked: str(asked.get("cpus_per_task") or 1)),
    ),
    "UserID": ("U", _cell("USER", "user", _user_id)),
    "BatchHost": ("B", _cell("EXEC_HOST", "nodes", lambda nodes: (*nodes, "n/a")[0])),
    "ReqNodes": ("n", _cell("REQ_NODES", "asked", lambda asked: _hosts(asked.get("only_nodes")))),
    "ExcNodes": ("x", _cell("EXC_NODES", "asked", lambda asked: _hosts(asked.get("not_nodes")))),
    "Nice": ("y", _cell("NICE", "priority", lambda priority: f"{-(priority or 0):g}")),
    "OverSubscribe": (
        "h",
        _cell("OVER_SUBSCRIBE", "asked", lambda asked: "NO" if asked.get("exclusive") else "OK"),
    ),
    "Reservation": ("v", _cell("RESERVATION", "", lambda: "(null)")),
    "WorkDir": ("Z", Cell("WORK_DIR", lambda row: _detail_of(row).working_directory or "")),
    "Command": ("o", Cell("COMMAND", _command)),
}
LETTERS = {letter: cell for letter, cell in _CELLS.values() if letter}
NAMES = {name: cell for name, (_, cell) in _CELLS.items()}
OF_DETAILS = ("WorkDir", "Command")  # of which the queue itself says nothing
