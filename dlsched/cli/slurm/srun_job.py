"""`srun` on a login node: a command as a job of its own, whose output and errors come here.

The job writes to two files of its folder that go when it has ended. Ctrl-C cancels the job. Where
this program has an input, the job is interactive: its input and output go through this program.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dlsched.cli.slurm.allocations import StartLimit, say_how, start_limit
from dlsched.client.daemon_client import Client, filter_of
from dlsched.client.errors import RequestRefused
from dlsched.client.job_ids import JobName
from dlsched.job import caller_input

if TYPE_CHECKING:
    from dlsched.client.job_records import Job
    from dlsched.client.submission.request import Submission

_FILES = {1: ".srun-%j.out", 2: ".srun-%j.err"}
_QUEUED_S = 2.0  # so long nothing is said of a job that waits
_INTERRUPTED = 130


def run_as_job(
    layer: Mapping[str, str],
    step: Sequence[str],
    argv: Sequence[str],
    reads: str,
    within_s: float | None = None,
) -> int:
    """Run a command as a job; return its exit code.

    Args:
        layer: the options of the job by key; files for the output are those of its tasks.
        step: options of the tasks, as words.
        argv: the command.
        reads: which tasks read the standard input of this program, as `srun --input` says it.
        within_s: how long it may wait for its start, in seconds; None: for ever.

    Raises:
        DlschedError: the job is refused.
    """
    from dlsched.cli.jobs.submit import one_job  # noqa: PLC0415

    files = [f"--{key}={layer[key]}" for key in ("output", "error") if key in layer]
    rest = {key: text for key, text in layer.items() if key not in ("output", "error")}
    rest.setdefault("name", os.path.basename(argv[0]))
    words = ["srun", *step, *files, f"--input={reads}", *argv]
    found = one_job(words, rest, is_command=True)
    found.request.output, found.request.error = _FILES[1], _FILES[2]
    for note in found.notes:
        print(f"srun: {note}", file=sys.stderr)
    is_read = (reads == "all" or reads.isdigit()) and caller_input.find() is not None
    run = _run_with_input if is_read else _run_without_input
    with Client() as cluster, start_limit("srun", within_s) as limit:
        return run(cluster, found, limit)


def _run_with_input(cluster: Client, wanted: Submission, limit: StartLimit) -> int:
    """Run a job whose input and output go through this program, and its errors through a file."""
    from dlsched.cli.jobs.interactive import SRUN, run_interactive  # noqa: PLC0415

    jobs: list[int] = []
    with contextlib.ExitStack() as meanwhile:

        def submitted(job: int) -> None:
            jobs.append(job)
            limit.begin(job)
            meanwhile.callback(_remove_files, wanted, job)
            meanwhile.enter_context(_told_of(job))

        words = replace(SRUN, waits=())
        code = run_interactive(cluster, wanted, words, needs_terminal=False, submitted=submitted)
        _say_how(cluster.wait_for(jobs[0]), limit)
    return code


def _run_without_input(cluster: Client, wanted: Submission, limit: StartLimit) -> int:
    """Run a job whose output and errors go through files."""
    from dlsched.cli.jobs.submitted import print_warnings  # noqa: PLC0415

    reply = cluster.submit_all([wanted])
    print_warnings(reply, "srun")
    job = reply.jobs[0].job
    limit.begin(job)
    try:
        with _told_of(job):
            _print(cluster, job, 1)
            ended = cluster.wait_for(job)
    except KeyboardInterrupt:
        cluster.act("cancel", filter_of([JobName(job=job)]))
        print(f"srun: job {job} is cancelled", file=sys.stderr)
        return _INTERRUPTED
    finally:
        _remove_files(wanted, job)
    _say_how(ended, limit)
    return ended.exit_status


def _remove_files(wanted: Submission, job: int) -> None:
    for pattern in _FILES.values():
        name = pattern.replace("%j", str(job))
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(wanted.request.working_directory, name))


@contextlib.contextmanager
def _told_of(job: int) -> Iterator[None]:
    """Say if a job waits for long, and print its errors, to their end if nothing is raised."""
    queued = threading.Timer(_QUEUED_S, _say_queued, [job])
    queued.daemon = True
    errors = threading.Thread(target=_print_errors, args=[job], daemon=True)
    queued.start()
    errors.start()
    try:
        yield
    finally:
        queued.cancel()
    errors.join()


def _print(cluster: Client, job: int, stream: int) -> None:
    """Print a job's output while it is written; else at its end, if it has any then."""
    out = sys.stdout.buffer if stream == 1 else sys.stderr.buffer
    written = False
    for read in (cluster.follow, cluster.logs):
        with contextlib.suppress(RequestRefused):  # it never began, or its node is slow to know it
            for chunk in read(job, error=stream == 2):
                out.write(chunk)
                out.flush()
                written = True
            return
        if written:
            return
        cluster.wait_for(job)


def _print_errors(job: int) -> None:
    with Client() as own:  # a connection has one stream at a time
        _print(own, job, 2)


def _say_queued(job: int) -> None:
    with Client() as own:
        if own.show(filter_of([JobName(job=job)]))[0].job.is_pending:
            print(f"srun: job {job} queued and waiting for resources", file=sys.stderr)


def _say_how(ended: Job, limit: StartLimit) -> None:
    """Say how a job ended that did not end by itself; `limit` has said so itself."""
    if not limit.is_over:
        say_how("srun", ended)
