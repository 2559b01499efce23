from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dlsched.job import launch
from dlsched.job import messages as words


def call(
    keeper: Any, *arguments: str, program: tuple[str, ...] = (), **variables: str
) -> subprocess.Popen[str]:
    command = program or (sys.executable, "-m", "dlsched.job.launch")
    return subprocess.Popen(
        [*command, *arguments],
        env={
            **os.environ,
            "DLSCHED_CTL_SOCK": keeper.path,
            "RANK": "0",
            "COLOUR": "grün",
            **variables,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def serve(keeper: Any, *answers: words.Message) -> words.RunRanks:
    """Answer the caller; what it wanted."""
    wanted: words.RunRanks = keeper.wait_for(words.RunRanks)
    for answer in answers:
        keeper.say(answer)
    return wanted


def test_ranks_are_asked_for_with_environment_folder_and_streams(keeper: Any) -> None:
    caller = call(keeper, "-n", "4", "--ntasks-per-node=2", "--gpus-per-task", "1", "--", "a", "-n")
    wanted = serve(keeper, words.Started(ranks=4), words.Done())
    assert wanted.argv == ("a", "-n")
    assert (wanted.ntasks, wanted.per_node, wanted.gpus_per_task) == (4, 2, 1)
    assert wanted.environment["COLOUR"] == "grün"
    assert "RANK" not in wanted.environment
    assert wanted.working_directory == os.getcwd()
    assert wanted.kill_on_bad_exit
    os.write(keeper.fds[0], b"written by a rank of this node\n")
    os.write(keeper.fds[1], b"and its errors\n")
    while keeper.fds:
        os.close(keeper.fds.pop())
    assert ended(caller) == (0, "written by a rank of this node\n", "and its errors\n")


def test_the_exit_code_is_the_highest_of_ranks_that_end_by_themselves(keeper: Any) -> None:
    caller = call(keeper, "--", "x")
    serve(
        keeper,
        words.Started(ranks=3),
        words.Exited(rank=0, code=3, node="n1"),
        words.Exited(rank=1, signal=11),
        words.Exited(rank=2),
        words.Exited(rank=3, signal=15, with_others=True),
        words.Done(),
    )
    while keeper.fds:
        os.close(keeper.fds.pop())
    code, _, err = ended(caller)
    assert code == 139
    assert err.splitlines() == [
        "dlsched: run: rank 0 on n1: exit code 3",
        "dlsched: run: rank 1: ended by signal 11",
        "dlsched: run: rank 3: ended with the others",
    ]


def test_labels_begin_each_line_also_when_it_comes_in_pieces(keeper: Any) -> None:
    caller = call(keeper, "-l", "x")
    serve(
        keeper,
        words.Started(ranks=2),
        words.Output(rank=1, data=b"one\ntw"),
        words.Output(rank=0, data=b"zero\n"),
        words.Output(rank=1, data=b"o\nend"),
        words.Output(rank=0, data=b"oops\n", stream=2),
        words.Done(),
    )
    while keeper.fds:
        os.close(keeper.fds.pop())
    assert ended(caller) == (0, "1: one\n0: zero\n1: two\n1: end\n", "0: oops\n")


def test_signals_are_passed_on(keeper: Any) -> None:
    caller = call(keeper, "x")
    serve(keeper, words.Started(ranks=1), words.Output(rank=0, data=b"ready\n"))
    assert caller.stdout is not None
    assert caller.stdout.readline() == "ready\n"
    for number in (signal.SIGINT, signal.SIGTERM):
        caller.send_signal(number)
        assert keeper.wait_for(words.SignalRanks).number == number
    keeper.say(words.Exited(rank=0, code=143))
    keeper.say(words.Done())
    while keeper.fds:
        os.close(keeper.fds.pop())
    assert ended(caller)[0] == 143


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (words.Refused(why="9 ranks on 4 GPUs"), "dlsched: run: 9 ranks on 4 GPUs\n"),
        (None, "dlsched: run: the keeper has closed the connection; the ranks are being ended\n"),
    ],
)
def test_an_error_is_one_line(keeper: Any, answer: Any, said: str) -> None:
    caller = call(keeper, "x")
    if answer is None:
        serve(keeper)
        keeper.close()
    else:
        serve(keeper, answer)
        while keeper.fds:
            os.close(keeper.fds.pop())
    assert ended(caller) == (1, "", said)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["x"], 1, "run: not inside an allocation"),
        ([], 2, "run: no command"),
        (["-n", "0", "x"], 2, "'0' is not a whole number above 0"),
        (["-n", "99999999999999999999", "x"], 2, "is not a whole number above 0"),
        (["--mem=5", "x"], 2, "--mem=5"),
    ],
)
def test_wrong_use_is_one_line(
    arguments: list[str],
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DLSCHED_CTL_SOCK", raising=False)
    assert launch.main(arguments) == code
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_an_environment_that_is_too_large_is_refused(
    keeper: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLSCHED_CTL_SOCK", keeper.path)
    monkeypatch.setenv("HUGE", "x" * words.MAX_MESSAGE)
    assert launch.main(["x"]) == 1
    assert "command and environment take" in capsys.readouterr().err


# -- srun ------------------------------------------------------------------------------------------


def srun(keeper: Any, *arguments: str) -> subprocess.Popen[str]:
    """`srun` in the script of a job that has nodes n1 and n2, of four GPUs each."""
    job = {"DLSCHED_JOB_ID": "7", "DLSCHED_NODELIST": "n[1-2]", "SLURM_GPUS_ON_NODE": "4"}
    program = (sys.executable, "-I", "-m", "dlsched.cli.slurm", "srun")
    return call(keeper, *arguments, program=program, **job)


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["x"], {"ntasks": 2, "nodes": ("n1", "n2")}),
        (["-n", "5", "-lu", "--mpi=none", "--cpu-bind", "none", "-c", "4", "x"],
         {"ntasks": 5, "cpus_per_task": 4, "label": True}),
        (["--ntasks-per-node=4", "x"], {"ntasks": 0, "per_node": 4}),
        (["-N1", "-n1", "-w", "n2", "--jobid=7", "x"], {"ntasks": 1, "nodes": ("n2",)}),
        (["-N", "1", "-x", "n1", "x"], {"ntasks": 1, "nodes": ("n2",)}),
        (["--gres=gpu:v100:2", "x"], {"gpus": 2, "overlap": False}),
        (["--gpus=4", "--overlap", "x"], {"gpus": 2, "overlap": True}),
        (["--gres=none", "x"], {"gpus": 0}),
        (["-n4", "--gpus-per-task=1", "x"], {"gpus": 2, "gpus_per_task": 1}),
        (["--ntasks-per-gpu=1", "x"], {"per_node": 4, "ntasks": 0, "tasks_per_gpu": 1}),
        (["-n4", "--ntasks-per-gpu=2", "x"], {"ntasks": 4, "gpus": 1, "tasks_per_gpu": 2}),
        (["-n4", "--gpus-per-task=2", "--gpu-bind=none", "x"], {"gpus": 4, "gpus_per_task": 0}),
        (["--gpu-bind=verbose,single:2", "x"], {"tasks_per_gpu": 2, "gpus": None}),
        (["--tres-bind=gres/gpu:per_task:2", "x"], {"gpus_per_task": 2, "gpus": None}),
        (["--gpu-bind", "map_gpu:3,0x1*2", "x"], {"gpu_masks": (8, 2, 2)}),
        (["--gpu-bind=mask_gpu:0x3,c", "x"], {"gpu_masks": (3, 12)}),
        (["--gpu-bind=closest", "x"], {"gpu_masks": (), "tasks_per_gpu": 0, "gpus_per_task": 0}),
        (["-m", "cyclic", "x"], {"plane": 1}),
        (["-m", "block:cyclic", "x"], {"plane": 0}),
        (["--distribution=plane=3", "x"], {"plane": 3}),
        (["-r1", "x"], {"nodes": ("n2",), "ntasks": 1}),
        (["-N1", "--relative=0", "-J", "first", "x"], {"nodes": ("n1",), "name": "first"}),
        (["-K", "-l", "-D", "/", "x", "-n", "3"],
         {"argv": ("x", "-n", "3"), "working_directory": "/", "label": True}),
        (["--kill-on-bad-exit=0", "x"], {"kill_on_bad_exit": False}),
        (["--input=all", "x"], {"input_to": words.EVERY_RANK, "input_file": ""}),
        (["-i", "1", "x"], {"input_to": 1}),
        (["--input=none", "x"], {"input_to": None, "input_file": ""}),
        (["--input=/in/%j-%3t.txt", "x"], {"input_to": None, "input_file": "/in/7-%3t.txt"}),
    ],
)  # fmt: skip
def test_srun_asks_for_what_slurm_would_start(
    keeper: Any, arguments: list[str], asked: dict[str, object]
) -> None:
    caller = srun(keeper, *arguments)
    wanted = serve(keeper, words.Started(ranks=0), words.Done())
    while keeper.fds:
        os.close(keeper.fds.pop())
    assert ended(caller)[0] == 0
    assert {name: getattr(wanted, name) for name in asked} == asked


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pty", "bash"], "--pty: a job's script has no terminal"),
        (["-N", "7", "x"], "--nodes 7: this job has 2 to choose from"),
        (["-w", "n9", "x"], "-w n9: not a node of this job (n1,n2)"),
        (["--jobid=8", "x"], "--jobid 8: inside job 7 only its own id"),
        (["--multi-prog", "/nowhere"], "--multi-prog: /nowhere: No such file or directory"),
        (["--het-group=1", "x"], "--het-group: not supported; --help lists what is"),
        (["-n1", "x", ":", "-n1", "y"], ":: heterogeneous steps are not supported"),
        (["--mpi=pmix", "x"], "--mpi=pmix: srun has no such start of MPI programs (--mpi=list)"),
        (["--gpu-bind=single", "x"], "--gpu-bind: 'single': single needs a number, as single:1"),
        (["--gpu-bind=map_gpu:x", "x"], "map_gpu needs a list of numbers, as map_gpu:0,1"),
        (["--gpu-bind=nearest", "x"], "--gpu-bind: 'nearest' is not none, closest, single:N"),
        (["-m", "arbitrary", "x"], "--distribution: 'arbitrary' is not block, cyclic or plane=N"),
        (["-m", "plane", "x"], "--distribution: 'plane': plane needs a number, as plane=4"),
        (["-r2", "x"], "--relative 2: nodes of this job are 0 to 1"),
        (["-n"], "-n: needs a value"),
        (["--label=1", "x"], "--label: takes no value"),
        (["--gres=lustre:1", "x"], "--gres=lustre:1: gpu is the only resource"),
        (["--time=x", "x"], "--time x: not a time limit"),
        (["--input=2", "x"], "--input=2: the tasks are 0 to 1"),
        ([], "no command to run"),
    ],
)
def test_srun_refuses_the_rest_in_one_line(keeper: Any, arguments: list[str], said: str) -> None:
    code, _, err = ended(srun(keeper, *arguments))
    assert code == (1 if "/nowhere" in said else 2)
    assert err.startswith("srun: error: ")
    assert said in err
    assert err.count("\n") == 1


