"""Scripts written for Slurm, typed through the commands of Slurm, unchanged: `scripts/`."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator

import pytest

from dlsched.torture.local_cluster import LocalCluster, eventually
from tests.live.login_node import SCRIPTS, LoginNode

pytestmark = pytest.mark.slow
TORCHRUN = """#!/bin/bash
echo "agent $SLURM_NODEID of $SLURM_NNODES: rank $RANK world $WORLD_SIZE threads $OMP_NUM_THREADS"
echo "endpoint $MASTER_ADDR:$MASTER_PORT; $*"
"""
CONDA = """conda() { export CONDA_DEFAULT_ENV=$2 PATH="$PWD/env/bin:$PATH"; }
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Two nodes of four GPUs, and one of another type."""
    with LocalCluster(nodes=3, gpus=["4:v100", "4:v100", "2:a100"]) as running:
        yield running


@pytest.fixture(scope="module")
def login(cluster: LocalCluster) -> LoginNode:
    """A user's shell."""
    return LoginNode(cluster)


def test_an_array_with_a_limit(login: LoginNode) -> None:
    (login.home / "logs").mkdir()
    job = login.submit("array.sh")
    for task in range(4):
        login.cluster.until(job + task, "COMPLETED")
        text = (login.home / f"logs/sweep_{job}_{task}.out").read_text()
        assert text.splitlines() == [
            f"job={job} task={task} of 4",
            "range=0-3 step=1",
            f"rate={['0.1', '0.01', '0.001', '0.0001'][task]} cpus=1 gpus=1",
        ]
    table = login.typed(f"sacct -X -n -P -j {job} --format=JobID,JobName,State,ExitCode")
    assert table.splitlines() == [f"{job}_{task}|sweep|COMPLETED|0:0" for task in range(4)]


def test_a_function_that_bash_exports_reaches_script_and_steps(login: LoginNode) -> None:
    shutil.copy(SCRIPTS / "modules.sh", login.home)
    line = 'module() { echo "$*"; }; export -f module; sbatch'
    for choice, found in (("ALL", ["load cuda", "load rank0", "load rank1"]), ("NONE", [])):
        job = int(login.typed(f"{line} --export={choice} modules.sh").split()[3])
        login.cluster.until(job, "COMPLETED" if found else "FAILED")
        said = (login.home / f"slurm-{job}.out").read_text().splitlines()
        assert sorted(line for line in said if line.startswith("load")) == found


def test_steps_in_the_background_have_gpus_of_their_own(login: LoginNode) -> None:
    job, text = login.ended("gres.sh")
    first, *rest = text.splitlines()
    assert first == f"batch: 2 tasks, 1 nodes, in {login.home}"
    assert sorted(rest) == [
        "0: rank 0 of 2",
        "1: rank 1 of 2",
        *(f"seed {seed} alone on 1 GPU" for seed in (1, 2, 3, 4)),
    ]
    assert (login.home / f"slurm-{job.job_id}.err").read_text() == "to the error file\n"


def test_each_task_sees_the_gpus_that_the_header_gives_it(login: LoginNode) -> None:
    script = (
        "#!/bin/bash\n#SBATCH -N 1 --ntasks-per-node=2 --gpus-per-task=1 -t 5 -o seen.out\n"
        "tell='echo $SLURM_LOCALID $SLURM_GTIDS $CUDA_VISIBLE_DEVICES; [ $SLURM_TASK_PID = $$ ]'\n"
        'srun bash -c "$tell"; srun --gpu-bind=map_gpu:1,0 bash -c "$tell"\n'
    )
    (login.home / "seen.sh").write_text(script)
    job = int(login.typed("sbatch --parsable seen.sh"))
    login.cluster.until(job, "COMPLETED")
    seen = [line.split() for line in (login.home / "seen.out").read_text().splitlines()]
    assert [each[1] for each in seen] == ["0,1"] * 4
    first, second = ({local: gpu for local, _, gpu in some} for some in (seen[:2], seen[2:]))
    assert first["0"] != first["1"]
    assert (second["0"], second["1"]) == (first["1"], first["0"])


