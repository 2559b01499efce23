"""Gandiva on a trace in which a fill starts a packed job on other GPUs than its partner has."""

import subprocess
import sys
from pathlib import Path

import pytest

WORKLOADS = Path(__file__).parents[3] / "examples" / "workloads.csv"
CLUSTER = "4x8:v100@32"


def dlsched(*words: str, folder: Path) -> str:
    """Type a command; returns what it prints."""
    ran = subprocess.run(
        [sys.executable, "-m", "dlsched", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.slow
def test_a_packed_job_that_a_fill_starts_alone_is_packed_no_more(tmp_path: Path) -> None:
    made = ["--jobs", "400", "--seed", "7", "--load", "1.4", "--workloads", str(WORKLOADS)]
    dlsched("trace", "generate", "-o", "jobs.csv", "--cluster", CLUSTER, *made, folder=tmp_path)
    how = ["--cluster", CLUSTER, "--interference", "stages", "--policy", "gandiva"]
    shown = dlsched("replay", "jobs.csv", *how, folder=tmp_path)
    row = next(line for line in shown.splitlines() if line.startswith("gandiva "))
    assert row.split()[1:4] == ["400", "0", "0"], "all are done, none refused or left"
