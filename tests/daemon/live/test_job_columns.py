"""The live jobs' table grows, is sorted and packed, and a round's copy loses nothing on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dlsched.daemon.live.job_columns import JobColumns, PackedRow, SeenJobs
from dlsched.daemon.round.codec import decode, encode
from dlsched.daemon.round.decide import decide
from dlsched.daemon.round.snapshot import LiveSnapshot
from dlsched.daemon.round.snapshot_builder import take_snapshot

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 90)),
        st.tuples(st.just("drop"), st.integers(2, 5)),
        st.tuples(st.just("write"), st.integers(0, 10_000)),
    ),
    max_size=12,
)


@given(steps=STEPS)
def test_rows_keep_their_values_while_the_table_grows_and_is_packed(steps: list[Any]) -> None:
    jobs, known = JobColumns(room=4), dict[int, tuple[int, float]]()
    clock = jobs.clock  # one for good: it writes to the table as it is then
    number = 0
    for kind, count in steps:
        if kind == "submit":
            ids = list(range(number + 1, number + 1 + count))
            number += count
            row = PackedRow.of({"gang": count, "gpu_share": 1.0})
            jobs.append(ids, [row], [count], since=float(count))
            known |= dict.fromkeys(ids, (count, 0.0))
        elif kind == "drop":
            gone = jobs.pack(jobs.job % count != 0)
            assert gone == [job for job in known if job % count == 0]
            known = {job: each for job, each in known.items() if job % count}
        elif known:
            job = sorted(known)[count % len(known)]
            clock.checkpoint(jobs.row_of[job], float(count))
            known[job] = known[job][0], float(count)
        assert jobs.job.tolist() == sorted(known) == list(jobs.row_of)
        assert len(jobs) == jobs.count == len(jobs["phase"]) == len(known)
        found = zip(jobs.gang.tolist(), jobs.saved.tolist(), strict=True)
        assert dict(zip(jobs.job.tolist(), found, strict=True)) == known


def test_a_row_that_is_new_says_nothing_of_an_earlier_one() -> None:
    jobs = JobColumns(room=4)
    jobs.append([1, 2], [], [])
    jobs.set(slice(0, 2), steps_done=5.0, phase=3, held=True, preemptions=2)
    jobs.pack(np.array([True, False]))
    jobs.append([3], [], [])
    assert np.isnan(jobs.get("steps_done", 1))
    assert [jobs.get(name, 1) for name in ("phase", "held", "preemptions")] == [0, False, 0]


@given(
    values=st.dictionaries(
        st.sampled_from(["steps_done", "gang", "expected", "claimed", "status", "gpus_now"]),
        st.lists(st.sampled_from([0, 1, 2]), min_size=3, max_size=3),
    )
)
def test_columns_that_say_nothing_are_left_out_and_come_back(values: dict[str, list[int]]) -> None:
    table = SeenJobs(3)
    for name, column in values.items():
        getattr(table, name)[:] = column
    told = table.telling()
    again = SeenJobs.of_columns(3, told)
    for name in SeenJobs.kinds:
        np.testing.assert_array_equal(getattr(again, name), getattr(table, name))
        assert getattr(again, name).dtype == getattr(table, name).dtype
    assert len(told) <= 1 + len(values)


def test_a_snapshot_of_an_older_release_is_decided_as_ever(live: Any) -> None:
    """It has every column, and lacks what came later."""
    lab = live.LiveLab((4,), parts={"scheduling": "srtf"})
    for gpus in (2, 3, 1, 4):
        lab.submit(0.0, gpus, expected_s=40.0 * gpus, user=f"user{gpus}")
    lab.round(0.0)
    snapshot = take_snapshot(lab.state, "full", 60.0)
    plain = decode(snapshot.to_bytes())
    later = ("claimed", "runs", "loss", "accuracy", "gpu_util")
    every = {
        name: getattr(snapshot.table, name)
        for name in SeenJobs.kinds
        if name not in later or name in ("claimed", "runs")
    }
    assert plain["columns"].keys() < every.keys()
    plain["columns"] = every
    for name in ("gpus_by_type", "gpu_limits", "later"):
        del plain[name]
    older = LiveSnapshot.from_bytes(encode(plain))
    assert decide(older).to_bytes() == decide(snapshot).to_bytes()
