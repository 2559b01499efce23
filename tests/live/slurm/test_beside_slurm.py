"""The same lines typed on dlsched and, where it is installed, on a real Slurm.

Each case has what both print. Where dlsched says something else, the case has that as well, and
docs/from-slurm.md the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dlsched.torture.local_cluster import LocalCluster
from tests.live.login_node import LoginNode
from tests.live.real_slurm import RealSlurm, why_not

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Case:
    """A line of a shell.

    Attributes:
        line: what is typed.
        says: the words that it prints, each line's sorted among the lines.
        ours: what dlsched prints where that is something else.
    """

    line: str
    says: str
    ours: str | None = None


_LIMIT = "scontrol show job $SLURM_JOB_ID | grep -om1 TimeLimit=[0-9:]*"
_BUSY = "sbatch -N2 --exclusive --gres=gpu:4 -o /dev/null --wrap 'sleep 600' > busy"
_FREE = "scancel --me; while squeue -h | grep -q .; do sleep 0.1; done"
_TASK = """'trap "echo task >> said" USR1; echo up > said; for i in {1..300}; do sleep 0.1; done'"""
_SIGNALLED = (
    'printf \'#!/bin/bash\\ntrap "echo shell >> said" USR1\\n%s\\n'
    'while kill -0 $!; do wait; done\\n\' "$START" > s; rm -f said;'
    "job=$(sbatch --parsable --gpus=1 -o /dev/null s); until grep -qs up said; do sleep 0.1; done;"
    'for how in -s -bs -fs; do : > said; scancel $how USR1 $job; echo "$how $?"; sleep 1.5;'
    "echo $how $(sort said); done; scancel $job"
)
_HELD = "job=$(squeue -h -n no-shell -o %i)"
CASES = {
    "SBATCH_TIMELIMIT": Case(
        f"SBATCH_TIMELIMIT=7 sbatch -W --gpus=1 -o o --wrap '{_LIMIT}' >/dev/null; cat o",
        "TimeLimit=00:07:00",
    ),
    "an option wins over a variable": Case(
        f"SBATCH_TIMELIMIT=7 sbatch -W -t 9 --gpus=1 -o o --wrap '{_LIMIT}' >/dev/null; cat o",
        "TimeLimit=00:09:00",
    ),
    "a variable wins over the script": Case(
        "printf '#!/bin/bash\\n#SBATCH -J script -o o\\necho $SLURM_JOB_NAME\\n' > s;"
        "SBATCH_JOB_NAME=variable sbatch -W --gpus=1 s >/dev/null; cat o",
        "variable",
    ),
    "SBATCH_NTASKS is none": Case(
        "SBATCH_NTASKS=3 SBATCH_NODES=2 sbatch -W --gpus=1 -o o --wrap 'echo $SLURM_NNODES'"
        " >/dev/null; cat o",
        "1",
    ),
    "SBATCH_PARTITION, SBATCH_OUTPUT": Case(
        "SBATCH_OUTPUT=o SBATCH_PARTITION=cpu sbatch -W --wrap 'echo $SLURM_JOB_PARTITION'"
        " >/dev/null; cat o",
        "cpu",
    ),
    "SBATCH_WAIT": Case(
        "rm -f o; SBATCH_WAIT=1 sbatch --gpus=1 -o o --wrap 'sleep 0.5; echo waited' >/dev/null;"
        "cat o",
        "waited",
    ),
    "SBATCH_ARRAY_INX": Case(
        "SBATCH_WAIT=1 SBATCH_ARRAY_INX=3-4 sbatch --gpus=1 -o o.%a"
        " --wrap 'echo $SLURM_ARRAY_TASK_ID' >/dev/null; cat o.3 o.4",
        "3\n4",
    ),
    "SALLOC_PARTITION, SALLOC_TIMELIMIT": Case(
        "SALLOC_PARTITION=cpu SALLOC_TIMELIMIT=8 salloc -Q sh -c"
        f" 'echo $SLURM_JOB_PARTITION; {_LIMIT}'",
        "TimeLimit=00:08:00\ncpu",
    ),
    "SLURM_NTASKS": Case("SLURM_NTASKS=2 srun -Q -l --gpus=1 -N1 echo hi", "0: hi\n1: hi"),
    "SLURM_NPROCS": Case("SLURM_NPROCS=2 srun -Q --gpus=1 -N1 echo hi", "hi\nhi"),
    "SLURM_NNODES is not read": Case("SLURM_NNODES=2 srun -Q --gpus-per-node=1 echo hi", "hi"),
    "SLURM_JOB_NUM_NODES": Case(
        "SLURM_JOB_NUM_NODES=2 srun -Q --gpus-per-node=1 echo hi", "hi\nhi"
    ),
    "SLURM_LABELIO": Case("SLURM_LABELIO=1 srun -Q --gpus=1 echo hi", "0: hi"),
    "SLURM_TIMELIMIT": Case(
        f"SLURM_TIMELIMIT=7 srun -Q --gpus=1 sh -c '{_LIMIT}'", "TimeLimit=00:07:00"
    ),
    "SLURM_PARTITION": Case("SLURM_PARTITION=cpu srun -Q sh -c 'echo $SLURM_JOB_PARTITION'", "cpu"),
    "SLURM_JOB_NAME": Case(
        "SLURM_JOB_NAME=named srun -Q --gpus=1 sh -c 'echo $SLURM_JOB_NAME'", "named"
    ),
    "SLURM_WORKING_DIR": Case("SLURM_WORKING_DIR=/usr srun -Q --gpus=1 pwd", "/usr"),
    "SLURM_EXPORT_ENV": Case(
        "A=1 SLURM_EXPORT_ENV=B=2 srun -Q --gpus=1 /bin/sh -c 'echo A=$A B=$B'", "A= B=2"
    ),
    "steps of a job with --export": Case(
        "A=1 sbatch -W --gpus=1 -o o -e /dev/null --export=A --wrap"
        ' \'export B=2; srun /bin/sh -c "echo A=\\$A B=\\$B";'
        ' SLURM_EXPORT_ENV=ALL srun /bin/sh -c "echo A=\\$A B=\\$B"\' >/dev/null; cat o',
        "A=1 B=\nA=1 B=2",
    ),
    "SLURM_KILL_BAD_EXIT": Case(
        "SLURM_KILL_BAD_EXIT=1 srun -Q --gpus=1 -n2 -N1 sh -c"
        " '[ $SLURM_PROCID = 1 ] && exit 3; exec sleep 60' 2>/dev/null; echo ended",
        "ended",
    ),
    "--pty without a terminal": Case(
        "srun -Q --pty --gpus=1 sh -c 'echo hi; exit 3'; echo $?", "3\nhi"
    ),
    "--multi-prog": Case(
        "printf '0 echo first %%t\\n1 echo second %%o\\n' > m;"
        "srun -Q --gpus=1 -N1 -n2 --multi-prog m",
        "first 0\nsecond 0",
    ),
    "-r": Case(
        "sbatch -W -N2 --gres=gpu:1 -o o --wrap"
        " 'srun -r1 -N1 -n1 sh -c \"echo \\$SLURM_STEP_NUM_NODES\"' >/dev/null; cat o",
        "1",
    ),
    "-m plane with GPUs of each task": Case(
        "srun -Q -l -N2 --ntasks-per-node=2 -m plane=2 --gpus-per-task=1 sh -c"
        " 'echo $SLURM_NODEID $(echo $CUDA_VISIBLE_DEVICES | tr , \"\\n\" | wc -l)'",
        "0: 0 1\n1: 0 1\n2: 1 1\n3: 1 1",
    ),
    "-I while all is busy": Case(
        f"{_FREE}; {_BUSY}; exec 2>/dev/null;"
        "for each in srun salloc; do $each -I1 -Q --gpus=1 true; echo $?; done;"
        f"SALLOC_IMMEDIATE=1 salloc -Q --gpus=1 true; echo $?; squeue -h -o %j; {_FREE}",
        "1\n1\n1\nwrap",
    ),
    "a signal to a job with a step": Case(
        f"START=$(cat <<'E'\nsrun bash -c {_TASK} &\nE\n); {_SIGNALLED}",
        "-bs 0\n-bs shell\n-fs 0\n-fs shell task\n-s 0\n-s task",
    ),
    "a signal to a job without a step": Case(
        f"START=$(cat <<'E'\nbash -c {_TASK} &\nE\n); {_SIGNALLED}",
        "-bs 0\n-bs shell\n-fs 0\n-fs shell task\n-s\n-s 0",
    ),
    "a step is cancelled": Case(
        'printf \'#!/bin/bash\\nsrun -N2 sh -c "echo > up; exec sleep 300"\\necho code $?\\n'
        "srun echo next\\n' > s; rm -f up;"
        "job=$(sbatch --parsable -N2 --gres=gpu:1 -n2 -o o -e /dev/null s);"
        "until [ -e up ]; do sleep 0.1; done; scancel -s USR2 99999.0 2> /dev/null; echo $?;"
        "scancel $job.0; echo $?; while squeue -h | grep -q .; do sleep 0.1; done; cat o",
        "0\n1\ncode 137\nnext\nnext",
    ),
    "salloc --no-shell and its steps": Case(
        f"salloc -Q --no-shell -N2 -n3 --gres=gpu:1; {_HELD}; echo $?; squeue -h -o '%j %T %D %C';"
        "srun -Q --jobid=$job -n3 -l echo task;"
        "SLURM_JOB_ID=$job srun -Q -l sh -c 'echo $SLURM_NNODES';"
        "echo read | srun -Q --jobid=$job -n2 cat; cd /tmp;"
        "srun -Q --jobid=$job -N1 -n1 sh -c 'pwd; exit 7' 2>/dev/null; echo $?;"
        f"{_FREE}; srun -Q --jobid=$job true 2>/dev/null; echo $?",
        "/tmp\n0\n0: 2\n0: task\n1\n1: 2\n1: task\n2: task\n7\nno-shell RUNNING 2 3\nread\nread",
        ours="/tmp\n0\n0: 2\n0: task\n1\n1: 2\n1: task\n2: task\n7\n"
        "dlsched: run: rank 0 on n1: exit code 7\nno-shell RUNNING 2 3\nread\nread",
    ),
}


@pytest.fixture(scope="module")
def ours() -> Iterator[LoginNode]:
    """A user's shell on dlsched: two nodes of four GPUs, in two partitions."""
    with LocalCluster(nodes=2, gpus="4:a100") as running:
        path = running.folder / "dlsched.toml"
        path.write_text(
            path.read_text()
            + "[[partitions]]\nname = 'gpu'\ndefault = true\n"
            + "[[partitions]]\nname = 'cpu'\ndefault_gpus = 0\n"
        )
        running.cli("admin", "reload")
        yield LoginNode(running)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealSlurm]:
    """A user's shell on a real Slurm."""
    if why := why_not():
        pytest.skip(why)
    with RealSlurm(Path(os.path.realpath(tmp_path_factory.mktemp("slurm")))).running() as running:
        yield running


def _said(shell: LoginNode | RealSlurm, line: str) -> str:
    done = shell.run(line)
    return "\n".join(sorted(done.stdout.splitlines())) or f"nothing: {done.stderr}"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_dlsched_says_what_slurm_says(ours: LoginNode, case: Case) -> None:
    assert _said(ours, case.line) == (case.says if case.ours is None else case.ours)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_slurm_says_it(theirs: RealSlurm, case: Case) -> None:
    assert _said(theirs, case.line) == case.says
