"""`sacct`: jobs that have ended or run, with a line for each of their steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from dlsched.cli.jobs.job_columns import exit_text
from dlsched.cli.jobs.job_filter import FilterOptions, job_filter
from dlsched.cli.output.terminal import terminal
from dlsched.cli.output.times import moment_or_ago
from dlsched.cli.slurm.arguments import Arguments, given_by, joined, own_name
from dlsched.cli.slurm.formats import Cell, by_names, lines, moment, of_each
from dlsched.cli.slurm.sacct_steps import Line, with_steps
from dlsched.client.daemon_client import Client
from dlsched.client.job_records import Job
from dlsched.client.submission.memory import memory_text
from dlsched.host_lists import fold

USUAL = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
BRIEF = "JobID,State,ExitCode"


def _elapsed(job: Job) -> str:
    minutes, seconds = divmod(int(job.run_s or 0), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:{seconds:02}"


def _processor_time(job: Job) -> str:
    """As Slurm writes it: `00:01.250`, from an hour on `01:02:03`."""
    if job.cpu_s is None:
        return ""
    minutes, seconds = divmod(job.cpu_s, 60)
    if minutes < 60:
        return f"{int(minutes):02}:{seconds:06.3f}"
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:{int(seconds):02}"


def _held_processor_time(job: Job) -> str:
    """Seconds times processors that it holds."""
    return str(int(job.run_s or 0) * math.ceil(float(_cpus(job))))


def _limit_minutes(job: Job) -> str:
    return "UNLIMITED" if job.time_limit_s is None else str(int(job.time_limit_s // 60))


def _peak_memory(line: Line) -> str:
    """Of the run's largest process, on the line of its script or ranks, as with Slurm."""
    peak = line.job.peak_memory_bytes
    return f"{peak // 1024}K" if line.step and peak else ""


def _folder(line: Line) -> str:
    """Of the caller's own jobs, on the line of the job, as with Slurm."""
    return "" if line.step else line.job.working_directory or ""


def _limit(job: Job) -> str:
    if job.time_limit_s is None:
        return "UNLIMITED"
    minutes, seconds = divmod(int(job.time_limit_s), 60)
    days, rest = divmod(minutes, 1440)
    return (f"{days}-" if days else "") + f"{rest // 60:02}:{rest % 60:02}:{seconds:02}"


def _state(job: Job) -> str:
    if job.state == "CANCELLED" and job.cancelled_by:
        return f"CANCELLED by {job.cancelled_by}"
    return {"STARTING": "RUNNING"}.get(job.state, job.state)


def _cpus(job: Job) -> str:
    return str(job.asked.get("cpus") or _nodes(job))  # one on each node, as Slurm counts


def _nodes(job: Job) -> int:
    return max(1, len(job.nodes) or len(job.gang))


def _memory(job: Job) -> str:
    size = job.asked.get("memory_bytes")
    return memory_text(size) if isinstance(size, int) else ""


def _tres(job: Job) -> str:
    gpus = f",gres/gpu={job.gpus}" if job.gpus else ""
    each = (job.gpus_by_type or "").split(",") if job.gpus else ()
    pairs = [gpu.rpartition(":") for gpu in each if gpu]
    types = [f",gres/gpu:{kind}={int(count) * _nodes(job)}" for kind, _, count in pairs]
    size = job.asked.get("memory_bytes")  # on each node
    memory = f",mem={memory_text(size * _nodes(job))}" if isinstance(size, int) else ""
    return f"cpu={_cpus(job)}{gpus}{''.join(types)}{memory},node={_nodes(job)}"


def _of_job(title: str, text: Callable[[Job], str]) -> Cell[Line]:
    return Cell(title, lambda line: text(line.job))


_OF_JOBS: dict[str, Cell[Job]] = {
    "JobName": Cell("JobName", lambda job: job.name or ""),
    "User": Cell("User", lambda job: job.user or ""),
    "Partition": Cell("Partition", lambda job: job.partition or ""),
    "Account": Cell("Account", lambda job: job.account or job.vc or ""),
    "QOS": Cell("QOS", lambda job: job.priority_class or ""),
    "AllocCPUS": Cell("AllocCPUS", _cpus),
    "NCPUS": Cell("NCPUS", _cpus),
    "ReqCPUS": Cell("ReqCPUS", _cpus),
    "NNodes": Cell("NNodes", lambda job: str(_nodes(job))),
    "AllocNodes": Cell("AllocNodes", lambda job: str(_nodes(job))),
    "AllocTRES": Cell("AllocTRES", _tres),
    "ReqTRES": Cell("ReqTRES", _tres),
    "State": Cell("State", _state),
    "ExitCode": Cell("ExitCode", lambda job: exit_text(job).replace("-", "0:0")),
    "Elapsed": Cell("Elapsed", _elapsed),
    "ElapsedRaw": Cell("ElapsedRaw", lambda job: str(int(job.run_s or 0))),
    "TotalCPU": Cell("TotalCPU", _processor_time),
    "CPUTimeRAW": Cell("CPUTimeRAW", _held_processor_time),
    "Timelimit": Cell("Timelimit", _limit),
    "TimelimitRaw": Cell("TimelimitRaw", _limit_minutes),
    "Submit": Cell("Submit", lambda job: moment(job.submitted_at)),
    "Eligible": Cell("Eligible", lambda job: moment(job.begin_at or job.submitted_at)),
    "Start": Cell("Start", lambda job: moment(job.first_started_at)),
    "End": Cell("End", lambda job: moment(job.ended_at)),
    "NodeList": Cell("NodeList", lambda job: fold(job.nodes) or "None assigned"),
    "Reason": Cell("Reason", lambda job: job.reason or "None"),
    "Restarts": Cell("Restarts", lambda job: str(max(0, job.starts - 1))),
    "Priority": Cell("Priority", lambda job: f"{job.priority or 0:g}"),
    "ReqMem": Cell("ReqMem", _memory),
    "Comment": Cell("Comment", lambda job: job.comment or ""),
}
CELLS: dict[str, Cell[Line]] = {
    "JobID": Cell("JobID", lambda line: line.job.shown_id + line.suffix),
    "JobIDRaw": Cell("JobIDRaw", lambda line: f"{line.job.job_id}{line.suffix}"),
    **{name: _of_job(name, cell.text) for name, cell in _OF_JOBS.items()},
}
CELLS |= {
    "MaxRSS": Cell("MaxRSS", _peak_memory),
    "WorkDir": Cell("WorkDir", _folder),
}


