"""The cause of a failure is found among the errors that follow from it."""

from __future__ import annotations

from dlsched.daemon.reported.failures import MOST_OF_A_RUN, Failure, Failures, first_cause
from dlsched.protocol.messages import RunId

PEER = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:41"


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


def test_a_code_is_a_cause_but_that_of_an_exception_counts_after_words() -> None:
    exited = failure(1, "exit 7", 1.0)
    assert first_cause([failure(0, PEER, 0.5), failure(2, "ValueError: x", 2.0), exited]) == exited
    said = failure(2, "ValueError: x", 2.0)
    assert first_cause([failure(1, "exit 1", 1.0), said]) == said
    assert first_cause([failure(0, PEER, 0.5), failure(1, "exit 1", 1.0)]).rank == 1


def test_what_ranks_say_is_bounded() -> None:
    failures = Failures()
    for k in range(1000):
        failures.add(RunId("a"), failure(k, "exit 1", 1.0))
    assert len(failures.of[RunId("a")]) == MOST_OF_A_RUN
    cause = failure(1001, "ValueError: x", 2.0)
    failures.add(RunId("a"), cause)
    assert first_cause(failures.of[RunId("a")]) == cause
    failures.forget(RunId("a"))
    assert not failures.of
