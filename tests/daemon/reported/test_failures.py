"""The cause of a failure is found among the errors that follow from it."""

from __future__ import annotations

from dlsched.daemon.reported.failures import MOST_OF_A_RUN, Failure, Failures, error_in, first_cause
from dlsched.protocol.messages import RunId

PEER = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:41"
TORCHRUN = """\
step 41 loss 0.3
[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 40, in step
[rank1]:   File "train.py", line 12, in read
[rank0]: RuntimeError: NCCL communicator was aborted: remote process exited
[rank1]:     raise ValueError("shard 17 is truncated")
[rank1]: ValueError: shard 17 is truncated
E1122 13:00 torch/distributed/elastic/multiprocessing/api.py: failed (exitcode: 1) local_rank: 1
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


def failure(rank: int, error: str, at: float) -> Failure:
    return Failure(rank=rank, node=f"n{rank}", error=error, at=at)


def test_a_lost_connection_is_not_the_cause() -> None:
    cause = failure(2, "ValueError: bad", 5.0)
    assert first_cause([failure(0, PEER, 1.0), cause, failure(1, "signal 15", 0.5)]) == cause
    assert str(cause) == "rank 2 on n2: ValueError: bad"


def test_words_of_a_rank_count_before_its_code() -> None:
    cause = failure(2, "ValueError: bad", 5.0)
    assert first_cause([failure(2, "exit 1", 4.0), cause]) == cause
    crash = failure(1, "signal 11", 4.5)
    assert first_cause([failure(2, PEER, 4.0), failure(2, "exit 1", 4.1), crash]) == crash


def test_if_all_are_follow_ups_the_first_counts() -> None:
    assert first_cause([failure(0, PEER, 2.0), failure(1, PEER, 1.0)]).rank == 1


def test_an_output_of_several_ranks_has_one_cause() -> None:
    assert error_in(TORCHRUN) == (1, "ValueError: shard 17 is truncated")
    assert error_in(TORCHRUN.replace("ValueError", "EOFError")) is not None
    assert error_in("a\ntrain.sh: line 3: pyhton: command not found\nbye") == (
        None,
        "train.sh: line 3: pyhton: command not found",
    )
    assert error_in("all is well\n") is None
    assert error_in("Traceback (most recent call last):\n  x\nKeyError: 'lr'") == (
        None,
        "KeyError: 'lr'",
    )


def test_what_ranks_say_is_bounded() -> None:
    failures = Failures()
    for k in range(1000):
        failures.add(RunId("a"), failure(k, "exit 1", 1.0))
    assert len(failures.of[RunId("a")]) == MOST_OF_A_RUN
    failures.forget(RunId("a"))
    assert not failures.of