def test_torchrun_starts_once_on_each_node(login: LoginNode) -> None:
    (login.home / "fake_torchrun").write_text(TORCHRUN)
    (login.home / "fake_torchrun").chmod(0o755)
    job, text = login.ended("torchrun.sh")
    first, *rest = text.splitlines()
    assert first == "tasks=2 per_node=1 layout=1(x2)"
    told = f"--nnodes 2 --nproc_per_node 4 --rdzv_id {job.job_id} --rdzv_backend c10d"
    end = f"{job.nodes[0]}:29512"
    assert sorted(rest) == [
        *(f"agent {k} of 2: rank {k} world 8 threads 2" for k in (0, 1)),
        *2 * (f"endpoint {end}; {told} --rdzv_endpoint {end} train.py",),
    ]


def test_the_variables_are_those_that_slurm_documents(login: LoginNode) -> None:
    job, _ = login.ended("variables.sh")

    def told(name: str) -> dict[str, str]:
        lines = (login.home / name).read_text().splitlines()
        return {key: value for key, _, value in (line.partition("=") for line in lines)}

    batch = told("batch.env")
    assert batch == batch | {
        "SLURM_JOB_ID": str(job.job_id),
        "SLURM_JOB_NAME": "told",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NTASKS": "4",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_TASKS_PER_NODE": "2(x2)",
        "SLURM_CPUS_PER_TASK": "1",
        "SLURM_GPUS_PER_NODE": "v100:2",
        "SLURM_GPUS_ON_NODE": "2",
        "SLURM_MEM_PER_NODE": "1024",
        "SLURM_JOB_DEPENDENCY": "singleton",
        "SLURM_SUBMIT_DIR": str(login.home),
        "SLURMD_NODENAME": "n1",
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
    }
    assert not {"SLURM_GPUS", "SLURM_ARRAY_JOB_ID", "SLURM_RESTART_COUNT"} & set(batch)  # not said
    for rank in range(4):
        task = told(f"task.{rank}.env")
        assert task == task | {
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank % 2),
            "SLURM_NODEID": str(rank // 2),
            "SLURMD_NODENAME": f"n{rank // 2 + 1}",
            "SLURM_NTASKS": "4",
            "SLURM_STEP_ID": "0",
            "SLURM_STEP_NODELIST": "n[1-2]",
        }


def test_the_head_node_is_asked_for_its_address(login: LoginNode) -> None:
    job, text = login.ended("head_node.sh")
    first, second = job.nodes
    head, worker = text.splitlines()
    assert head.startswith(f"head={first} ip=")
    assert head.partition("ip=")[2].strip()
    assert worker == f"worker on {second}, node 0 of 1, of job 2"
    assert (login.home / f"head.{job.job_id}.log").read_text() == f"head on {first}\n"


def test_a_job_submits_what_comes_after_it(login: LoginNode) -> None:
    _, text = login.ended("chain.sh")
    after = int((login.home / "next.id").read_text())
    never = int((login.home / "never.id").read_text())
    assert text == f"{after} evaluate PENDING (Dependency)\n"
    login.cluster.until(after, "COMPLETED")
    assert (login.home / f"slurm-{after}.out").read_text() == "evaluated after evaluate\n"
    assert login.cluster.until(never, "CANCELLED").reason.startswith("DependencyNeverSatisfied")


def test_a_job_requeues_itself_at_its_warning(login: LoginNode) -> None:
    job = login.submit("requeue.sh")
    eventually("the job is up", (login.home / "long.up").exists)
    login.typed(f"scancel --batch --signal=USR1 {job}")
    login.cluster.until(job, "COMPLETED")
    text = (login.home / f"slurm-{job}.out").read_text()
    assert text.splitlines() == ["start 0", "caught", "start 1", "finished"]


