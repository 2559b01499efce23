"""The page of commands has every verb of the daily set and every option of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from dlsched.cli.command_table import COMMANDS
from dlsched.cli.typer_app import app
from dlsched.jobs.fields import OPTIONS

DOCS = Path(__file__).parents[2] / "docs"
ELSEWHERE = {
    "replay",
    "flows",
    "short-tasks",
    "dags",
    "plan",
    "slots",
    "reproduce",
    "leaderboard",
    "train",
    "trace",
    "policy",
    "admin",
    "daemon",
    "agent",
    "run",
    "quickstart",
}
IN_TEXT = {"hold", "release", "requeue", "suspend", "resume"}  # they have no table
DAILY = [verb for verb in COMMANDS if verb not in ELSEWHERE]


SHARED = {
    "--daemon",
    "--daemon-wait",
    "--insecure-loopback",
    "--json",
    "--jsonl",
    "--color",
    "--help",
}


def row_of(option: Any) -> str:
    words = ", ".join(f"`{word}`" for word in [*option.opts, *option.secondary_opts])
    metavar = f" `{option.metavar}`" if option.metavar else ""
    told = (option.help or "").replace("|", "\\|")
    return f"| {words}{metavar} | {told} |"


@pytest.mark.parametrize("command", DAILY)
def test_every_option_is_described_as_in_its_help(command: str) -> None:
    page = (DOCS / "commands.md").read_text()
    top: Any = typer.main.get_command(app)
    assert re.search(rf"^### (\w+, )*{command}\b", page, re.M)
    options = [
        option
        for option in top.get_command(None, command).params
        if option.param_type_name == "option"
    ]
    assert not {word for option in options for word in option.opts if f"`{word}`" not in page}
    if command in IN_TEXT:
        return
    rows = [row_of(option) for option in options if not SHARED & set(option.opts)]
    assert not [row for row in rows if row not in page]


def test_the_table_of_directives_is_that_of_the_code() -> None:
    page = (DOCS / "from-slurm.md").read_text()
    for option in OPTIONS:
        row = ", ".join(f"`{word}`" for word in option.words)
        assert (f"| {row} |" in page) == option.slurm
