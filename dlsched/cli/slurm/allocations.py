"""`--immediate`, and the jobs of `salloc --no-shell`, which only hold what they are given."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dlsched.client.daemon_client import Client, filter_of
from dlsched.client.job_ids import JobName

if TYPE_CHECKING:
    from dlsched.client.job_records import Job
    from dlsched.client.submission.request import Submission

_LOOK_S = 0.5  # between two looks for the start of a job
_INTERRUPTED = 130


class StartLimit:
    """Cancels a job that does not start in time, as `--immediate` asks for.

    Attributes:
        is_over: it was cancelled.
    """

    def __init__(self, name: str, within_s: float | None) -> None:
        """Begin with nothing: `begin` says which job.

        Args:
            name: of the program.
            within_s: how long the job may wait, in seconds; None: for ever.
        """
        self._name, self._within_s = name, within_s
        self._timer: threading.Timer | None = None
        self.is_over = False

    def begin(self, job: int) -> None:
        """Let a job that was submitted wait for so long."""
        if self._within_s is not None:
            self._timer = threading.Timer(self._within_s, self._end, [job])
            self._timer.daemon = True
            self._timer.start()

    def _end(self, job: int) -> None:
        with Client() as own:
            chosen = filter_of([JobName(job=job)])
            if own.show(chosen)[0].job.is_pending:
                self.is_over = True
                why = "Unable to allocate resources: Requested nodes are busy"
                print(f"{self._name}: error: {why}", file=sys.stderr)
                own.act("cancel", chosen, reason="--immediate")

    def stop(self) -> None:
        """Leave the job alone from now on."""
        if self._timer is not None:
            self._timer.cancel()


@contextlib.contextmanager
def start_limit(name: str, within_s: float | None) -> Iterator[StartLimit]:
    """A limit that ends with its block."""
    limit = StartLimit(name, within_s)
    try:
        yield limit
    finally:
        limit.stop()


def hold(wanted: Submission, within_s: float | None) -> int:
    """Submit a job that only holds what it is given, and return once it has it: 0, else 1.

    Args:
        wanted: the job.
        within_s: how long it may wait, in seconds; None: for ever.
    """
    from dlsched.cli.jobs.submitted import print_warnings  # noqa: PLC0415

    with Client() as cluster, start_limit("salloc", within_s) as limit:
        reply = cluster.submit_all([wanted])
        print_warnings(reply, "salloc")
        job = reply.jobs[0].job
        chosen = filter_of([JobName(job=job)])
        limit.begin(job)
        said = False
        try:
            while (found := cluster.show(chosen)[0].job).state != "RUNNING":
                if found.ended_at is not None:
                    break
                if found.is_pending and not said:
                    print(f"salloc: Pending job allocation {job}", file=sys.stderr)
                    said = True
                time.sleep(_LOOK_S)
        except KeyboardInterrupt:
            cluster.act("cancel", chosen)
            print(f"salloc: job {job} is cancelled", file=sys.stderr)
            return _INTERRUPTED
    if found.ended_at is not None:
        if not limit.is_over:
            say_how("salloc", found)
        return 1
    print(f"salloc: Granted job allocation {job}", file=sys.stderr)
    return 0


def say_how(name: str, ended: Job) -> None:
    """Say how a job ended that did not end by itself; `name` is the program's."""
    if ended.state not in ("COMPLETED", "FAILED") or ended.reason:
        by = f" by {ended.cancelled_by}" if ended.cancelled_by else ""
        why = f" ({ended.reason})" if ended.reason else ""
        print(f"{name}: error: job {ended.job_id}: {ended.state}{by}{why}", file=sys.stderr)
