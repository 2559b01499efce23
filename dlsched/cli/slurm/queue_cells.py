"""What a line of `squeue` may show: the cells, by Slurm's letters and names."""

from __future__ import annotations

import pwd
from collections.abc import Callable

from dlsched.cli.jobs.job_columns import COLUMNS, STATE_CODES, Row
from dlsched.cli.slurm.formats import Cell, moment
from dlsched.cli.slurm.sacct import CELLS
from dlsched.cli.slurm.sacct_steps import Line
from dlsched.client.job_records import Job
from dlsched.client.records import Detail
from dlsched.client.submission.durations import duration_text
from dlsched.client.submission.memory import memory_text
from dlsched.core.cluster.host_lists import fold

_SLURMS = {"STARTING": "CONFIGURING"}  # where a state has another name there
_WHY_ENDED = {  # Slurm's words
    "FAILED": "NonZeroExitCode",
    "TIMEOUT": "TimeLimit",
    "OUT_OF_MEMORY": "OutOfMemory",
    "DEADLINE": "DeadLine",
    "NODE_FAIL": "NodeDown",
}


def nodes_of(row: Row) -> int:
    """Return on how many nodes it is, or is to be."""
    return len(row.job.nodes) or len(row.job.gang) or 1


def asked_features(job: Job) -> str:
    """What a job asks of its nodes, as Slurm writes it."""
    return str(job.asked.get("constraint") or "|".join(job.gpu_types) or "(null)")


def _why(row: Row) -> str:
    if row.job.ended_at is not None:
        return _WHY_ENDED.get(row.job.state, "None")
    reason = row.job.reason or ("None" if not row.job.is_pending else "Priority")
    return reason.partition(":")[0].partition(";")[0]


def _where(row: Row) -> str:
    """The nodes; of jobs that wait, and as in Slurm of some that have ended, why."""
    told = row.job.is_pending or row.job.state in _WHY_ENDED.keys() - {"NODE_FAIL"}
    return f"({_why(row)})" if told else fold(row.job.nodes)


def _limit(row: Row) -> str:
    limit = row.job.time_limit_s
    return "UNLIMITED" if limit is None else duration_text(limit)


def _left(row: Row) -> str:
    limit = row.job.time_limit_s
    return "UNLIMITED" if limit is None else duration_text(limit - (row.job.run_s or 0.0))


def _start(row: Row) -> str:
    job = row.job
    return moment(job.predicted_start_at if job.is_pending else job.started_at, "N/A")


def _end(row: Row) -> str:
    job = row.job
    if job.ended_at is not None:
        return moment(job.ended_at)
    if job.started_at is None or job.time_limit_s is None:
        return "N/A"
    return moment(job.started_at + job.time_limit_s, "N/A")


def _state(row: Row) -> str:
    return _SLURMS.get(row.job.state, row.job.state)


def _time(row: Row) -> str:
    """Of the present run: of a job that waits again, Slurm says nothing of earlier ones."""
    found = "-" if row.job.is_pending else COLUMNS["time"].text(row)
    return "0:00" if found == "-" else found


def _of(name: str) -> Callable[[Row], str]:
    return lambda row: str(getattr(row.job, name) or "(null)")


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


def _memory(row: Row) -> str:
    size = row.job.asked.get("memory_bytes")
    return memory_text(size) if isinstance(size, int) else "0"


def _user_id(row: Row) -> str:
    try:
        return str(pwd.getpwnam(row.job.user or "").pw_uid)
    except KeyError:
        return row.job.user or ""


def _hosts(row: Row, field: str) -> str:
    names = row.job.asked.get(field)
    return fold(names) if isinstance(names, list | tuple) else ""


def _sharing(row: Row) -> str:
    return "NO" if row.job.asked.get("exclusive") else "OK"


def asked_gres(job: Job) -> str:
    """GPUs on each node, as Slurm writes them: `gres:gpu:a100:2,gres:gpu:v100:2`; none: empty."""
    count = max(job.gang, default=job.gpus)
    each = (job.gpus_by_type or str(count)).split(",")
    return ",".join(f"gres:gpu:{gpus}" for gpus in each) if count else ""


