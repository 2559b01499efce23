"""`dlsched queue`: jobs that wait, in the policy's order, then jobs that run."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlsched.cli.connect import (
    AsJson,
    AsJsonLines,
    ColourOption,
    DaemonOption,
    InsecureOption,
    client,
)
from dlsched.core.errors import BadInput

if TYPE_CHECKING:
    from dlsched.cli.terminal import Terminal
    from dlsched.client.views import Queue

__all__ = ["queue_command", "queue_lines", "watch"]

SCHEMA = "dlsched.queue/1"
_JSON = (
    *("job_id", "array_job_id", "array_task_id", "name", "user", "account", "vc", "partition"),
    *("priority_class", "state", "reason", "gpus", "gang", "gpu_types", "nodes", "submitted_at"),
    *("started_at", "run_s", "run", "starts", "preemptions", "time_limit_s", "begin_at"),
    *("deadline_at", "priority", "held", "position", "predicted_start_at", "predicted_basis"),
    "predicted_end_at",
)


def queue_command(
    jobs: Annotated[
        list[str] | None, typer.Option("--job", "-j", metavar="ID", help="These: 7, 7_3, 7_[2-5].")
    ] = None,
    users: Annotated[
        list[str] | None, typer.Option("--user", "-u", metavar="NAME", help="Of these users.")
    ] = None,
    all_users: Annotated[bool, typer.Option("--all", "-a", help="Of everybody.")] = False,
    me: Annotated[bool, typer.Option("--me", help="One's own (the default).")] = False,
    partitions: Annotated[
        list[str] | None, typer.Option("--partition", "-p", metavar="NAME", help="In these.")
    ] = None,
    vcs: Annotated[
        list[str] | None, typer.Option("--account", "--vc", "-A", metavar="NAME", help="Of these.")
    ] = None,
    states: Annotated[
        list[str] | None,
        typer.Option("--state", "-t", metavar="STATE", help="PENDING or PD, RUNNING or R, …"),
    ] = None,
    nodes: Annotated[
        list[str] | None, typer.Option("--nodelist", "-w", metavar="HOSTS", help="On these.")
    ] = None,
    names: Annotated[
        list[str] | None, typer.Option("--name", "-n", metavar="NAME", help="Called so.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--format", "-o", metavar="NAME,…", help="Columns by name.")
    ] = None,
    about_columns: Annotated[
        str | None, typer.Option("--columns", metavar="help", help="List the columns and exit.")
    ] = None,
    unfold: Annotated[bool, typer.Option("--array", "-r", help="A line an array element.")] = False,
    start: Annotated[
        bool, typer.Option("--start", help="Predicted starts, with what they rest on.")
    ] = False,
    every: Annotated[
        float | None,
        typer.Option("--watch", "-i", metavar="S", min=0.2, help="Again every S seconds."),
    ] = None,
    no_header: Annotated[bool, typer.Option("--noheader", "-h", help="No titles.")] = False,
    summary: Annotated[
        bool | None,
        typer.Option("--summary/--no-summary", help="The last line. [default: on a terminal]"),
    ] = None,
    as_json: AsJson = False,
    as_lines: AsJsonLines = False,
    colour: ColourOption = "auto",
    daemon: DaemonOption = None,
    insecure: InsecureOption = False,
) -> None:
    """List jobs that wait or run: one's own, and a summary of the others."""
    from dlsched.cli.job_columns import COLUMNS, QUEUE  # noqa: PLC0415  # `--help` needs neither
    from dlsched.cli.job_filter import job_filter  # noqa: PLC0415
    from dlsched.cli.listing import chosen_columns, described  # noqa: PLC0415
    from dlsched.cli.terminal import terminal  # noqa: PLC0415

    if about_columns is not None:
        typer.echo("\n".join(described(COLUMNS)))
        return
    if columns is not None and (as_json or as_lines):
        raise BadInput("-o: JSON has all fields; leave it out")
    if as_json and as_lines:
        raise BadInput("--json and --jsonl: only one of them")
    if me and (all_users or users):
        raise BadInput("--me: contradicts --all and --user")
    chosen = chosen_columns(COLUMNS, columns or QUEUE)
    out = terminal(colour)
    wanted = job_filter(
        jobs,
        users=users,
        partitions=partitions,
        vcs=vcs,
        states=states,
        nodes=nodes,
        called=names,
        all_users=all_users,
    )
    footer = out.is_tty if summary is None else summary

    def shown_once(cluster: Any) -> Iterator[str]:
        found = cluster.queue(wanted, predict=start, unfold=unfold)
        yield from queue_lines(
            found, chosen, out, header=not no_header, footer=footer, predicted=start
        )

    with client(daemon, insecure) as cluster:
        if as_json or as_lines:
            _print_json(cluster.queue(wanted, predict=start, unfold=True), lines=as_lines)
        elif every is None:
            sys.stdout.write("".join(f"{line}\n" for line in shown_once(cluster)))
        else:
            watch(lambda: list(shown_once(cluster)), every, out)


