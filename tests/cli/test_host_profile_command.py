"""`admin profile host`: what it refuses before it submits anything."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--model", "a", "--cpus", "1,x"), "--cpus: 'x' is not a whole number above 0"),
        (("--model", "a", "--cpus", "0"), "--cpus: '0' is not a whole number above 0"),
        (("--model", "a"), "--cpus: numbers of processors are needed"),
        (("--cpus", "1"), "--model: the profile needs the name"),
    ],
)
def test_odd_words_are_one_line(dlsched: Any, options: tuple[str, ...], says: str) -> None:
    called = dlsched("admin", "profile", "host", *options, "-o", "-", "--", "true")
    assert called.code == 2
    assert says in called.err
    assert called.err.count("\n") == 1
