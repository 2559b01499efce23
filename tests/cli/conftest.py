"""What the command line's tests share: a call in this process, as a user would make it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from dlsched.cli.main import run


class Called(NamedTuple):
    """What came of a call."""

    code: int
    out: str
    err: str


@pytest.fixture
def dlsched(capfd, monkeypatch) -> Callable[..., Called]:
    """Call `dlsched` with some words; both streams are pipes."""

    def call(*words: object) -> Called:
        monkeypatch.setattr("sys.argv", ["dlsched", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            run()
        out, err = capfd.readouterr()
        return Called(int(stop.value.code or 0), out, err)

    return call


@pytest.fixture
def trace(tmp_path):
    """Five jobs: the second blocks, so that policies differ."""
    path = tmp_path / "tiny.csv"
    path.write_text(
        "job_id,submit_time,num_gpus,duration,user,vc\n"
        "a,0,3,100,ann,red\n"
        "b,10,4,100,bob,red\n"
        "c,20,1,50.5,ann,blue\n"
        "d,30,1,10,bob,blue\n"
        "e,300,4,10,ann,red\n"
    )
    return path
