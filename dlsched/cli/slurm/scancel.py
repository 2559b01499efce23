"""`scancel`: end or signal jobs; it prints nothing but failures."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dlsched.cli.jobs.job_filter import FilterOptions, job_filter
from dlsched.cli.own_stop import outlive_own_stop
from dlsched.cli.slurm.arguments import Arguments, joined, own_name
from dlsched.client.daemon_client import Client
from dlsched.client.job_records import Job
from dlsched.client.submission.warning_signals import signal_number
from dlsched.core.errors import BadInput


def _parser() -> Arguments:
    found = Arguments("scancel", "End jobs, or signal them.")
    option = found.option
    option("-u", "--user", help="all live jobs of this user")
    option("--me", flag=True, help="all your own")
    option("-t", "--state", help="in this state")
    option("-n", "--name", "--jobname", help="of this name")
    option("-p", "--partition", help="in this partition")
    option("-A", "--account", help="of this account")
    option("-w", "--nodelist", help="on these nodes")
    option("-s", "--signal", help="send this signal only")
    option("-f", "--full", flag=True)
    option("-b", "--batch", flag=True)
    option("-Q", "--quiet", flag=True)
    found.add_argument("jobs", nargs="*", help="7, 7_3 or 7_[2-5]")
    return found


def scancel(words: Sequence[str]) -> int:
    """End or signal jobs."""
    given = _parser().read(words)
    users = joined(given.user) + ([own_name()] if given.me else [])
    options = FilterOptions(
        users=users or None,
        partitions=joined(given.partition) or None,
        vcs=joined(given.account) or None,
        nodes=given.nodelist,
        names=joined(given.name) or None,
    )
    if not given.jobs and options.is_empty and not given.state:
        raise BadInput("no job id given")
    if given.batch and not given.signal:
        raise BadInput("--batch: only with --signal; without it the whole job ends")
    for word in given.jobs:
        if "." in word:
            raise BadInput(f"{word}: a step is not ended by itself; kill the srun that started it")
    if given.batch and not given.quiet:
        print("scancel: note: --batch: the steps of the job get the signal too", file=sys.stderr)
    number = signal_number("--signal", given.signal[-1]) if given.signal else 0
    chosen = job_filter(given.jobs, options, states=joined(given.state) or None)
    outlive_own_stop()
    with Client() as cluster:
        failed = cluster.act("signal" if number else "cancel", chosen, signal=number).failed
        if failed and not number:  # as in Slurm, a job that is over or unknown is no error
            alive = _alive(cluster, given.jobs)
            failed = tuple((subject, why) for subject, why in failed if subject in alive)
    for subject, why in failed:
        print(f"scancel: error: {subject}: {why}", file=sys.stderr)
    return 1 if failed else 0


def _alive(cluster: Client, jobs: Sequence[str]) -> set[str]:
    """Which of the jobs wait or run, as failures name them."""
    rows = cluster.queue(job_filter(jobs, all_users=True), unfold=True).rows()
    return {f"job {row.shown_id}" for row in rows if isinstance(row, Job)}
