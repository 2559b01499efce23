"""Words that are not known: one line, exit code 2, and the word that was probably meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dlsched.cli.command_table import ADMIN_COMMANDS, COMMANDS, SLURM


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("cancle 3", "no such command 'cancle'; did you mean 'cancel'?"),
        ("admin tokn", "no such command 'tokn'; did you mean 'token'?"),
        ("trace imprt x", "no such command 'imprt'. Did you mean 'import'?"),
        ("zzz", "no such command 'zzz'; see dlsched --help"),
        ("squeue -a", "no such command 'squeue'; here it is dlsched queue"),
        ("queue --stat R", "no such option: --stat (Possible options: --start, --state, --watch)"),
        ("policy show srft", "policy 'srft' is not known; known: fifo, "),
        ("replay TRACE --policy srft", "policy 'srft' is not known; known: fifo, "),
        ("replay TRACE -o semantics=blx", "semantics 'blx' is not known; known: "),
    ],
)  # fmt: skip
def test_a_misspelt_word_is_one_line_with_the_word_meant(dlsched, trace, words, line):
    cluster = ("--cluster", "1x4") if words.startswith("replay") else ()
    called = dlsched(*(trace if word == "TRACE" else word for word in words.split()), *cluster)
    assert (called.code, called.out, called.err.count("\n")) == (2, "", 1)
    assert called.err.startswith(f"dlsched: {line}")
    if "known: " in line:
        meant = "blox" if "blx" in words else "srtf"
        assert called.err.endswith(f" (did you mean {meant!r}?)\n")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("submit --name -- true", "--name"),
        ("submit --hold --name -- true", "--name"),
        ("submit -HJ -- true", "-J"),
        ("submit --interactive --gpus -- true", "--gpus"),
        ("queue --user", "--user"),
        ("queue -au", "-u"),
        ("cancel 7 --reason --", "--reason"),
        ("replay jobs.csv --cluster --", "--cluster"),
        ("admin shadow set fifo --placement -- x", "--placement"),
        ("trace generate -o", "-o"),
    ],
)
def test_an_option_without_its_value_is_named(dlsched, words, option):
    called = dlsched(*words.split())
    assert (called.code, called.out) == (2, "")
    assert called.err == f"dlsched: {option}: needs a value\n"


def test_every_command_of_slurm_is_told_with_commands_that_exist():
    for theirs, ours in SLURM.items():
        first, *rest = re.findall(r"[a-z][a-z-]+", ours.split(" JOB")[0])
        assert first in COMMANDS, theirs
        known = ADMIN_COMMANDS if first == "admin" else COMMANDS
        assert {word for word in rest if word != "or"} <= set(known), theirs


def test_the_page_for_slurm_users_names_the_same_commands():
    page = (Path(__file__).parents[2] / "docs/from-slurm.md").read_text()
    told = {name for name in re.findall(r"`(s[a-z]+)", page) if name in SLURM}
    assert told == set(SLURM)
