"""`scancel`: end or signal jobs; it prints nothing but failures."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence

from dlsched.cli.jobs.job_filter import FilterOptions, job_filter
from dlsched.cli.own_stop import outlive_own_stop
from dlsched.cli.slurm.arguments import Arguments, joined, own_name
from dlsched.cli.slurm.sacct_steps import with_steps
from dlsched.client.daemon_client import Client
from dlsched.client.job_records import Job
from dlsched.client.submission.warning_signals import signal_number
from dlsched.core.errors import BadInput, shorten

_TOLD_WITHIN_S = 7.0  # the beat of agents, and more
_LOOK_S = 0.2


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
    option("-s", "--signal", help="send this signal to the tasks of steps")
    option("-f", "--full", flag=True, help="signal the script and all that it has started, too")
    option("-b", "--batch", flag=True, help="signal the script alone (KILL, unless -s says it)")
    option("-Q", "--quiet", flag=True)
    found.add_argument("jobs", nargs="*", help="7, 7_3, 7_[2-5] or a step: 7.0")
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
    steps = [word for word in given.jobs if "." in word]
    parsed = [_step_of(word) for word in steps]
    given.jobs = [word for word in given.jobs if "." not in word]
    number = signal_number("--signal", given.signal[-1]) if given.signal else 0
    to = "script" if given.batch else "" if given.full else "steps"
    if given.batch and not number:
        number = signal.SIGKILL  # as Slurm does
    ends = not number or (number == signal.SIGKILL and not given.batch)
    outlive_own_stop()
    failed: list[tuple[str, str]] = []
    with Client() as cluster:
        for step in parsed:
            failed += _signal_step(cluster, *step, number=number or signal.SIGKILL)
        if given.jobs or not steps:
            chosen = job_filter(given.jobs, options, states=joined(given.state) or None)
            if ends:
                jobs = cluster.act("cancel", chosen).failed
            else:
                jobs = cluster.act("signal", chosen, signal=number, signal_to=to).failed
            if jobs and ends:  # as in Slurm, a job that is over or unknown is no error
                alive = _alive(cluster, given.jobs)
                jobs = tuple((subject, why) for subject, why in jobs if subject in alive)
            failed += jobs
    for subject, why in failed:
        print(f"scancel: error: {subject}: {why}", file=sys.stderr)
    return 1 if failed else 0


def _step_of(word: str) -> tuple[str, int]:
    """The job and the number of a step: `7.0`, `7_3.0`."""
    job, _, step = word.partition(".")
    if not (step.isascii() and step.isdigit() and len(step) < 10):
        raise BadInput(f"{shorten(word)}: not a job or a step of `srun` (7, 7_3, 7.0)")
    return job, int(step)


def _signal_step(cluster: Client, job: str, step: int, *, number: int) -> Sequence[tuple[str, str]]:
    """Signal a step's tasks; return what failed.

    Nodes tell of a step that has just begun a little later.
    """
    until = time.monotonic() + _TOLD_WITHIN_S
    chosen = job_filter([job])
    while not (found := _is_running(cluster, job, step)):
        if found is None or time.monotonic() >= until:
            return [(f"step {job}.{step}", "it is not running")]
        time.sleep(_LOOK_S)
    return cluster.act("signal", chosen, signal=number, step=step).failed


def _is_running(cluster: Client, job: str, step: int) -> bool | None:
    """Whether a step runs; None: it has ended, or its job does not run."""
    rows = cluster.queue(job_filter([job], all_users=True), unfold=True).rows()
    running = [row for row in rows if isinstance(row, Job) and row.state == "RUNNING"]
    if not running:
        return None
    states = {line.step: line.job.state for line in with_steps(running[0])}
    found = states.get(str(step))
    return None if found not in (None, "RUNNING") else found == "RUNNING"


def _alive(cluster: Client, jobs: Sequence[str]) -> set[str]:
    """Which of the jobs wait or run, as failures name them."""
    rows = cluster.queue(job_filter(jobs, all_users=True), unfold=True).rows()
    return {f"job {row.shown_id}" for row in rows if isinstance(row, Job)}
