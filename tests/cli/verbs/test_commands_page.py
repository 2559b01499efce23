"""The page of commands has every verb of the daily set and every option of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer.main

from dlsched.cli.main import app
from dlsched.cli.verbs import VERBS
from dlsched.client.submission.option_table import OPTIONS

DOCS = Path(__file__).parents[3] / "docs"
ELSEWHERE = {"replay", "trace", "policy", "admin", "daemon", "agent", "run", "quickstart"}
DAILY = [verb for verb in VERBS if verb not in ELSEWHERE]


@pytest.mark.parametrize("verb", DAILY)
def test_every_option_is_described(verb: str) -> None:
    page = (DOCS / "commands.md").read_text()
    top: Any = typer.main.get_command(app)
    command = top.get_command(None, verb)
    words = {word for param in command.params for word in param.opts if word.startswith("-")}
    assert f"`{verb}`" in page or f"### {verb}" in page or f" {verb}" in page
    assert not {word for word in words - {"--help"} if f"`{word}`" not in page}


def test_the_table_of_directives_is_that_of_the_code() -> None:
    page = (DOCS / "from-slurm.md").read_text()
    for option in OPTIONS:
        row = ", ".join(f"`{word}`" for word in option.words)
        assert (f"| {row} |" in page) == option.slurm
