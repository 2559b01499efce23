"""What every verb that talks to the daemon shares: its options, its client, its ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.core.errors import BadInput

if TYPE_CHECKING:
    from dlsched.client.cluster import Acted, Client

__all__ = [
    "AsJson",
    "AsJsonLines",
    "ColourOption",
    "DaemonOption",
    "InsecureOption",
    "client",
    "report",
    "words_of",
]

DaemonOption = Annotated[
    str | None,
    typer.Option(
        "--daemon", metavar="ADDRESS", help="HOST:PORT or unix:/PATH. [default: DLSCHED_DAEMON]"
    ),
]
InsecureOption = Annotated[
    bool,
    typer.Option("--insecure-loopback", help="Development: no TLS, on this machine only."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]
AsJsonLines = Annotated[bool, typer.Option("--jsonl", help="One JSON object a line.")]
ColourOption = Annotated[
    str, typer.Option("--color", metavar="WHEN", help="auto, always or never.")
]


def client(daemon: str | None, insecure: bool) -> Client:
    """A client; gRPC is imported here and no sooner."""
    from dlsched.client.cluster import Client  # noqa: PLC0415  # wrong usage must cost less

    return Client(daemon, insecure_loopback=insecure)


def words_of(what: str, texts: Sequence[str] | None) -> list[str]:
    """Words given several times or joined by commas."""
    words = [word.strip() for text in texts or () for word in text.split(",")]
    if any(not word for word in words):
        raise BadInput(f"{what}: an empty name")
    return words


def report(acted: Acted, done: str, *, kind: str = "job", silent: bool = False) -> None:
    """Say what came of an action, one line a failure; exit 1 if there was any.

    Args:
        acted: what came of it.
        done: the past tense of what was done.
        kind: of what, in the singular.
        silent: no count.
    """
    from dlsched.cli.terminal import shown  # noqa: PLC0415

    for line in acted.lines:
        typer.echo(shown(line))
    if not silent:
        count = len(acted.done)
        typer.echo(f"{done} {count} {kind}{'' if count == 1 else 's'}")
    for subject, why in acted.failed:
        typer.echo(f"dlsched: {shown(subject)}: {shown(why)}", err=True)
    if acted.failed:
        raise typer.Exit(1)
