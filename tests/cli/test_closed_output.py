"""Standard output that is closed or full: a script learns what was submitted, and submits once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from shlex import join

import pytest

from dlsched.cli.output.closed_output import UNTOLD
from dlsched.rpc.v1 import control_pb2 as pb

PLACES = {">&-": "Bad file descriptor", ">/dev/full": "No space left on device"}


def run(words: list[str], place: str) -> tuple[int, str]:
    """Run with a shell's redirection; return the exit code and stderr."""
    line = f"exec {join([sys.executable, '-m', *words])} {place}"
    done = subprocess.run(
        ["sh", "-c", line], stderr=subprocess.PIPE, text=True, timeout=120, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("words", "program"),
    [
        (["dlsched", "submit", "--", "true"], "dlsched"),
        (["dlsched", "submit", "--parsable", "--wrap", "true"], "dlsched"),
        (["dlsched", "submit", "--json", "--wrap", "true"], "dlsched"),
        (["dlsched.cli.slurm", "sbatch", "--wrap", "true"], "sbatch"),
    ],
)
def test_the_id_of_a_new_job_is_told_on_the_other_stream(
    control, place: str, words: list[str], program: str
) -> None:
    control.answers["Submit"] = pb.SubmitReply(jobs=[pb.Submitted(job=7)])
    code, err = run(words, place)
    assert code == UNTOLD
    assert err == f"{program}: standard output: {PLACES[place]}; submitted: 7\n"
    assert [name for name, _ in control.asked] == ["Submit"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("words", [["dlsched", "queue"], ["dlsched.cli.slurm", "squeue"]])
def test_a_list_that_nothing_takes_is_no_defect(control, place: str, words: list[str]) -> None:
    control.answers["Queue"] = [pb.QueuePage(summary=pb.QueueSummary())]
    code, err = run(words, place)
    assert code == UNTOLD
    assert err.endswith(f"standard output: {PLACES[place]}\n")
    assert "defect" not in err
    assert len(err.splitlines()) == 1


def test_a_reader_that_has_ended_still_ends_a_command_quietly(control, tmp_path: Path) -> None:
    control.answers["Queue"] = [pb.QueuePage(summary=pb.QueueSummary())]
    code, err = run(["dlsched", "queue"], f"| true; echo $? > {tmp_path}/shell")
    assert (code, err) == (0, "")