INSIDE = """#!/bin/bash
#SBATCH --gpus=1 -t 5 --open-mode=append
[ -n "$SLURM_RESTART_COUNT" ] && exit 0
trap 'true' TERM
{command}; echo "code $?"
exec sleep 600
"""


@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize(
    ("command", "end"),
    [
        ("scontrol requeue $SLURM_JOB_ID", "COMPLETED"),
        ("dlsched requeue $SLURM_JOB_ID", "COMPLETED"),
        ("scancel $SLURM_JOB_ID", "CANCELLED"),
        ("dlsched cancel $SLURM_JOB_ID", "CANCELLED"),
    ],
)
def test_a_command_that_stops_its_own_job_is_answered_first(
    login: LoginNode, command: str, end: str, turn: int
) -> None:
    name = f"inside-{command.partition(' ')[0]}-{end}-{turn}.sh"
    (login.home / name).write_text(INSIDE.format(command=command))
    job = int(login.typed(f"sbatch --parsable {name}"))
    login.cluster.until(job, end)
    lines = (login.home / f"slurm-{job}.out").read_text().splitlines()
    assert "code 0" in lines


def test_a_login_shell_with_conda_and_a_constraint(login: LoginNode) -> None:
    (login.home / "conda.sh").write_text(CONDA)
    (login.home / "env/bin").mkdir(parents=True)
    (login.home / "env/bin/python").symlink_to(shutil.which("python3") or "")
    _, text = login.ended("constraint.sh")
    python, name, node = text.splitlines()
    assert (python, name) == ("python training 0", "JobName=typed")
    assert node in ("n1 gpu:v100:4", "n3 gpu:a100:2")
    shutil.copy(SCRIPTS / "constraint.sh", login.home / "noted.sh")
    noted = login.run("sbatch --test-only noted.sh")
    assert "noted.sh: without effect here: --wckey" in noted.stderr


def test_a_whole_node_and_its_steps(login: LoginNode) -> None:
    job, text = login.ended("exclusive.sh")
    gpus = {"n3": 2}.get(job.nodes[0], 4)
    assert text.splitlines()[0] == f"step 0 on {job.nodes[0]} sees {gpus}"
    assert "the time limit of 1 s is over" in text
    assert text.splitlines()[-1] == "ended by its limit: 1"
    ranks = [(login.home / f"rank.{k}.txt").read_text() for k in range(3)]
    assert ranks == [f"red {k}/3\n" for k in range(3)]
    assert job.exit_code == 0


def test_preprocessing_has_no_gpu(login: LoginNode) -> None:
    job, text = login.ended("preprocess.sh")
    assert text.splitlines() == ["cpus=2 gpus='' 0", "45"]
    assert (job.gpus, len(job.nodes)) == (0, 1)


def test_a_rank_that_fails_ends_the_job_with_its_code(login: LoginNode) -> None:
    job, text = login.ended("fails.sh", state="FAILED")
    assert f"rank 1 on {job.nodes[0]}: exit code 5" in text
    assert "not reached" not in text
    table = login.typed(f"sacct -X -j {job.job_id} -n -P -o State,ExitCode")
    assert table == "FAILED|5:0\n"


