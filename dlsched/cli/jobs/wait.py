"""`dlsched wait`: wait until jobs have ended, and exit with their exit code."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.jobs.job_filter import IdsArgument, ids_of, job_filter

if TYPE_CHECKING:
    from dlsched.client.daemon_client import Client
    from dlsched.client.job_records import Job
    from dlsched.rpc.v1.control_pb2 import Filter

_INTERRUPTED = 130  # as in shells


def wait_command(
    jobs: IdsArgument,
    *,
    daemon: DaemonOptions,
) -> None:
    """Wait for jobs; exit with the job's code, 128+signal, or 1 if it was cancelled.

    Of several jobs, the highest code counts. Ctrl-C does not end the jobs.
    """
    ids_of(jobs)
    chosen = job_filter(jobs)
    with daemon.client() as cluster:
        raise SystemExit(wait_for_all(cluster, chosen))


def wait_for_all(cluster: Client, chosen: Filter) -> int:
    """Wait, print a line for each job on stderr when it ends, and return the highest exit code."""
    code = 0
    try:
        for job in cluster.wait(chosen, on_lost=_say_lost):
            print(f"dlsched: {ended_line(job)}", file=sys.stderr)
            code = max(code, job.exit_status)
    except KeyboardInterrupt:
        print("dlsched: no longer waiting; the jobs continue", file=sys.stderr)
        return _INTERRUPTED
    return code


def ended_line(job: Job) -> str:
    """Describe how a job ended: `job 7: FAILED 3:0 after 1:41 (reason)`."""
    from dlsched.cli.jobs.job_columns import exit_text  # noqa: PLC0415
    from dlsched.cli.output.terminal import shown  # noqa: PLC0415
    from dlsched.client.submission.durations import duration_text  # noqa: PLC0415

    text = f"job {job.shown_id}: {job.state}"
    if job.cancelled_by:
        text += f" by {job.cancelled_by}"
    if job.exit_code is not None:
        text += f" {exit_text(job)}"
    if job.run_s is not None:
        text += f" after {duration_text(job.run_s)}"
    if job.reason:
        text += f" ({job.reason})"
    return shown(text)


def _say_lost(why: str) -> None:
    print(f"dlsched: {why}; trying again", file=sys.stderr)
