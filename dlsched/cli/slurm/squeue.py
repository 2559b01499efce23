"""`squeue`: jobs that wait or run, of all users unless said otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from dlsched.cli.jobs.job_columns import COLUMNS, STATE_CODES, Row, rows_of, where_text
from dlsched.cli.jobs.job_filter import FilterOptions, job_filter, states_of
from dlsched.cli.slurm.arguments import Arguments, joined, own_name
from dlsched.cli.slurm.formats import Cell, Part, by_letters, by_names, lines
from dlsched.client.daemon_client import Client
from dlsched.client.submission.durations import duration_text
from dlsched.core.cluster.host_lists import fold
from dlsched.core.errors import BadInput

USUAL = "%i %P %j %u %t %M %D %R"
LONG = "%i %P %j %u %T %M %l %D %R"
START = "%i %P %j %u %t %S %D %Y %r"
_SLURMS = {"STARTING": "CONFIGURING"}  # where a state has another name there


def _moment(at: float | None) -> str:
    if at is None:
        return "N/A"
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))


def _nodes(row: Row) -> int:
    return len(row.job.nodes) or len(row.job.gang) or 1


def _why(row: Row) -> str:
    reason = row.job.reason or ("None" if not row.job.is_pending else "Priority")
    return reason.partition(":")[0].partition(";")[0]


def _where(row: Row) -> str:
    return f"({_why(row)})" if row.job.is_pending else fold(row.job.nodes)


def _limit(row: Row) -> str:
    limit = row.job.time_limit_s
    return "UNLIMITED" if limit is None else duration_text(limit)


def _left(row: Row) -> str:
    limit = row.job.time_limit_s
    return "UNLIMITED" if limit is None else duration_text(limit - (row.job.run_s or 0.0))


def _start(row: Row) -> str:
    job = row.job
    return _moment(job.predicted_start_at if job.is_pending else job.started_at)


def _end(row: Row) -> str:
    job = row.job
    if job.started_at is None or job.time_limit_s is None:
        return "N/A"
    return _moment(job.started_at + job.time_limit_s)


def _state(row: Row) -> str:
    return _SLURMS.get(row.job.state, row.job.state)


def _time(row: Row) -> str:
    found = COLUMNS["time"].text(row)
    return "0:00" if found == "-" else found


def _of(name: str) -> Callable[[Row], str]:
    return lambda row: str(getattr(row.job, name) or "")


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
    "Account": ("a", Cell("ACCOUNT", lambda row: row.job.account or row.job.vc or "")),
    "QOS": ("q", Cell("QOS", _of("priority_class"))),
    "StateCompact": ("t", Cell("ST", lambda row: STATE_CODES.get(row.job.state, "?"))),
    "State": ("T", Cell("STATE", _state)),
    "TimeUsed": ("M", Cell("TIME", _time)),
    "TimeLimit": ("l", Cell("TIME_LIMIT", _limit)),
    "TimeLeft": ("L", Cell("TIME_LEFT", _left)),
    "NumNodes": ("D", Cell("NODES", lambda row: str(_nodes(row)))),
    "NumCPUs": ("C", Cell("CPUS", lambda row: str(row.job.asked.get("cpus") or ""))),
    "ReasonList": ("R", Cell("NODELIST(REASON)", _where)),
    "NodeList": ("N", Cell("NODELIST", lambda row: fold(row.job.nodes))),
    "Reason": ("r", Cell("REASON", _why)),
    "Priority": ("Q", Cell("PRIORITY", lambda row: f"{row.job.priority or 0:g}")),
    "PriorityLong": ("p", Cell("PRIORITY", lambda row: f"{row.job.priority or 0:g}")),
    "SubmitTime": ("V", Cell("SUBMIT_TIME", lambda row: _moment(row.job.submitted_at))),
    "StartTime": ("S", Cell("START_TIME", _start)),
    "EndTime": ("e", Cell("END_TIME", _end)),
    "Dependency": ("E", Cell("DEPENDENCY", lambda row: ",".join(row.job.dependencies))),
    "tres-per-node": ("b", Cell("TRES_PER_NODE", lambda row: f"gres:gpu:{_on_node(row)}")),
    "Feature": ("f", Cell("FEATURES", lambda row: "|".join(row.job.gpu_types) or "(null)")),
    "Comment": ("k", Cell("COMMENT", _of("comment"))),
    "SchedNodes": ("Y", Cell("SCHEDNODES", lambda row: "(null)")),
    "Why": ("W", Cell("WHY", where_text)),
}
LETTERS = dict(_CELLS.values())
NAMES = {name: cell for name, (_, cell) in _CELLS.items()}


def _on_node(row: Row) -> str:
    gang = row.job.gang
    return str(max(gang)) if gang else str(row.job.gpus)


def _parser() -> Arguments:
    found = Arguments("squeue", "List jobs that wait or run.")
    option = found.option
    option("-u", "--user", "--users", help="of these users")
    option("--me", flag=True, help="your own")
    option("-t", "--states", "--state", help="PENDING or PD, RUNNING or R, …; all")
    option("-j", "--jobs", "--job", help="these")
    option("-n", "--name", "--names", help="of these names")
    option("-p", "--partition", "--partitions", help="in these partitions")
    option("-A", "--account", "--accounts", help="of these accounts")
    option("-w", "--nodelist", "--nodes", help="on these nodes")
    option("-o", "--format", help="letters: '%%.18i %%j %%T'")
    option("-O", "--Format", help="names: JobArrayID:20,State")
    option("-S", "--sort", help="letters, + or - before them: -S -t,i")
    option("-h", "--noheader", flag=True, help="without the titles")
    option("-l", "--long", flag=True, help="with states as words and limits")
    option("-r", "--array", flag=True, help="a line for each array element")
    option("--start", flag=True, help="predicted starts")
    option("-a", "--all", flag=True)
    option("-i", "--iterate", help="repeat every so many seconds")
    return found


def squeue(words: Sequence[str]) -> int:
    """List jobs."""
    given = _parser().read(words)
    parts = _parts(given)
    users = joined(given.user) + ([own_name()] if given.me else [])
    wanted = job_filter(
        given.jobs,
        FilterOptions(
            users=users or None,
            partitions=joined(given.partition) or None,
            vcs=joined(given.account) or None,
            nodes=given.nodelist,
            names=joined(given.name) or None,
        ),
        states=_states(given.states),
        all_users=not users,
    )
    order = _order(joined(given.sort))

    def once(cluster: Client) -> None:
        found = cluster.queue(wanted, predict=given.start, unfold=given.array)
        rows = list(rows_of(found.rows(), predicted=given.start))
        for key, backwards in reversed(order):
            rows.sort(key=key, reverse=backwards)
        if given.long and not given.noheader:
            print(time.strftime("%a %b %d %H:%M:%S %Y"))
        for line in lines(parts, rows, header=not given.noheader, padded=not given.format):
            print(line, flush=bool(given.iterate))

    with Client() as cluster:
        once(cluster)
        while given.iterate:
            time.sleep(_pause(given.iterate[-1]))
            once(cluster)
    return 0


def _parts(given: Any) -> list[Part[Row]]:
    if given.Format:
        return by_names(",".join(given.Format), NAMES, "-O", usual=20)
    if given.format:
        return by_letters(given.format[-1], LETTERS)
    return by_letters(START if given.start else LONG if given.long else USUAL, LETTERS)


def _states(words: Sequence[str] | None) -> list[str] | None:
    """The states of live jobs among those that are named; others have no jobs in a queue."""
    own = {"CONFIGURING": "STARTING"}
    chosen = [own.get(word.upper(), word) for word in joined(words)]
    if not chosen:
        return None
    found = states_of(chosen)
    if "RUNNING" in found:
        found.append("STARTING")
    return found


def _order(keys: Sequence[str]) -> list[tuple[Callable[[Row], Any], bool]]:
    found: list[tuple[Callable[[Row], Any], bool]] = []
    for word in keys:
        letter = word.lstrip("+-")
        if letter not in LETTERS:
            raise BadInput(f"-S: {word!r} is not a letter of a format ({' '.join(LETTERS)})")
        found.append((_sort_key(letter), word.startswith("-")))
    return found


def _sort_key(letter: str) -> Callable[[Row], Any]:
    numbers: dict[str, Callable[[Row], float]] = {
        "i": lambda row: row.job.job_id,
        "A": lambda row: row.job.job_id,
        "M": lambda row: row.job.run_s or 0.0,
        "D": _nodes,
        "p": lambda row: row.job.priority or 0.0,
        "Q": lambda row: row.job.priority or 0.0,
        "V": lambda row: row.job.submitted_at or 0.0,
        "S": lambda row: row.job.started_at or row.job.predicted_start_at or 1e18,
    }
    return numbers.get(letter, LETTERS[letter].text)


def _pause(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not found > 0:
        raise BadInput(f"-i: {text!r} is not a number of seconds above 0")
    return found
