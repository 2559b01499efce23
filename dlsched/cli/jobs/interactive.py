"""A job whose command has the user's terminal: `submit --interactive`, `salloc`, `srun --pty`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dlsched.cli.jobs.attach import exit_code, say, told
from dlsched.core.errors import BadInput
from dlsched.host_lists import fold

if TYPE_CHECKING:
    from dlsched.client.daemon_client import Client
    from dlsched.client.submission.request import Submission

INTERRUPTED = 130
NAME = "interactive"  # of a job that names neither itself nor a command


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What a program says of its job; `{job}`, `{node}` (the first) and `{nodes}` stand for them.

    Attributes:
        name: of the program.
        submitted: once the job has an id.
        waits: while it does not start, each a line.
        granted: once it runs.
        over: at the end.
        revoked: at the end, when the job was stopped.
        cancels: whether the job is cancelled when the program leaves it: by Ctrl-C, where no
            terminal passes it on, or because nothing reads its output any more.
    """

    name: str
    submitted: Sequence[str] = ()
    waits: Sequence[str] = ()
    granted: Sequence[str] = ()
    over: Sequence[str] = ()
    revoked: Sequence[str] = ()
    cancels: bool = False


OURS = Words(
    name="dlsched",
    waits=("job {job} waits for its start; Ctrl-C cancels it",),
    granted=("job {job} runs on {node}",),
)
SALLOC = Words(
    name="salloc",
    waits=(
        "Pending job allocation {job}",
        "job {job} queued and waiting for resources",
    ),
    granted=("Granted job allocation {job}", "Nodes {nodes} are ready for job"),
    over=("Relinquishing job allocation {job}",),
    revoked=("Job allocation {job} has been revoked.",),
)
SRUN = Words(
    name="srun",
    waits=("job {job} queued and waiting for resources",),
    cancels=True,
)


def shell() -> tuple[str, ...]:
    """The command of a job that names none: the user's shell."""
    return (os.environ.get("SHELL") or "/bin/sh",)


@dataclass(slots=True)
class _Spoken:
    """What is said of one job, each part once."""

    words: Words
    job: int
    said: set[str] = field(default_factory=set)

    def say(self, part: str, node: str = "", nodes: str = "") -> None:
        if part not in self.said:
            self.said.add(part)
            for line in getattr(self.words, part):
                say(self.words.name, line.format(job=self.job, node=node, nodes=nodes))


def run_interactive(
    cluster: Client,
    wanted: Submission,
    words: Words,
    *,
    needs_terminal: bool = True,
    submitted: Callable[[int], object] = lambda _job: None,
) -> int:
    """Submit a job, attach this program's terminal to it, and return the exit code of its command.

    Args:
        cluster: where to.
        wanted: the job.
        words: what is said of it.
        needs_terminal: without a terminal it is refused; else the command gets this program's
            streams through pipes.
        submitted: is told the job once it has an id.

    Raises:
        DlschedError: this program has no terminal and needs one, or the job is refused.
    """
    from dlsched.cli.jobs.submitted import print_warnings  # noqa: PLC0415
    from dlsched.client.attaching.attachment import AttachEnded  # noqa: PLC0415
    from dlsched.client.attaching.local_terminal import is_terminal, size_of  # noqa: PLC0415
    from dlsched.client.daemon_client import filter_of  # noqa: PLC0415
    from dlsched.client.errors import RequestRefused  # noqa: PLC0415
    from dlsched.client.job_ids import JobName  # noqa: PLC0415

    if is_terminal(0, 1):
        rows, columns = size_of(1)
    elif needs_terminal:
        raise BadInput("standard input and output are no terminal, which an interactive job needs")
    else:
        rows = columns = 0
    wanted.request.terminal = f"{rows}x{columns}"
    wanted.request.no_requeue = True
    reply = cluster.submit_all([wanted])
    print_warnings(reply, words.name)
    job = reply.jobs[0].job
    chosen = filter_of([JobName(job=job)])
    spoken = _Spoken(words, job)
    spoken.say("submitted")
    submitted(job)
    telling = replace(
        told(words.name),
        waits=lambda _status: spoken.say("waits"),
        attached=lambda node: spoken.say("granted", node, fold(cluster.show(chosen)[0].job.nodes)),
    )
    try:
        end = cluster.attachment(
            job, wait=True, told=telling, passes_interrupt=not words.cancels
        ).run()
    except RequestRefused as error:  # cancelled before its start, perhaps
        end = AttachEnded(why=str(error))
    except BaseException as error:
        is_interrupt = isinstance(error, KeyboardInterrupt)
        if "granted" not in spoken.said or words.cancels:
            done = cluster.act("cancel", chosen, reason="its client has left")
            if is_interrupt and done.done:
                say(words.name, f"job {job} is cancelled")
        if is_interrupt:
            return INTERRUPTED
        raise
    if end.detached or end.elsewhere:
        return exit_code(end, job, words.name)
    code = end.code
    if end.why:
        if not end.is_told:
            say(words.name, end.why)
        spoken.say("revoked")
    if code is None:  # it ended while no connection was there
        code = cluster.wait_for(job).exit_status
    spoken.say("over")
    return code
