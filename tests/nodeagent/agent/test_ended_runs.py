"""The ends of runs that an agent remembers after the daemon has acknowledged them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.nodeagent.agent.keepers.ended_runs import EndedRuns
from dlsched.protocol.messages import ExitReason, ExitRecord, JobId, NodeName, RunId, RunKey


def end_of(job: int, code: int = 0) -> ExitRecord:
    key = RunKey(JobId(job), 1, RunId(f"{job}-ab"))
    detail = "line\nbreak"
    return ExitRecord(
        key=key, node=NodeName("n1"), reason=ExitReason.EXITED, code=code, detail=detail
    )


def opened(folder: Path, remembered: int = 100) -> EndedRuns:
    found = EndedRuns(str(folder), remembered)
    found.read()
    return found


@given(batches=st.lists(st.lists(st.integers(1, 60), unique=True, max_size=8), max_size=30))
@settings(max_examples=60, deadline=None)
def test_the_newest_ends_are_known_to_each_later_agent(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("run")
    written: list[tuple[int, int]] = []
    for number, batch in enumerate(batches):
        ends = opened(folder, remembered=5)  # another agent each time
        ends.add({RunId(f"{job}-ab"): end_of(job, number) for job in batch})
        written += [(job, number) for job in batch]
        newest = dict(written)
        for job, code in written[-5:]:
            if newest[job] == code:
                assert ends.find(RunId(f"{job}-ab")) == end_of(job, code)
    assert len((folder / "ended").read_bytes().splitlines() if written else ()) <= 18


@pytest.mark.parametrize("first", [[], [1]], ids=["the first line", "a later line"])
def test_a_line_that_was_cut_short_is_no_end_and_harms_no_later_one(
    tmp_path: Path, first: list[int]
) -> None:
    opened(tmp_path).add({RunId(f"{job}-ab"): end_of(job) for job in first})
    with (tmp_path / "ended").open("ab") as file:
        file.write(b'2-ab {"reason": "exi')
    ends = opened(tmp_path)
    assert RunId("2-ab") not in ends
    ends.add({RunId("3-ab"): end_of(3)})
    later = opened(tmp_path)
    assert [later.find(RunId(f"{job}-ab")) for job in (*first, 3)] == [
        end_of(job) for job in (*first, 3)
    ]


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/dev/full").exists(), reason="no full device")
def test_a_full_disk_is_told_and_what_was_known_is_known(tmp_path: Path) -> None:
    ends = opened(tmp_path)
    (tmp_path / "ended").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space"):
        ends.add({RunId("1-ab"): end_of(1)})
    assert RunId("1-ab") not in ends
    (tmp_path / "ended").unlink()
    ends.add({RunId("2-ab"): end_of(2)})
    assert ends.find(RunId("2-ab")) == end_of(2)
