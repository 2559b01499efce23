"""What a shell offers for a word that is being typed: live jobs, nodes, policies.

It asks the daemon that the line names, for a moment only; without an answer it offers nothing.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from dlsched.client.daemon_client import Client

PATIENCE_S = 2.0
Offered = list[tuple[str, str]]  # words, each with what the shell says of it


def live_jobs(ctx: typer.Context, incomplete: str) -> Offered:
    """The caller's jobs that have not ended, and their arrays."""

    def ask(cluster: Client) -> Iterator[tuple[str, str]]:
        from dlsched.client.job_records import Job  # noqa: PLC0415

        for row in cluster.queue().rows():
            job = row if isinstance(row, Job) else row.first
            if job.array_job_id is not None:
                yield str(job.array_job_id), f"{job.name}, an array"
            if isinstance(row, Job):
                yield job.shown_id, f"{job.name}, {job.state}"

    return _offered(ctx, incomplete, ask)


def nodes(ctx: typer.Context, incomplete: str) -> Offered:
    """The nodes of the cluster."""
    return _offered(
        ctx, incomplete, lambda cluster: ((node.name, node.state) for node in cluster.nodes())
    )


def policies(incomplete: str) -> list[str]:
    """The scheduling policies, for the last of several names with commas."""
    from dlsched.policies.registry import names  # noqa: PLC0415

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names("scheduling") if name.startswith(last)]


def _offered(
    ctx: typer.Context, incomplete: str, ask: Callable[[Client], Iterator[tuple[str, str]]]
) -> Offered:
    """Ask the daemon that the line names; nothing where it does not answer in time."""
    from dlsched.client.daemon_client import Client  # noqa: PLC0415

    daemon, insecure = ctx.params.get("daemon"), bool(ctx.params.get("insecure"))
    with contextlib.suppress(Exception), _for_a_moment():
        with Client(daemon, insecure_loopback=insecure, wait="0") as cluster:
            found = dict(ask(cluster))
        return [(word, said) for word, said in found.items() if word.startswith(incomplete)]
    return []


@contextlib.contextmanager
def _for_a_moment() -> Iterator[None]:
    """End what takes too long with a TimeoutError."""

    def end(number: int, frame: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
