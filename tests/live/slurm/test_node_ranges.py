"""Jobs on a range of nodes (`-N 1-2`), typed as users of Slurm type them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.login_node import LoginNode

pytestmark = pytest.mark.slow
SCRIPT = """#!/bin/bash
#SBATCH -N 1-2 --gpus-per-node=2 --ntasks-per-node=1 --cpus-per-task=1
#SBATCH --open-mode=append
srun bash -c 'echo "rank $SLURM_PROCID of $SLURM_NTASKS on node $SLURM_NODEID"'
echo "nodes=$SLURM_NNODES tasks=$SLURM_NTASKS cpus=$SLURM_CPUS_ON_NODE list=$SLURM_JOB_NODELIST"
sleep 600
"""


@pytest.fixture(scope="module")
def login() -> Iterator[LoginNode]:
    """A user's shell on a cluster of two nodes of two GPUs."""
    with LocalCluster(nodes=2, gpus="2:v100") as running:
        yield LoginNode(running)


def told(login: LoginNode, job: int, starts: int) -> list[str]:
    """What the present run of a job has written, once it has told of itself."""
    path = login.home / f"slurm-{job}.out"

    def lines() -> list[str]:
        found = path.read_text().splitlines() if path.exists() else []
        return found if sum(line.startswith("nodes=") for line in found) == starts else []

    found = eventually(f"start {starts} of job {job} has told of itself", lines)
    before = [k for k, line in enumerate(found[:-1]) if line.startswith("nodes=")]
    return found[before[-1] + 1 if before else 0 :]


def test_a_job_takes_as_many_nodes_of_its_range_as_are_free_at_each_start(
    login: LoginNode,
) -> None:
    (login.home / "range.sh").write_text(SCRIPT)
    job = int(login.typed("sbatch --parsable range.sh"))
    *ranks, last = told(login, job, 1)
    assert sorted(ranks) == [f"rank {k} of 2 on node {k}" for k in (0, 1)]
    assert last == "nodes=2 tasks=2 cpus=1 list=n[1-2]"
    login.cluster.kill("daemon")
    login.cluster.start_daemon()
    login.cluster.wait_until_up()
    assert login.typed(f'squeue -h -j {job} -o "%T %D %R"').strip() == "RUNNING 2 n[1-2]"
    (shown,) = json.loads(login.typed(f"dlsched show {job} --json"))["jobs"]
    assert (shown["gang"], shown["gpus"], shown["max_nodes"]) == ([2, 2], 4, 2)

    login.typed("scontrol update NodeName=n2 State=drain Reason=fan")
    login.typed(f"scontrol requeue {job}")
    assert told(login, job, 2) == [
        "rank 0 of 1 on node 0",
        "nodes=1 tasks=1 cpus=1 list=n1",
    ]
    login.typed("scontrol update NodeName=n2 State=resume")
    login.typed(f"scontrol requeue {job}")
    assert told(login, job, 3)[-1] == "nodes=2 tasks=2 cpus=1 list=n[1-2]"
    login.typed(f"scancel {job}")
    login.cluster.until(job, "CANCELLED")
    _is_recorded_on_two_nodes(login, job)


def _is_recorded_on_two_nodes(login: LoginNode, job: int) -> None:
    """An ended job has in every list, and in a trace, what its latest run had."""
    tres = login.typed(f"sacct -X -n -P -j {job} -o AllocTRES,AllocCPUS").strip()
    assert tres == "billing=2,cpu=2,gres/gpu=4,node=2|2"
    (row,) = csv.DictReader(io.StringIO(login.typed(f"dlsched history -j {job} --export -")))
    assert (row["num_gpus"], row["gang"], row["num_cpus"]) == ("4", "2+2", "2")


def test_a_range_without_gpus_takes_the_nodes_that_have_room(login: LoginNode) -> None:
    wrap = "--wrap 'srun hostname; echo nodes=$SLURM_NNODES; sleep 600'"
    ranged = "sbatch --parsable -N 1-2 --gpus=0 --ntasks-per-node=1 --cpus-per-task=1"
    job = int(login.typed(f"{ranged} {wrap}"))
    assert login.cluster.until(job, "RUNNING").nodes == ("n1", "n2")
    assert told(login, job, 1)[-1] == "nodes=2"
    assert len(told(login, job, 1)) == 3  # a task on each
    login.typed("scontrol update NodeName=n1 State=drain Reason=fan")
    login.typed(f"scontrol requeue {job}")
    eventually("it goes on", lambda: login.cluster.job(job).starts == 2)
    assert login.cluster.until(job, "RUNNING").nodes == ("n2",)
    login.typed("scontrol update NodeName=n1 State=resume")
    login.typed(f"scancel {job}")
    login.cluster.until(job, "CANCELLED")
    assert login.typed(f"sacct -X -n -P -j {job} -o AllocTRES").strip() == "billing=1,cpu=1,node=1"


def test_tasks_for_each_gpu_follow_the_range(login: LoginNode) -> None:
    wrap = "--wrap 'echo tasks=$SLURM_NTASKS; srun echo rank; echo nodes=$SLURM_NNODES; sleep 600'"
    ranged = "sbatch --parsable -N 1-2 --gpus-per-node=2 --ntasks-per-gpu=1"
    job = int(login.typed(f"{ranged} {wrap}"))
    assert told(login, job, 1) == ["tasks=4", *["rank"] * 4, "nodes=2"]
    login.typed(f"scancel {job}")
    login.cluster.until(job, "CANCELLED")


def test_a_range_gives_way_to_what_others_have_and_to_quotas(login: LoginNode) -> None:
    other = int(login.typed("sbatch --parsable --gpus=1 --wrap 'sleep 600'"))
    login.cluster.until(other, "RUNNING")
    login.typed("dlsched admin quota add user root --gpus 3")
    job = int(login.typed("sbatch --parsable -N 1-2 --gpus-per-node=1 --wrap 'sleep 600'"))
    assert len(login.cluster.until(job, "RUNNING").nodes) == 2  # three GPUs in all
    login.typed(f"scancel {job}")
    login.typed("dlsched admin quota set user root --gpus 2")
    job = int(login.typed("sbatch --parsable -N 1-2 --gpus-per-node=1 --wrap 'sleep 600'"))
    assert len(login.cluster.until(job, "RUNNING").nodes) == 1
    done = login.run("sbatch -N 3-2 --gpus-per-node=1 --wrap true")
    assert (done.returncode, "--nodes" in done.stderr) == (2, True)
    done = login.run("sbatch -N 3-4 --gpus-per-node=1 --wrap true")
    assert (done.returncode, "needs 3 nodes" in done.stderr) == (1, True), done.stderr
    login.typed(f"scancel {job} {other}")


def test_all_that_a_script_cannot_have_is_told_at_once(login: LoginNode) -> None:
    (login.home / "wrong.sh").write_text(
        "#!/bin/bash\n#SBATCH --gres=gpu:a100:2,gpu:2,gpu:v100:2\n"
        "#SBATCH --bb=x\n#SBATCH --gres=lustre\n"
    )
    done = login.run("sbatch wrong.sh")
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    for said in (
        "wrong.sh:2: --gres: 'gpu:a100:2,gpu:2,gpu:v100:2': of several types, each entry names one",
        "wrong.sh:4: --gres: 'lustre': gpu is the only resource known here",
        "wrong.sh:3: #SBATCH --bb: not supported",
    ):
        assert said in line