def queue_lines(
    found: Queue, columns: Any, out: Terminal, *, header: bool, footer: bool, predicted: bool
) -> Iterator[str]:
    """The listing, and its last line if wanted."""
    from dlsched.cli.job_columns import rows_of  # noqa: PLC0415
    from dlsched.cli.listing import listing  # noqa: PLC0415

    rows = rows_of(found.rows(), predicted=predicted)
    yield from listing(columns, rows, out, header=header)
    if footer:
        yield out.styled(_summary(found), "faint")


def _summary(found: Queue) -> str:
    told = found.summary
    text = (
        f"{told.running} running ({told.running_gpus} GPUs), "
        f"{told.pending} pending ({told.pending_gpus} GPUs); "
        f"{told.busy_gpus} of {told.gpus} GPUs busy"
    )
    if told.policy is not None:
        text += f"; policy {told.policy}"
        if told.round is not None and told.round_s is not None:
            text += f" (round {told.round}, {told.round_s * 1000:.0f} ms)"
    if told.others:
        text += f"; {told.others} of other users (-a lists them)"
    return text


def _print_json(found: Queue, *, lines: bool) -> None:
    from dlsched.cli.json_output import object_of, print_json, print_json_lines  # noqa: PLC0415
    from dlsched.client.views import Job  # noqa: PLC0415

    # elements come one by one: a daemon that folds all the same is unfolded by nobody
    jobs = (object_of(row if isinstance(row, Job) else row.first, _JSON) for row in found.rows())
    if lines:
        print_json_lines(jobs)
    else:
        print_json(SCHEMA, jobs=jobs, summary=object_of(found.summary))


def watch(lines: Any, every_s: float, out: Terminal) -> None:
    """Again and again until Ctrl-C; on a terminal in place, and the screen comes back after."""
    if not out.is_tty:
        _watch_pipe(lines, every_s)
        return
    import shutil  # noqa: PLC0415

    with _ended_by_ctrl_c():
        sys.stdout.write("\x1b[?1049h\x1b[?25l")
        try:
            while True:
                height = shutil.get_terminal_size().lines
                kept = [*lines(), f"every {every_s:g} s; Ctrl-C ends"][: max(1, height)]
                sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\r\n" for line in kept[:-1]))
                sys.stdout.write(kept[-1] + "\x1b[K\x1b[J")
                sys.stdout.flush()
                time.sleep(every_s)
        finally:
            sys.stdout.write("\x1b[?25h\x1b[?1049l")
            sys.stdout.flush()


def _watch_pipe(lines: Any, every_s: float) -> None:
    with _ended_by_ctrl_c():
        while True:
            sys.stdout.write("".join(f"{line}\n" for line in lines()) + "\n")
            sys.stdout.flush()
            time.sleep(every_s)


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Ctrl-C is how this is meant to end, whatever it interrupts and becomes there."""
    interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except (Exception, KeyboardInterrupt):
        if interrupted:
            raise typer.Exit(0) from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
