"""The cause of a failure is found in outputs of one process and of several ranks."""

from __future__ import annotations

import pytest

from dlsched.daemon.reported.error_texts import Weight, weight_of
from dlsched.daemon.reported.output_errors import LONGEST, Output

GLOO = "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:4"
TWO_RANKS = f"""\
step 41 loss 0.3
[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank0]:   File "/data/train.py", line 40, in step
[rank1]:   File "/data/train.py", line 12, in read
[rank0]: {GLOO}
[rank1]:     raise ValueError("shard 17 is truncated")
[rank1]: ValueError: shard 17 is truncated
"""
SYNTAX = """\
  File "/data/train.py", line 2
    x = (1,
        ^
SyntaxError: '(' was never closed
"""


def torchrun(first: int, code: int, others: int = -15) -> str:
    """What torchrun writes when a rank has failed first."""
    said = [("Failures:", 1 - first, others), ("Root Cause (first observed failure):", first, code)]
    return (
        f"E1129 20:11:22.479000 22815 torch/distributed/elastic/multiprocessing/api.py:1002] "
        f"failed (exitcode: {code}) local_rank: {first} (pid: 2) of binary: /usr/bin/python\n"
        'Traceback (most recent call last):\n  File "/usr/bin/torchrun", line 8, in <module>\n'
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n====\n"
        "train.py FAILED\n----\n"
        + "".join(
            f"{title}\n[{n}]:\n  time      : 2026-11-29_20:11:22\n  host      : n2.example\n"
            f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {40 + n}) \n"
            "  error_file: <N/A>\n  traceback : To enable traceback see: https://pytorch.org/x\n"
            for n, (title, rank, code) in enumerate(said)
        )
        + "====\n"
    )


