"""`dlsched daemon` and `dlsched agent`: hand every word on to the service's own program."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Annotated

import typer

from dlsched.core.errors import DlschedError

__all__ = ["agent_command", "daemon_command"]

Words = Annotated[list[str] | None, typer.Argument(help="As `--help` after the verb tells.")]
# A distribution's module tells whether the extra is installed.
_EXTRAS = {"daemon": "sqlalchemy", "agent": "psutil"}


def daemon_command(words: Words = None) -> None:
    """Run the daemon in the foreground."""
    _hand_on("daemon", "dlsched.daemon.__main__", words or [])


def agent_command(words: Words = None) -> None:
    """Run a node's agent in the foreground."""
    _hand_on("agent", "dlsched.nodeagent.__main__", words or [])


def _hand_on(extra: str, module: str, words: list[str]) -> None:
    if importlib.util.find_spec(_EXTRAS[extra]) is None:
        raise DlschedError(f"the {extra} is not installed: pip install 'dlsched[{extra}]'")
    code = importlib.import_module(module).main(words)
    raise typer.Exit(int(code or 0))
