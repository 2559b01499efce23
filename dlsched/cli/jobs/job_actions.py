"""`cancel`, `hold`, `release`, `requeue`, `suspend`, `resume`: actions on jobs.

Each does what it can, prints one line for each failure, and exits with 1 after a failure.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

from dlsched.cli.daemon_options import DaemonOptions, report
from dlsched.cli.jobs.job_filter import FilterOptions, IdsArgument, MaybeIds, ids_of, job_filter
from dlsched.cli.option_groups import option
from dlsched.cli.own_stop import outlive_own_stop
from dlsched.core.errors import BadInput, plural

ReasonOption = Annotated[str, option("--reason TEXT", "Kept with the job.")]


def cancel_command(
    jobs: MaybeIds = None,
    *,
    options: FilterOptions,
    me: Annotated[bool, option("--me", "All your jobs.")] = False,
    states: Annotated[list[str] | None, option("--state -t STATE", "In this state.")] = None,
    signal: Annotated[
        str | None, option("--signal -s SIG", "Send this signal; do not end the jobs.")
    ] = None,
    yes: Annotated[bool, option("--yes -y", "Do not ask.")] = False,
    quiet: Annotated[bool, option("--quiet -Q", "Print no count.")] = False,
    reason: ReasonOption = "",
    daemon: DaemonOptions,
) -> None:
    """End jobs by id, or your own live jobs by filter; --signal only sends a signal.

    On a terminal, a filter that matches several jobs asks first.
    """
    from dlsched.client.submission.texts import check_text  # noqa: PLC0415

    if not jobs and options.is_empty and not states and not me:
        raise BadInput("give job ids, a filter, or --me for all of your own jobs")
    number = 0
    if signal is not None:
        from dlsched.client.submission.warning_signals import signal_number  # noqa: PLC0415

        number = signal_number("--signal", signal)
    check_text("--reason", reason, empty=True)
    chosen = job_filter(jobs, options, states=states)
    action = "signal" if number else "cancel"
    done = "signalled" if number else "cancelled"
    outlive_own_stop()
    with daemon.client() as cluster:
        if not jobs and not yes and sys.stdin.isatty() and sys.stdout.isatty():
            count = len(cluster.act(action, chosen, signal=number, only_count=True).done)
            verb = "signal" if number else "cancel"
            if count > 1:
                _ask(f"{verb} {count} jobs?")
        told = quiet or not sys.stderr.isatty()
        acted = cluster.act(
            action, chosen, signal=number, reason=reason,
            on_part=(lambda _: None) if told else partial(_tell, done),
        )  # fmt: skip
        report(acted, done, silent=quiet)


def hold_command(jobs: IdsArgument, reason: ReasonOption = "", *, daemon: DaemonOptions) -> None:
    """Keep pending jobs from starting until `dlsched release`."""
    _act("hold", "held", jobs, reason, daemon)


def release_command(jobs: IdsArgument, *, daemon: DaemonOptions) -> None:
    """Let held jobs start."""
    _act("release", "released", jobs, "", daemon)


def requeue_command(
    jobs: IdsArgument,
    reason: ReasonOption = "",
    fresh: Annotated[bool, option("--fresh", "Ended jobs begin without a checkpoint.")] = False,
    *,
    daemon: DaemonOptions,
) -> None:
    """Queue jobs again: running ones after their grace time, ended ones from their checkpoint."""
    _act("requeue", "requeued", jobs, reason, daemon, fresh=fresh)


def suspend_command(jobs: IdsArgument, reason: ReasonOption = "", *, daemon: DaemonOptions) -> None:
    """Freeze running jobs on their nodes until `dlsched resume`."""
    _act("suspend", "suspended", jobs, reason, daemon)


def resume_command(jobs: IdsArgument, *, daemon: DaemonOptions) -> None:
    """Let suspended jobs continue."""
    _act("resume", "resumed", jobs, "", daemon)


def _act(
    action: str,
    done: str,
    jobs: list[str],
    reason: str,
    daemon: DaemonOptions,
    *,
    fresh: bool = False,
) -> None:
    """Carry out one of the actions.

    Args:
        action: as the client calls it.
        done: what is printed of the jobs.
        jobs: ids as typed.
        reason: kept with the jobs.
        daemon: where it is.
        fresh: for `requeue`.
    """
    from dlsched.client.submission.texts import check_text  # noqa: PLC0415

    check_text("--reason", reason, empty=True)
    ids_of(jobs)
    chosen = job_filter(jobs)
    outlive_own_stop()
    with daemon.client() as cluster:
        report(cluster.act(action, chosen, reason=reason, fresh=fresh), done)


def _tell(done: str, count: int) -> None:
    """Tell a person who waits how far it has come, in one line that the next one replaces."""
    print(f"{done} {plural(count, 'job')} so far", end="\r", file=sys.stderr, flush=True)


def _ask(question: str) -> None:
    """Ask on the terminal whether to go on; any answer but yes ends the program."""
    import typer  # noqa: PLC0415  # only this needs it

    typer.confirm(question, abort=True)
