"""A user lets other jobs go first, and never improves the place of an own job."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dlsched.torture.local_cluster import LocalCluster

pytestmark = pytest.mark.slow

CLAIM = "import os; os.getuid = lambda: 1; from dlsched.cli.main import run; run()"
REFUSED = "only an operator may raise a priority above 0; a lower one lets other jobs go first"


def as_user(cluster: LocalCluster, *words: str) -> tuple[int, str, str]:
    """A command of a user that is no operator: code, output, errors."""
    done = subprocess.run(
        [sys.executable, "-c", CLAIM, *words],
        env=cluster.environment,
        cwd=cluster.folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def held_job(cluster: LocalCluster, *words: str) -> int:
    """A user's new job, which does not start."""
    code, out, _ = as_user(cluster, "submit", "--hold", "--parsable", *words, "--", "true")
    assert code == 0
    return int(out)


def test_a_priority_above_the_default_is_refused_however_it_is_asked_for(
    shared: LocalCluster,
) -> None:
    script = shared.folder / "first.sh"
    script.write_text("#!/bin/sh\n#DLSCHED --priority 1\ntrue\n")
    nice = shared.folder / "nice.sh"
    nice.write_text("#!/bin/sh\n#SBATCH --nice=-7\ntrue\n")
    rows = shared.folder / "jobs.csv"
    rows.write_text("command,priority\ntrue,0\ntrue,2\n")
    for words, line in (
        (["--priority", "0.5", "--", "true"], "priority 0.5: "),
        (["--nice=-3", "--array", "0-3", "--", "true"], "priority 3: "),
        ([str(script)], "priority 1: "),
        ([str(nice)], "priority 7: "),
        (["--from", str(rows)], "job 2 of 2: priority 2: "),
    ):
        code, out, error = as_user(shared, "submit", "--hold", *words)
        assert (code, out, error) == (1, "", f"dlsched: {line}{REFUSED}\n")
    code, out, _ = as_user(shared, "queue", "--json")
    assert code == 0
    assert '"priority": 2' not in out


def test_an_update_lowers_and_returns_to_the_default_but_never_above(shared: LocalCluster) -> None:
    job = held_job(shared, "--nice", "5")
    code, out, _ = as_user(shared, "update", str(job), "--priority", "-9")
    assert code == 0
    assert "priority -5 -> -9" in out
    assert as_user(shared, "update", str(job), "--priority", "0")[0] == 0
    code, _, error = as_user(shared, "update", str(job), "--priority", "1")
    assert code == 1
    assert f"priority 1: {REFUSED}" in error
    assert "priority 0 -> 6" in shared.cli("update", str(job), "--priority", "6")  # an operator
    assert as_user(shared, "update", str(job), "--priority", "7")[0] == 1
    assert as_user(shared, "update", str(job), "--priority", "4")[0] == 0
    assert shared.run("cancel", str(job)).returncode == 0


@pytest.mark.parametrize("words", [["--priority", "3"], ["--nice=-3"]])
def test_an_operator_may_submit_with_a_higher_priority(
    shared: LocalCluster, words: list[str]
) -> None:
    done = shared.run("submit", "--hold", "--parsable", *words, "--", "true")
    assert done.returncode == 0, done.stderr
    number = int(done.stdout)
    assert shared.job(number).priority == 3
    shared.cli("cancel", str(number))
