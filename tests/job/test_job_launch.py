from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dlsched.job
from dlsched.job import JobError, hostlist, launch
from dlsched.job import messages as words

SHIMS = Path(dlsched.job.__file__).parent / "shims"


def call(keeper: Any, *arguments: str, program: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = program or (sys.executable, "-m", "dlsched.job.launch")
    return subprocess.Popen(
        [*command, *arguments],
        env={**os.environ, "DLSCHED_CTL_SOCK": keeper.path, "RANK": "0", "COLOUR": "grün"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
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


def test_the_exit_code_is_the_highest_of_the_ranks(keeper: Any) -> None:
    caller = call(keeper, "--", "x")
    serve(
        keeper,
        words.Started(ranks=3),
        words.Exited(rank=0, code=3, node="n1"),
        words.Exited(rank=1, signal=11),
        words.Exited(rank=2),
        words.Done(),
    )
    while keeper.fds:
        os.close(keeper.fds.pop())
    code, _, err = ended(caller)
    assert code == 139
    assert err.splitlines() == [
        "dlsched: run: rank 0 on n1: exit code 3",
        "dlsched: run: rank 1: ended by signal 11",
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


# -- the shims -------------------------------------------------------------------------------------


def test_srun_takes_what_training_scripts_give_it(keeper: Any) -> None:
    script = [
        "--ntasks",
        "2",
        "-u",
        "--cpu-bind",
        "none",
        "--mpi=pmix",
        "-c",
        "4",
        "-K",
        "--kill-on-bad-exit",
        "-D",
        "/",
        "x",
        "y",
    ]
    caller = call(keeper, *script, program=(sys.executable, "-I", str(SHIMS / "srun")))
    wanted = serve(keeper, words.Started(ranks=2), words.Done())
    while keeper.fds:
        os.close(keeper.fds.pop())
    assert ended(caller)[0] == 0
    assert (wanted.argv, wanted.ntasks, wanted.working_directory) == (("x", "y"), 2, "/")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--pty", "bash"], "--pty"), (["-N", "7", "x"], "-N 7: only the whole allocation")],
)
def test_srun_refuses_other_options_by_name(arguments: list[str], said: str) -> None:
    found = subprocess.run(
        [sys.executable, str(SHIMS / "srun"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 2
    assert said in found.stderr


def test_scontrol_shows_hostnames() -> None:
    def show(*arguments: str, nodes: str = "") -> tuple[int, str, str]:
        found = subprocess.run(
            [str(SHIMS / "scontrol"), *arguments],
            env={**os.environ, "DLSCHED_NODELIST": nodes},
            capture_output=True,
            text=True,
            check=False,
        )
        return found.returncode, found.stdout, found.stderr

    assert show("show", "hostnames", nodes="n[1-2]") == (0, "n1\nn2\n", "")
    assert show("show", "hostnames", "a,b[09-10]x") == (0, "a\nb09x\nb10x\n", "")
    assert show("show", "hostnames", "a]")[0] == 1
    assert show("ping")[0] == 2


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("a[1-2]b[3-4]", ["a1b3", "a1b4", "a2b3", "a2b4"]),
        ("x,y[1],z", ["x", "y1", "z"]),
    ],
)
def test_a_host_list_is_expanded(text: str, hosts: list[str]) -> None:
    assert hostlist.expand(text) == hosts


@pytest.mark.parametrize(
    "text", ["n]1[", "n[1", "n[[1]]", "n[]", "n[a]", "n[3-1]", "a,,b", ",", "n[1-999999999]"]
)
def test_a_malformed_host_list_is_refused(text: str) -> None:
    with pytest.raises(JobError, match="host list"):
        hostlist.expand(text)
