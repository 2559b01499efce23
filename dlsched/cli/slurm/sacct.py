"""`sacct`: jobs that have ended or run, with a line for each of their steps."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from dlsched.cli.jobs.job_filter import FilterOptions, job_filter
from dlsched.cli.output.terminal import terminal
from dlsched.cli.slurm.arguments import Arguments, between, given_by, joined, own_name
from dlsched.cli.slurm.formats import Cell, by_names, lines, of_each
from dlsched.cli.slurm.moments import past_moment
from dlsched.cli.slurm.people import gid_text, group_text
from dlsched.cli.slurm.quantities import job_cpus, job_nodes
from dlsched.cli.slurm.sacct_cells import CELLS, UNITS, cells_in
from dlsched.cli.slurm.sacct_steps import Line, with_steps
from dlsched.client.daemon_client import Client
from dlsched.client.job_records import Job
from dlsched.client.submission.durations import duration
from dlsched.core.errors import BadInput, shorten

USUAL = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
BRIEF = "JobID,State,ExitCode"


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
    option("--units", help=f"memory in one of {' '.join(UNITS)}")
    option("--noconvert", flag=True, help="memory in M, as it was asked for")
    option("-g", "--gid", "--group", help="of users of these groups")
    option("-i", "--nnodes", help="on so many nodes: 2, 2-4")
    option("-I", "--ncpus", help="with so many processors: 2, 2-4")
    option("-k", "--timelimit-min", help="with this time limit, or from it on")
    option("-K", "--timelimit-max", help="with -k: up to this time limit")
    option("-T", "--truncate", flag=True, help="no start before -S, no end after -E")
    found.as_json()
    for words in (("-D", "--duplicates"), ("--array",), ("-L", "--allclusters"), ("--local",)):
        option(*words, flag=True)
    for words in (("--federation",), ("--expand-patterns",), ("--use-local-uid",)):
        option(*words, flag=True)
    found.add_argument("--whole-hetjob", nargs="?", const="yes", help=argparse.SUPPRESS)
    return found


def sacct(words: Sequence[str]) -> int:
    """List jobs."""
    given = _parser().read(words)
    if given.helpformat:
        print("\n".join(CELLS))
        return 0
    cells = _cells(given)
    chosen = ",".join(given.format or given_by("SACCT_FORMAT"))
    names = BRIEF if given.brief else chosen or USUAL
    if given.long or names.upper() == "ALL":
        names = ",".join(cells)
    parts = by_names(names, cells, "--format")
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
    since = past_moment("-S", given.starttime[-1]) if given.starttime else None
    if since is None and not given.jobs:
        since = time.mktime((*time.localtime()[:3], 0, 0, 0, 0, 0, -1))  # midnight
    until = past_moment("-E", given.endtime[-1]) if given.endtime else None
    separator = (given.delimiter or ["|"])[-1] if given.parsable or given.parsable2 else None
    end = separator if given.parsable else ""
    with Client() as cluster:
        found = _chosen(cluster.history(wanted, since=since, until=until, live_too=True), given)
    found.sort(key=lambda job: job.job_id)
    if given.truncate:
        found = [_truncated(job, since, until) for job in found]
    if given.json:
        from dlsched.cli.slurm.shown.accounting_json import print_accounting  # noqa: PLC0415

        print_accounting(found)
        return 0
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


def _cells(given: Any) -> dict[str, Cell[Line]]:
    if not given.units and not given.noconvert:
        return CELLS
    unit = given.units[-1].upper() if given.units else "M"
    if unit not in [*UNITS]:
        raise BadInput(f"--units: {shorten(unit)!r} is not one of {' '.join(UNITS)}")
    return cells_in(unit)


def _truncated(job: Job, since: float | None, until: float | None) -> Job:
    """The part of a job between two times, of which its own run time is not before or after."""
    start, end = job.first_started_at, job.ended_at
    if start is not None and since is not None and start < since:
        start = since
    if until is not None:
        until = min(until, time.time())
    if until is not None and start is not None and (end is None or end > until):
        end = until
    if (start, end) == (job.first_started_at, job.ended_at):
        return job
    run_s = job.run_s if start is None else max((end or time.time()) - start, 0.0)
    return replace(job, first_started_at=start, ended_at=end, run_s=run_s)


def _chosen(found: Iterable[Job], given: Any) -> list[Job]:
    """The jobs that the options leave which the daemon's filter does not know."""
    classes, groups = set(joined(given.qos)), set(joined(given.gid))
    nodes, cpus = between("--nnodes", given.nnodes), between("--ncpus", given.ncpus)
    least, most = given.timelimit_min, given.timelimit_max
    if most and not least:
        raise BadInput("--timelimit-max: needs --timelimit-min")
    low = duration("--timelimit-min", least[-1]) if least else None
    high = duration("--timelimit-max", most[-1]) if most else low
    kept = []
    for job in found:
        own = {group_text(job.user), gid_text(job.user)} if groups else set()
        limit = job.time_limit_s
        if (
            (not classes or job.priority_class in classes)
            and (not groups or groups & own)
            and (nodes is None or job_nodes(job) in nodes)
            and (cpus is None or job_cpus(job) in cpus)
            and (low is None or (limit is not None and low <= limit <= (high or low)))
        ):
            kept.append(job)
    return kept
