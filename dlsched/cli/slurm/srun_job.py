"""`srun` on a login node: a command as a job of its own, whose output and errors come here.

The job writes to two files of its folder that go when it has ended. Ctrl-C cancels the job.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import struct
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dlsched.client.daemon_client import Client, filter_of
from dlsched.client.errors import RequestRefused
from dlsched.client.job_ids import JobName

if TYPE_CHECKING:
    from dlsched.client.job_records import Job

_FILES = {1: ".srun-%j.out", 2: ".srun-%j.err"}
_QUEUED_S = 2.0  # so long nothing is said of a job that waits
_INTERRUPTED = 130
_UNREAD = (
    "srun: the tasks of a job of its own read no input; they read it with: "
    "salloc [OPTION]... srun COMMAND"
)


def run_as_job(layer: Mapping[str, str], step: Sequence[str], argv: Sequence[str]) -> int:
    """Run a command as a job; return its exit code.

    Args:
        layer: the options of the job by key; files for the output are those of its tasks.
        step: options of the tasks, as words.
        argv: the command.

    Raises:
        DlschedError: the job is refused.
    """
    from dlsched.cli.jobs.submit import one_job  # noqa: PLC0415
    from dlsched.cli.jobs.submitted import print_warnings  # noqa: PLC0415

    files = [f"--{key}={layer[key]}" for key in ("output", "error") if key in layer]
    rest = {key: text for key, text in layer.items() if key not in ("output", "error")}
    rest.setdefault("name", os.path.basename(argv[0]))
    found = one_job(["srun", *step, *files, *argv], rest, is_command=True)
    found.request.output, found.request.error = _FILES[1], _FILES[2]
    for note in found.notes:
        print(f"srun: {note}", file=sys.stderr)
    with Client() as cluster:
        reply = cluster.submit_all([found])
        print_warnings(reply, "srun")
        if _has_input():
            print(_UNREAD, file=sys.stderr)
        job = reply.jobs[0].job
        try:
            return _followed(cluster, job)
        except KeyboardInterrupt:
            cluster.act("cancel", filter_of([JobName(job=job)]))
            print(f"srun: job {job} is cancelled", file=sys.stderr)
            return _INTERRUPTED
        finally:
            for pattern in _FILES.values():
                path = os.path.join(
                    found.request.working_directory, pattern.replace("%j", str(job))
                )
                with contextlib.suppress(OSError):
                    os.unlink(path)


def _has_input() -> bool:
    """Whether the standard input is a file or a pipe in which something is to be read."""
    try:
        found = os.fstat(0)
        if stat.S_ISREG(found.st_mode):
            return os.lseek(0, 0, os.SEEK_CUR) < found.st_size
        waiting = struct.pack("i", 0)
        if stat.S_ISFIFO(found.st_mode):
            waiting = fcntl.ioctl(0, termios.FIONREAD, waiting)
        return waiting != bytes(len(waiting))
    except OSError:  # it is closed
        return False


def _followed(cluster: Client, job: int) -> int:
    """Print what a job writes until it has ended; return its exit code."""
    queued = threading.Timer(_QUEUED_S, _say_queued, [job])
    queued.daemon = True
    errors = threading.Thread(target=_print_errors, args=[job], daemon=True)
    queued.start()
    errors.start()
    _print(cluster, job, 1)
    ended = cluster.wait_for(job)
    queued.cancel()
    errors.join()
    if ended.state not in ("COMPLETED", "FAILED") or ended.reason:
        print(f"srun: error: job {job}: {_how(ended)}", file=sys.stderr)
    return ended.exit_status


def _print(cluster: Client, job: int, stream: int) -> None:
    out = sys.stdout.buffer if stream == 1 else sys.stderr.buffer
    with contextlib.suppress(RequestRefused):  # it has no output, for it never began
        for chunk in cluster.follow(job, error=stream == 2):
            out.write(chunk)
            out.flush()


def _print_errors(job: int) -> None:
    with Client() as own:  # a connection has one stream at a time
        _print(own, job, 2)


def _say_queued(job: int) -> None:
    with Client() as own:
        if own.show(filter_of([JobName(job=job)]))[0].job.is_pending:
            print(f"srun: job {job} queued and waiting for resources", file=sys.stderr)


def _how(ended: Job) -> str:
    by = f" by {ended.cancelled_by}" if ended.cancelled_by else ""
    return f"{ended.state}{by}" + (f" ({ended.reason})" if ended.reason else "")
