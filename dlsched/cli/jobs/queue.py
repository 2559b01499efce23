"""`dlsched queue`: jobs that wait, in the policy's order, then jobs that run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.jobs.job_filter import FilterOptions, job_filter
from dlsched.cli.option_groups import option
from dlsched.cli.output.output_options import ListingOptions
from dlsched.core.errors import BadInput, plural

if TYPE_CHECKING:
    from dlsched.cli.output.terminal import Terminal
    from dlsched.client.daemon_client import Client
    from dlsched.client.job_records import Queue

SCHEMA = "dlsched.queue/1"
_JSON = (
    *("job_id", "array_job_id", "array_task_id", "name", "user", "account", "vc", "partition"),
    *("priority_class", "state", "reason", "gpus", "gang", "gpu_types", "nodes", "submitted_at"),
    *("started_at", "run_s", "run", "starts", "preemptions", "time_limit_s", "begin_at"),
    *("deadline_at", "priority", "held", "position", "predicted_start_at", "predicted_basis"),
    *("predicted_end_at", "progress", "loss", "steps_s", "samples_s", "gpu_memory_bytes"),
    *("gpu_utilization", "gpu_idle_s", "report_age_s", "not_finite"),
)
_INTERVALS = tuple(
    f"predicted_{end}_{part}_at" for end in ("start", "end") for part in ("p10", "p90")
)


def queue_command(
    *,
    jobs: Annotated[list[str] | None, option("--job -j ID", "Only these: 7, 7_3, 7_[2-5].")] = None,
    options: FilterOptions,
    all_users: Annotated[bool, option("--all -a", "Of all users.")] = False,
    me: Annotated[bool, option("--me", "Your own (the default).")] = False,
    states: Annotated[
        list[str] | None, option("--state -t STATE", "PENDING or PD, RUNNING or R, …")
    ] = None,
    idle: Annotated[
        str | None, option("--idle TIME", "Running jobs whose GPUs do next to nothing for so long.")
    ] = None,
    unfold: Annotated[bool, option("--array -r", "A line for each array element.")] = False,
    start: Annotated[
        bool, option("--start", "Predicted starts, and what they are based on.")
    ] = False,
    every: Annotated[
        float | None, option("--watch -i S", "Repeat every S seconds.", min=0.2)
    ] = None,
    summary: Annotated[
        bool | None, option("--summary/--no-summary", "The last line. [default: on a terminal]")
    ] = None,
    output: ListingOptions,
    daemon: DaemonOptions,
) -> None:
    """List jobs that wait or run: your own, and a summary of the others."""
    from dlsched.cli.jobs.job_columns import COLUMNS, IDLE, QUEUE, lines_of  # noqa: PLC0415
    from dlsched.cli.output.listing import chosen_columns, described, lines  # noqa: PLC0415
    from dlsched.cli.output.terminal import shown, terminal  # noqa: PLC0415

    if output.about_columns is not None:
        print("\n".join(described(COLUMNS)))
        return
    output.check()
    if me and (all_users or options.users):
        raise BadInput("--me: contradicts --all and --user")
    least = _idle_s(idle)
    chosen = chosen_columns(COLUMNS, output.columns or (QUEUE if least is None else IDLE))
    out = terminal(output.colour)
    wanted = job_filter(jobs, options, states=states, all_users=all_users)
    footer = out.is_tty if summary is None else summary

    def shown_once(cluster: Client) -> Iterator[str]:
        found = cluster.queue(wanted, predict=start, unfold=unfold, brief=True).idle_for(least)
        if found.summary.policy_failure is not None:
            failing = f"policy {found.summary.policy}: {found.summary.policy_failure}"
            print(f"dlsched: nothing starts: {shown(failing)}", file=sys.stderr)
        of_rows = lines_of(found, predicted=start)
        yield from lines(chosen, of_rows, found.lines.count, out, header=not output.no_header)
        if footer:
            for line in out.wrapped(summary_line(found), "  "):
                yield out.styled(line, "faint")

    with daemon.client() as cluster:
        if output.is_json:
            found = cluster.queue(wanted, predict=start, unfold=True, brief=True).idle_for(least)
            _print_json(found, _JSON + _INTERVALS * start, lines=output.as_lines)
        elif every is None:
            sys.stdout.write("".join(f"{line}\n" for line in shown_once(cluster)))
        else:
            watch(lambda: list(shown_once(cluster)), every, out)


def _idle_s(text: str | None) -> float | None:
    """The seconds of `--idle`; None where it is not given."""
    if text is None:
        return None
    from dlsched.client.submission.durations import duration  # noqa: PLC0415

    return duration("--idle", text, bare="minutes")


def summary_line(found: Queue) -> str:
    """Return the last line of a listing: jobs, GPUs and policy of the whole cluster."""
    total = found.summary
    text = (
        f"{total.running} running ({plural(total.running_gpus, 'GPU')}), "
        f"{total.pending} pending ({plural(total.pending_gpus, 'GPU')}); "
        f"{total.busy_gpus} of {plural(total.gpus, 'GPU')} busy"
    )
    if total.policy is not None:
        text += f"; policy {total.policy}"
        if total.round is not None and total.round_s is not None:
            text += f" (round {total.round}, {total.round_s * 1000:.0f} ms)"
    if total.others:
        text += f"; {total.others} of other users (-a lists them)"
    return text


def _print_json(found: Queue, names: tuple[str, ...], *, lines: bool) -> None:
    from dlsched.cli.output.json_output import (  # noqa: PLC0415
        ByColumn,
        object_of,
        print_json,
        print_json_lines,
    )

    # elements come unfolded; if a daemon folds them all the same, the first stands for them
    jobs = ByColumn(found.lines.count, {name: found.lines.column(name) for name in names})
    if lines:
        print_json_lines(jobs)
    else:
        print_json(SCHEMA, jobs=jobs, summary=object_of(found.summary))


def watch(lines: Callable[[], Iterable[str]], every_s: float, out: Terminal) -> None:
    """Print lines repeatedly until Ctrl-C; a terminal shows them in place and is restored."""
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


def _watch_pipe(lines: Callable[[], Iterable[str]], every_s: float) -> None:
    with _ended_by_ctrl_c():
        while True:
            sys.stdout.write("".join(f"{line}\n" for line in lines()) + "\n")
            sys.stdout.flush()
            time.sleep(every_s)


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Exit with 0 at Ctrl-C, whatever exception it causes in the code that it interrupts."""
    import signal  # noqa: PLC0415  # only this needs it

    interrupted = False

    def interrupt(number: int, frame: object) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except (Exception, KeyboardInterrupt):
        if interrupted:
            raise SystemExit(0) from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