def asked_for(keeper: Any, *arguments: str, **variables: str) -> tuple[words.RunRanks, str]:
    """What `srun` asks the keeper for, and its errors."""
    job = {"DLSCHED_JOB_ID": "7", "DLSCHED_NODELIST": "n[1-2]", "SLURM_GPUS_ON_NODE": "4"}
    program = (sys.executable, "-I", "-m", "dlsched.cli.slurm", "srun")
    caller = call(keeper, *arguments, program=program, **job, **variables)
    wanted = serve(keeper, words.Started(ranks=0), words.Done())
    while keeper.fds:
        os.close(keeper.fds.pop())
    code, _, err = ended(caller)
    assert code == 0, err
    return wanted, err


@pytest.mark.parametrize(
    ("variables", "arguments", "asked"),
    [
        ({"SLURM_GPUS_PER_TASK": "1", "SLURM_NTASKS": "4"}, ["x"],
         {"gpus_per_task": 1, "own_gpus": True, "gpus": None, "overlap": False}),
        ({"SLURM_GPUS_PER_TASK": "1", "SLURM_NTASKS": "4"}, ["-N1", "-n1", "x"],
         {"gpus_per_task": 1, "own_gpus": False, "gpus": 1}),
        ({"SLURM_GPUS_PER_TASK": "1", "SLURM_NTASKS": "4"}, ["--gres=gpu:4", "x"],
         {"gpus_per_task": 0, "gpus": 4}),
        ({"SLURM_GPUS_PER_TASK": "1", "DLSCHED_STEP": "0"}, ["x"], {"overlap": True}),
        ({"SLURM_NTASKS_PER_GPU": "2", "SLURM_NTASKS": "4"}, ["x"],
         {"tasks_per_gpu": 2, "gpus": None, "ntasks": 4}),
        ({"SLURM_GPU_BIND": "single:1"}, ["x"], {"tasks_per_gpu": 1}),
        ({"SLURM_GPU_BIND": "single:1"}, ["--gpu-bind=none", "x"], {"tasks_per_gpu": 0}),
        ({"SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": "2"}, ["x"], {"plane": 2}),
        ({"SLURM_LABELIO": "1"}, ["x"], {"label": True}),
        ({"SLURM_LABELIO": "0"}, ["x"], {"label": False}),
    ],
)  # fmt: skip
def test_what_the_job_was_submitted_with_holds_for_its_steps(
    keeper: Any, variables: dict[str, str], arguments: list[str], asked: dict[str, object]
) -> None:
    wanted, err = asked_for(keeper, *arguments, **variables)
    assert {name: getattr(wanted, name) for name in asked} == asked
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-n4", "x"], {"SLURM_DISTRIBUTION": "block"}),
        (["x"], {"SLURM_DISTRIBUTION": "cyclic"}),  # one task on each node
        (["-m", "plane=2", "x"], {"SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": "2"}),
    ],
)
def test_a_step_tells_how_its_tasks_are_spread(
    keeper: Any, arguments: list[str], told: dict[str, str]
) -> None:
    wanted, _ = asked_for(keeper, *arguments)
    assert told.items() <= wanted.environment.items()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "srun: without effect here: --cpu-bind, -p, --mem, -v, --distribution=:cyclic\n"),
        (["-Q"], ""),
    ],
)
def test_options_without_effect_are_noted_in_one_line(
    keeper: Any, more: list[str], said: str
) -> None:
    options = ["--cpu-bind=cores", "-p", "gpu", "-m", "block:cyclic", "--mem=4G", "-v"]
    assert asked_for(keeper, *more, *options, "x")[1] == said