_CELLS: dict[str, tuple[str, Cell[Row]]] = {  # by name: the letter, and the cell
    "JobID": ("A", Cell("JOBID", lambda row: str(row.job.job_id))),
    "JobArrayID": ("i", Cell("JOBID", lambda row: row.shown_id)),
    "ArrayJobID": (
        "F",
        Cell("ARRAY_JOB_ID", lambda row: str(row.job.array_job_id or row.job.job_id)),
    ),
    "ArrayTaskID": (
        "K",
        Cell(
            "ARRAY_TASK_ID",
            lambda row: "N/A" if row.job.array_task_id is None else str(row.job.array_task_id),
        ),
    ),
    "Partition": ("P", Cell("PARTITION", _of("partition"))),
    "Name": ("j", Cell("NAME", _of("name"))),
    "UserName": ("u", Cell("USER", _of("user"))),
    "Account": ("a", Cell("ACCOUNT", lambda row: row.job.account or row.job.vc or "(null)")),
    "QOS": ("q", Cell("QOS", _of("priority_class"))),
    "StateCompact": ("t", Cell("ST", lambda row: STATE_CODES.get(row.job.state, "?"))),
    "State": ("T", Cell("STATE", _state)),
    "TimeUsed": ("M", Cell("TIME", _time)),
    "TimeLimit": ("l", Cell("TIME_LIMIT", _limit)),
    "TimeLeft": ("L", Cell("TIME_LEFT", _left)),
    "NumNodes": ("D", Cell("NODES", lambda row: str(nodes_of(row)))),
    "NumCPUs": ("C", Cell("CPUS", lambda row: str(row.job.asked.get("cpus") or ""))),
    "ReasonList": ("R", Cell("NODELIST(REASON)", _where)),
    "NodeList": ("N", Cell("NODELIST", lambda row: fold(row.job.nodes))),
    "Reason": ("r", Cell("REASON", _why)),
    "Priority": ("Q", Cell("PRIORITY", lambda row: f"{row.job.priority or 0:g}")),
    "PriorityLong": ("p", Cell("PRIORITY", lambda row: f"{row.job.priority or 0:g}")),
    "SubmitTime": ("V", Cell("SUBMIT_TIME", lambda row: moment(row.job.submitted_at, "N/A"))),
    "StartTime": ("S", Cell("START_TIME", _start)),
    "EndTime": ("e", Cell("END_TIME", _end)),
    "Dependency": ("E", Cell("DEPENDENCY", lambda row: ",".join(row.job.dependencies) or "(null)")),
    "tres-alloc": ("", Cell("TRES_ALLOC", _tres)),
    "tres-per-node": ("b", Cell("TRES_PER_NODE", lambda row: asked_gres(row.job) or "N/A")),
    "Feature": ("f", Cell("FEATURES", lambda row: asked_features(row.job))),
    "Comment": ("k", Cell("COMMENT", _of("comment"))),
    "SchedNodes": ("Y", Cell("SCHEDNODES", lambda row: "(null)")),
    "Why": ("W", Cell("WHY", COLUMNS["where"].text)),
    "MinMemory": ("m", Cell("MIN_MEMORY", _memory)),
    "MinCPUs": ("c", Cell("MIN_CPUS", lambda row: str(row.job.asked.get("cpus_per_task") or 1))),
    "UserID": ("U", Cell("USER", _user_id)),
    "BatchHost": ("B", Cell("EXEC_HOST", lambda row: (*row.job.nodes, "n/a")[0])),
    "ReqNodes": ("n", Cell("REQ_NODES", lambda row: _hosts(row, "only_nodes"))),
    "ExcNodes": ("x", Cell("EXC_NODES", lambda row: _hosts(row, "not_nodes"))),
    "Nice": ("y", Cell("NICE", lambda row: f"{-(row.job.priority or 0):g}")),
    "OverSubscribe": ("h", Cell("OVER_SUBSCRIBE", _sharing)),
    "Reservation": ("v", Cell("RESERVATION", lambda row: "(null)")),
    "WorkDir": ("Z", Cell("WORK_DIR", lambda row: _detail_of(row).working_directory or "")),
    "Command": ("o", Cell("COMMAND", _command)),
}
LETTERS = {letter: cell for letter, cell in _CELLS.values() if letter}
NAMES = {name: cell for name, (_, cell) in _CELLS.items()}
OF_DETAILS = ("WorkDir", "Command")  # of which the queue itself says nothing