SPAWN = 'Traceback (most recent call last):\n  File "/x/spawn.py", line 211, in join\n'
CASES = {
    "two ranks": (TWO_RANKS, 1, "ValueError: shard 17 is truncated (train.py:12)"),
    "two ranks below torchrun": (
        TWO_RANKS + torchrun(1, 1),
        1,
        "ValueError: shard 17 is truncated (train.py:12)",
    ),
    "an error of syntax": (SYNTAX, None, "SyntaxError: '(' was never closed (train.py:2)"),
    "an error of syntax below torchrun": (
        SYNTAX + SYNTAX + torchrun(0, 1, 1),
        0,
        "SyntaxError: '(' was never closed (train.py:2)",
    ),
    "only a code below torchrun": (
        f"[rank0]: Traceback (most recent call last):\n[rank0]: {GLOO}\n" + torchrun(1, 7),
        1,
        "exit 7",
    ),
    "a rank that was killed below torchrun": (
        f"[rank0]: Traceback (most recent call last):\n[rank0]: {GLOO}\n" + torchrun(1, -9),
        1,
        "signal 9",
    ),
    "a crash in C below torchrun": (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n"
        f'  File "/x/t.py", line 4 in <module>\n[rank0]: Traceback (most recent call last):\n'
        f"[rank0]: {GLOO}\n" + torchrun(1, -11),
        1,
        "Fatal Python error: Segmentation fault",
    ),
    "a process of spawn that raises": (
        SPAWN + "torch.multiprocessing.spawn.ProcessRaisedException: \n\n"
        "-- Process 1 terminated with the following error:\nTraceback (most recent call last):\n"
        '  File "/x/fit.py", line 8, in f\nKeyError: 3\n',
        1,
        "KeyError: 3 (fit.py:8)",
    ),
    "a process of spawn that exits": (
        SPAWN + "torch.multiprocessing.spawn.ProcessExitedException: "
        "process 1 terminated with exit code 7\n",
        1,
        "exit 7",
    ),
    "a process of spawn that is killed": (
        SPAWN + "torch.multiprocessing.spawn.ProcessExitedException: "
        "process 1 terminated with signal SIGKILL\n",
        1,
        "signal 9",
    ),
    "a worker of a loader": (
        'Traceback (most recent call last):\n  File "/x/_utils.py", line 794, in reraise\n'
        "KeyError: Caught KeyError in DataLoader worker process 0.\n"
        'Original Traceback (most recent call last):\n  File "/x/data.py", line 8, in get\n'
        "KeyError: 'shard 17'\n\n",
        None,
        "KeyError: 'shard 17' (data.py:8)",
    ),
    "NCCL whose GPU is full": (
        "[rank1]: Traceback (most recent call last):\n[rank1]: "
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp, unhandled cuda error\n"
        "[rank1]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank1]: Last error:\n"
        "[rank1]: Cuda failure 2 'out of memory'\n"
        "[rank0]: Traceback (most recent call last):\n[rank0]: "
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp, remote process exited\n"
        "[rank0]: ncclRemoteError: A call failed possibly due to a network error\n",
        1,
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp, unhandled cuda error: "
        "Cuda failure 2 'out of memory'",
    ),
    "a watchdog after an error": (
        "[rank1]: Traceback (most recent call last):\n[rank1]: KeyError: 3\n"
        "[rank0]:[E1129 13:00:00.123 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=12)\n"
        "[rank1]:[E1129 13:00:00.123 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=11)\n",
        1,
        "KeyError: 3",
    ),
    "only watchdogs": (
        "[rank1]:[E1129 13:00:00.123 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=12)\nI am innocent\n",
        1,
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12)",
    ),
    "an exception of C++": (
        "terminate called after throwing an instance of 'c10::Error'\n"
        "  what():  CUDA error: an illegal memory access was encountered\n",
        None,
        "c10::Error: CUDA error: an illegal memory access was encountered",
    ),
    "an error that was survived": (
        "Traceback (most recent call last):\nFileNotFoundError: cache\n"
        + "step\n" * 30
        + "Traceback (most recent call last):\nKeyError: 3\n",
        None,
        "KeyError: 3",
    ),
    "an error while another is handled": (
        "Traceback (most recent call last):\nKeyError: 3\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\nValueError: no such layer\n",
        None,
        "ValueError: no such layer",
    ),
    "an error at the exit that Python ignores": (
        "Traceback (most recent call last):\nKeyError: 3\n"
        "Exception ignored in: <function f at 0x7f>\nTraceback (most recent call last):\n"
        "AttributeError: x\n",
        None,
        "KeyError: 3",
    ),
    "ranks of srun": (
        f"[rank0]: Traceback (most recent call last):\n[rank0]: {GLOO}\n"
        "dlsched: run: rank 0 on n1: ended with the others\n"
        "dlsched: run: rank 1 on n2: exit code 5\n",
        1,
        "exit 5",
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("label", ["", "1: "])
def test_the_cause_comes_first(name: str, label: str) -> None:
    """With and without the number before each line that ranks of one file have."""
    text, rank, error = CASES[name]
    labelled = "".join(f"{label}{line}\n" for line in text.splitlines())
    first = Output(labelled).errors()[0]
    assert (first.rank, str(first)) == (rank, error)
    assert first.label == (1 if label else None)


def test_launchers_name_nodes() -> None:
    assert Output(CASES["ranks of srun"][0]).errors()[0].node == "n2"
    assert Output(torchrun(1, 7)).errors()[0].node == "n2.example"


def test_without_errors_the_last_line_that_speaks_of_one_counts() -> None:
    output = Output("a\ntrain.sh: line 3: pyhton: command not found\nbye\n")
    assert (output.errors(), output.last_words(None)) == (
        [],
        "train.sh: line 3: pyhton: command not found",
    )
    assert Output("all is well\n").last_words(None) == ""
    labelled = Output("0: error: a\n1: error: b\n")
    assert (labelled.last_words(0), labelled.last_words(1)) == ("error: a", "error: b")


HOSTILE = (
    *("gloo ", "connection closed ", "TCPStore ", "Caught x in ", "watchdog ", "tasks ", "a."),
    *("Error", "x: ", "1: ", "[rank1]: ", "F0101 ] ", "E0101 ProcessGroup]", "exit 1", "\x0b"),
)


@pytest.mark.parametrize("word", HOSTILE)
def test_what_a_user_writes_costs_no_more_than_its_length(word: str) -> None:
    """Patterns that try each place with each other one would not end with so long a line."""
    assert weight_of(word * (1_000_000 // len(word))) in Weight


@pytest.mark.parametrize("line", [100_000, 500, 1])
@pytest.mark.parametrize("word", HOSTILE)
def test_of_any_output_a_bounded_number_of_errors_is_kept(word: str, line: int) -> None:
    traceback = "Traceback (most recent call last):\nRuntimeError: "
    each = traceback + f"{word * (line // len(word) + 1)}\n" * 9
    output = Output(each * (1_000_000 // len(each) + 1))
    errors = output.errors()
    assert len(errors) <= 1024 + 64
    assert all(len(str(error)) <= LONGEST for error in errors)
    assert len(output.last_words(None)) <= LONGEST


def test_ranks_and_codes_without_end_are_bounded() -> None:
    ranks = "".join(f"[rank{n}]: Traceback (most recent\n[rank{n}]: E{n}: x\n" for n in range(3000))
    codes = "".join(f"dlsched: run: rank {n} on n1: exit code 3\n" for n in range(3000))
    assert len(Output(ranks).errors()) == 1024
    assert len(Output(codes).errors()) == 1024
    assert Output("9" * 5000 + ": ValueError: x\n").errors() == []  # no number that Python reads