def test_the_kinds_of_mpi_are_listed(keeper: Any) -> None:
    assert ended(srun(keeper, "--mpi=list")) == (0, "MPI plugin types are...\n\tnone\n", "")


def test_each_task_runs_the_program_of_its_line(keeper: Any, tmp_path: Path) -> None:
    (tmp_path / "programs").write_text(
        "# what runs where\n0 echo first '%t of' %o\n1-2 sh -c 'echo $RANK %o'\n* echo rest#4\n"
    )
    wanted, _ = asked_for(keeper, "-n5", "--multi-prog", str(tmp_path / "programs"))
    said = [
        subprocess.run(
            wanted.argv, env={"RANK": str(rank)}, capture_output=True, text=True, check=True
        ).stdout
        for rank in range(5)
    ]
    assert said == ["first 0 of 0\n", "1 0\n", "2 1\n", "rest#4\n", "rest#4\n"]
    assert wanted.name == "programs"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 a\n", "no line for task 1 of 2"),
        ("0-2 a\n", "programs:1: task 2: the tasks are 0 to 1"),
        ("* a\n1 b\n", "programs:2: task 1 has a program already"),
        ("x a\n", "programs:1: 'x' are no tasks (0, 1-3,5 or *)"),
        ("1-0 a\n", "programs:1: '1-0' are no tasks (0, 1-3,5 or *)"),
        ("0 a 'b\n", "programs:1: no closing quotation"),
        ("0\n", "programs:1: has no program"),
    ],
)
def test_a_file_of_programs_that_is_wrong_is_refused_with_its_line(
    keeper: Any, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "programs").write_text(text)
    code, _, err = ended(srun(keeper, "-n2", "--multi-prog", str(tmp_path / "programs")))
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_a_step_that_must_start_at_once_gives_up(keeper: Any) -> None:
    caller = srun(keeper, "-I1", "--gres=gpu:4", "x")
    serve(keeper)
    while keeper.fds:
        os.close(keeper.fds.pop())
    code, _, err = ended(caller)
    assert (code, err) == (1, "srun: error: the GPUs that it asks for are not free in time\n")


def test_scontrol_shows_hostnames() -> None:
    def show(*arguments: str, nodes: str = "") -> tuple[int, str]:
        found = subprocess.run(
            [sys.executable, "-m", "dlsched.cli.slurm", "scontrol", *arguments],
            env={**os.environ, "SLURM_JOB_NODELIST": nodes},
            capture_output=True,
            text=True,
            check=False,
        )
        return found.returncode, found.stdout

    assert show("show", "hostnames", nodes="n[1-2]") == (0, "n1\nn2\n")
    assert show("show", "hostnames", "a,b[09-10]x") == (0, "a\nb09x\nb10x\n")
    assert show("show", "hostlist", "n1,n2,n7") == (0, "n[1-2,7]\n")
    assert show("show", "hostnames", "a]")[0] == 2
    assert show("shutdown")[0] == 2
