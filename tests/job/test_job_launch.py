from __future__ import annotations

import os
import signal
import subprocess
import sys
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
        (["-n", "5", "-u", "--mpi=pmix", "--cpu-bind", "none", "-c", "4", "x"],
         {"ntasks": 5, "cpus_per_task": 4}),
        (["--ntasks-per-node=4", "x"], {"ntasks": 0, "per_node": 4}),
        (["-N1", "-n1", "-w", "n2", "--jobid=7", "x"], {"ntasks": 1, "nodes": ("n2",)}),
        (["-N", "1", "-x", "n1", "x"], {"ntasks": 1, "nodes": ("n2",)}),
        (["--gres=gpu:v100:2", "x"], {"gpus": 2, "overlap": False}),
        (["--gpus=4", "--overlap", "x"], {"gpus": 2, "overlap": True}),
        (["--gres=none", "x"], {"gpus": 0}),
        (["-n4", "--gpus-per-task=1", "x"], {"gpus": 2, "gpus_per_task": 1}),
        (["--ntasks-per-gpu=1", "x"], {"per_node": 4, "ntasks": 0}),
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
        (["--multi-prog", "x"], "unrecognized arguments: --multi-prog"),
        (["--gres=lustre:1", "x"], "--gres=lustre:1: gpu is the only resource"),
        (["--time=x", "x"], "--time x: not a time limit"),
        (["--input=2", "x"], "--input=2: the tasks are 0 to 1"),
        ([], "no command to run"),
    ],
)
def test_srun_refuses_the_rest_in_one_line(keeper: Any, arguments: list[str], said: str) -> None:
    code, _, err = ended(srun(keeper, *arguments))
    assert code == 2
    assert err.startswith("srun: error: ")
    assert said in err
    assert err.count("\n") == 1


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