def _parser() -> Arguments:
    found = Arguments("sacct", "List jobs and their steps, a line each.")
    option = found.option
    option("-j", "--jobs", help="these")
    option("-u", "--user", "--uid", help="of these users")
    option("-a", "--allusers", flag=True, help="of all users")
    option("-s", "--state", help="in these states")
    option("-S", "--starttime", help="since: a time, now-2hours; today without it")
    option("-E", "--endtime", help="until")
    option("-A", "--accounts", "--account", help="of these accounts")
    option("-r", "--partition", help="in these partitions")
    option("-N", "--nodelist", help="on these nodes")
    option("--name", help="of these names")
    option("-o", "--format", help=f"names: {USUAL}")
    option("-e", "--helpformat", flag=True, help="print the names of --format")
    option("-q", "--qos", help="of these classes")
    option("-b", "--brief", flag=True, help=BRIEF)
    option("-X", "--allocations", flag=True, help="no lines of steps")
    option("-n", "--noheader", flag=True, help="without the titles")
    option("-p", "--parsable", flag=True, help="cells end with |")
    option("-P", "--parsable2", flag=True, help="cells are joined by |")
    option("--delimiter", help="in place of |")
    option("-l", "--long", flag=True, help="all that is known")
    option("-D", "--duplicates", flag=True)
    return found


def sacct(words: Sequence[str]) -> int:
    """List jobs."""
    given = _parser().read(words)
    if given.helpformat:
        print("\n".join(CELLS))
        return 0
    chosen = ",".join(given.format or given_by("SACCT_FORMAT"))
    names = BRIEF if given.brief else chosen or USUAL
    if given.long or names.upper() == "ALL":
        names = ",".join(CELLS)
    parts = by_names(names, CELLS, "--format")
    named = [word.partition(".") for word in joined(given.jobs)]  # `7`, `7.batch`, `7.0`
    jobs = [job for job, _, _ in named]
    users = joined(given.user)
    if not users and not given.allusers and not given.jobs:
        users = [own_name()]
    wanted = job_filter(
        jobs,
        FilterOptions(
            users=users or None,
            partitions=joined(given.partition) or None,
            vcs=joined(given.accounts) or None,
            nodes=given.nodelist,
            names=joined(given.name) or None,
        ),
        states=joined(given.state) or None,
        all_users=given.allusers,
    )
    since = _when("-S", given.starttime)
    if since is None and not given.jobs:
        since = time.mktime((*time.localtime()[:3], 0, 0, 0, 0, 0, -1))  # midnight
    separator = (given.delimiter or ["|"])[-1] if given.parsable or given.parsable2 else None
    end = separator if given.parsable else ""
    with Client() as cluster:
        until = _when("-E", given.endtime)
        found = list(cluster.history(wanted, since=since, until=until, live_too=True))
    classes = set(joined(given.qos))
    if classes:
        found = [job for job in found if job.priority_class in classes]
    found.sort(key=lambda job: job.job_id)
    rows = [Line(job) for job in found]
    if not given.allocations:
        rows = [line for job in found for line in with_steps(job)]
    steps = {f"{job}.{step}" for job, dot, step in named if dot}
    if steps:
        whole = {job for job, dot, _ in named if not dot}
        rows = [x for x in rows if x.job.shown_id in whole or x.job.shown_id + x.suffix in steps]
    for line in lines(
        parts,
        *of_each(rows),
        header=not given.noheader,
        separator=separator,
        rule=separator is None,
        within=None if chosen or given.long else terminal().width,
    ):
        print(f"{line}{end}")
    return 0


def _when(option: str, given: Sequence[str] | None) -> float | None:
    if not given:
        return None
    text = given[-1].strip()
    if text.lower().startswith("now-"):  # as Slurm: now-2hours, now-1day
        text = _ago(text[4:])
    elif text.lower() == "now":
        return time.time()
    return moment_or_ago(option, text)


def _ago(text: str) -> str:
    """`2hours` as `2h`; a bare number is seconds, as in Slurm."""
    digits = text[: len(text) - len(text.lstrip("0123456789"))]
    unit = text[len(digits) :].strip().lower()[:1] or "s"
    return f"{digits}{unit}"