def test_jobs_without_gpus_hold_processors_and_leave_gpus_alone(login: LoginNode) -> None:
    cpus = os.cpu_count() or 1
    line = f"sbatch --parsable --gpus=0 -N1 -n1 -c {cpus} --wrap"
    jobs = [int(login.typed(f"{line} 'while [ ! -e free ]; do sleep 0.05; done'")) for _ in "123"]
    for job in jobs:
        login.cluster.until(job, "RUNNING")
    assert len({login.cluster.job(job).nodes for job in jobs}) == 3  # a whole node each
    fourth = int(login.typed(f"{line} true"))
    login.cluster.until(fourth, "PENDING")
    with_gpu = int(login.typed("sbatch --parsable --gpus=4 --wrap true"))
    login.cluster.until(with_gpu, "COMPLETED")
    eventually("why it waits", lambda: "Resources" in (login.cluster.job(fourth).reason or ""))
    assert f"needs {cpus} CPU" in login.typed(f"dlsched show {fourth}")
    (login.home / "free").touch()
    for job in (*jobs, fourth):
        login.cluster.until(job, "COMPLETED")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--gpus=1 -c 5000", r"node n\d has \d+ CPUs?, 5000 are asked for"),
        ("--gpus=0 -c 5000", r"node n\d has \d+ CPUs?, 5000 are asked for"),
        ("--gpus=1 --mem=900T", r"node n\d has [\d.]+[GT] of memory, 900T is asked for"),
        ("--gpus=1 --tmp=900T", r"node n\d has [\d.]+[GT] of temporary disk, 900T is asked for"),
        ("--gpus=9 -N1", r"needs 1 node with 9 GPUs each at most; the cluster has 3 nodes"),
    ],
)
def test_what_no_node_can_ever_give_is_refused_at_once(
    login: LoginNode, options: str, told: str
) -> None:
    done = login.run(f"sbatch {options} --wrap true")
    assert done.returncode == 1
    assert re.search(told, done.stderr), done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("sbatch --parsable -o no/%j.out --wrap true",
         "cannot open output {home}/no/{job}.out: No such file or directory"),
        ("sbatch --parsable -D {home}/nowhere --wrap true",
         "cannot enter working directory {home}/nowhere: No such file or directory"),
        ("dlsched submit --parsable --gpus 1 -- no-such-program",
         "no-such-program: command not found"),
        ("sbatch --parsable --wrap 'exec bash -c no-such-program'",
         "exit 127: bash: line 1: no-such-program: command not found"),
    ],
)  # fmt: skip
def test_why_a_start_failed_is_told_where_users_look(
    login: LoginNode, line: str, told: str
) -> None:
    job = int(login.typed(line.format(home=login.home)))
    found = login.cluster.until(job, "FAILED", "PENDING", "COMPLETED")
    if found.state == "PENDING":
        found = login.cluster.until(job, "FAILED")
    why = told.format(home=login.home, job=job)

    def is_told() -> bool:
        return why in login.typed(f"dlsched history -j {job} -o reason")

    eventually("the output of the job has been looked at", is_told)
    assert_told(login, job, why)


def assert_told(login: LoginNode, job: int, why: str) -> None:
    """Why a start failed is in every listing that users ask."""
    assert why in login.typed(f"dlsched show {job}")
    assert why in login.typed(f"dlsched history -j {job} -o id,state,reason")
    (record,) = json.loads(login.typed(f"dlsched history -j {job} --json"))["jobs"]
    assert why in record["reason"]
    assert why in login.typed(f"sacct -X -j {job} -n -P -o Reason")
    assert why in login.typed(f"dlsched queue -j {job} --json; dlsched show {job} --json")


def test_why_the_last_run_failed_is_told_while_the_next_one_pauses(login: LoginNode) -> None:
    line = "dlsched submit --parsable --gpus 1 --retries 9 -- no-such-program"
    job = int(login.typed(line))
    why = "BackOff: it failed too soon; Retry(exit 127: no-such-program: command not found)"
    eventually("queue says it", lambda: why in login.typed(f"dlsched queue -j {job}"))
    login.typed(f"dlsched cancel {job}")


def test_a_full_disk_is_told_where_users_look(login: LoginNode) -> None:
    full = login.home / "full"
    full.mkdir()
    # no room for one more file
    mounted = login.run(f"mount -t tmpfs -o size=64k,nr_inodes=1 none {full}")
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    try:
        job = int(login.typed(f"sbatch --parsable --gpus=1 -o {full}/%j.out --wrap true"))
        login.cluster.until(job, "FAILED")
    finally:
        login.typed(f"umount {full}")
    assert_told(login, job, f"cannot open output {full}/{job}.out: No space left on device")
