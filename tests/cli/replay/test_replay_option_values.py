from __future__ import annotations

import pytest

from dlsched.cli.replay.option_values import at_least, loads, positive, seeds, several, tracked
from dlsched.core.errors import BadInput


def test_a_comma_makes_a_list_and_none_leaves_the_default():
    assert several("--policy", "fifo, las") == ("fifo", "las")
    assert several("--placement", None) == ("",)
    assert loads("0.8,1,1.2") == (0.8, 1.0, 1.2)
    assert loads(None) == (None,)
    assert seeds("3,1") == (3, 1)


def test_tracked_jobs_are_two_ids():
    assert tracked("1000:2000") == ("1000", "2000")
    assert tracked(None) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: several("--policy", "fifo,"), "--policy 'fifo,' has an empty entry"),
        (lambda: several("--policy", "fifo,fifo"), "--policy lists fifo twice"),
        (lambda: loads("1,1.0"), "--load lists 1.0 twice"),
        (lambda: loads("inf"), "--load must be a positive number, not 'inf'"),
        (lambda: loads("nan"), "--load must be a positive number, not 'nan'"),
        (lambda: seeds("1.5"), "--seed must be a whole number of at least 0, not '1.5'"),
        (lambda: seeds("²"), "--seed must be a whole number of at least 0, not '²'"),
        (lambda: tracked("5"), "--track '5' is not A:B, two job ids"),
        (lambda: tracked(":5"), "--track ':5' is not A:B, two job ids"),
        (lambda: positive("--round", 0.0), "--round must be a positive number of seconds, not 0"),
        (
            lambda: at_least("--warmup", float("nan")),
            "--warmup must be a number of seconds of at least 0, not nan",
        ),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(call, message):
    with pytest.raises(BadInput) as refused:
        call()
    assert str(refused.value) == message
