"""Programs from PyPI that speak to Slurm, unchanged, against a running cluster.

`DLSCHED_CLIENTS` names a virtual environment with what `requirements.txt` lists; without it these
tests are skipped.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster
from tests.live.login_node import LoginNode

pytestmark = pytest.mark.slow
PROGRAMS = Path(__file__).parent / "programs"
PLACE = os.environ.get("DLSCHED_CLIENTS", "")
CASES = {
    "submitit": (
        "python submitit_jobs.txt",
        [
            "job 5",
            "array [11, 22]",
            "gang [(0, 4, 0), (1, 4, 0), (2, 4, 1), (3, 4, 1)]",
            "requeued 42",
        ],
    ),
    "dask-jobqueue": ("python dask_workers.txt", ["sum 6"]),
    "simple_slurm": ("python simple_job.txt", ["task 0", "task 1"]),
    "psij": ("python psij_job.txt", ["COMPLETED True"]),
    "parsl": ("python parsl_apps.txt", ["squares [0, 1, 4, 9]"]),
    "executorlib": (
        "sbatch -W -n2 --gpus=1 -o out --wrap 'python executor_functions.txt'; cat out",
        ["sum 7"],
    ),
    "snakemake": (
        "snakemake --executor slurm -j2 --slurm-init-seconds-before-status-checks 1"
        " --seconds-between-status-checks 1 >&2; cat done.txt",
        ["1 gpu", "2 gpu"],
    ),
    "reframe": (
        "cp reframe_config.txt site.py; cp reframe_check.txt check.py;"
        "reframe -C site.py -c check.py -r",
        ["Ran 1/1 test case(s) from 1 check(s) (0 failure(s)"],
    ),
    "torchx": (
        "touch .torchxconfig; id=$(torchx run -s slurm"
        " -cfg partition=gpu,time=5,job_dir=$PWD/of_torchx utils.echo --msg hello | tail -n 1);"
        "torchx wait $id; torchx status $id",
        ["State: SUCCEEDED"],
    ),
    "reportseff": (
        "job=$(sbatch --parsable -W --gpus=1 -o out --wrap true); reportseff $job",
        ["COMPLETED"],
    ),
}


@pytest.fixture(scope="module")
def login() -> Iterator[LoginNode]:
    """A user's shell on two nodes of four GPUs, with the programs on its path."""
    if not PLACE:
        pytest.skip("DLSCHED_CLIENTS names no environment with requirements.txt")
    with LocalCluster(nodes=2, gpus="4:a100") as running:
        path = running.folder / "dlsched.toml"
        path.write_text(path.read_text() + "[[partitions]]\nname = 'gpu'\ndefault = true\n")
        running.cli("admin", "reload")
        found = LoginNode(running)
        found.path = f"{running.folder / 'commands'}:{PLACE}/bin:/usr/bin:/bin"
        yield found


@pytest.mark.parametrize(("line", "says"), CASES.values(), ids=CASES)
def test_a_client_ends_as_with_slurm(login: LoginNode, line: str, says: list[str]) -> None:
    for each in PROGRAMS.iterdir():
        shutil.copy(each, login.home)
    done = login.run(line)
    for each in says:
        assert each in done.stdout, done.stdout + done.stderr
