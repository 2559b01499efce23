"""What every command that talks to the daemon shares: its options, its client, its report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlsched.cli.option_groups import typed
from dlsched.core.errors import BadInput, plural
from dlsched.record import Record

if TYPE_CHECKING:
    from dlsched.client.daemon_client import Acted, Client


class DaemonOptions(Record, kw_only=False):
    """The options that say where the daemon is."""

    daemon: str | None = typed(
        "--daemon ADDRESS", "HOST:PORT or unix:/PATH; several: A,B. [default: DLSCHED_DAEMON]"
    )
    insecure: bool = typed(
        "--insecure-loopback", "For development: no TLS, only on this machine.", default=False
    )
    wait_for_daemon: str | None = typed(
        "--daemon-wait TIME", "Wait so long for a daemon that is away; 0: not. [default: 20s]"
    )

    def client(self) -> Client:
        """Return a client; gRPC is imported only here, so that wrong usage is answered quickly."""
        from dlsched.client.daemon_client import Client  # noqa: PLC0415

        return Client(
            self.daemon,
            insecure_loopback=self.insecure,
            wait=self.wait_for_daemon,
            on_wait=lambda line: print(f"dlsched: {line}", file=sys.stderr),
        )


def words_of(what: str, texts: Sequence[str] | None) -> list[str]:
    """Return words that were given several times or joined by commas.

    Raises:
        BadInput: a word is empty; `what` names the option.
    """
    words = [word.strip() for text in texts or () for word in text.split(",")]
    if any(not word for word in words):
        raise BadInput(f"{what}: an empty name")
    return words


def report(acted: Acted, done: str, *, kind: str = "job", silent: bool = False) -> None:
    """Print what an action did, one line for each failure; exit with 1 after a failure.

    Args:
        acted: the result of the action.
        done: the past tense of the action.
        kind: the things that it was done to, in the singular.
        silent: do not print the count.
    """
    from dlsched.cli.output.terminal import shown  # noqa: PLC0415

    for line in acted.lines:
        print(shown(line))
    if not silent:
        print(f"{done} {plural(len(acted.done), kind)}")
    sys.stdout.flush()  # before what follows on the other stream
    for subject, why in acted.failed:
        print(f"dlsched: {shown(subject)}: {shown(why)}", file=sys.stderr)
    if acted.failed:
        raise SystemExit(1)
