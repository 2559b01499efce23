"""What a new daemon reads of ended jobs, however many there are."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from dlsched.daemon.round import ended_jobs
from dlsched.daemon.round.snapshot_builder import take_snapshot
from dlsched.db.store import Store
from dlsched.protocol.messages import JobId
from tests.daemon.stored_lab import lab_on
from tests.db.histories import add_history

FIRST = 1_000_000  # before the ids of the history


def test_so_many_ended_jobs_are_read_as_policies_learn_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_jobs, "LEARN_FROM", 3)
    with Store.open(f"sqlite:///{tmp_path}/a.db") as store:
        add_history(store, 20)
        found = [each.job.job for each in ended_jobs.read_ended(store, store.load())]
        assert found == [FIRST + k for k in (18, 19, 20)]
        known = [JobId(FIRST + k) for k in range(1, 13)]
        assert store.last_ended(known, 6) == known[6:]
        assert store.last_ended([JobId(7)], 6) == []


@pytest.mark.parametrize("waiting", [0, 300], ids=["rows are dropped", "rows stay"])
def test_policies_learn_from_the_same_jobs_after_a_restart(
    live: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waiting: int
) -> None:
    most, random_ = 12, random.Random(5)
    monkeypatch.setattr(ended_jobs, "LEARN_FROM", most)

    def to_learn_from() -> list[int]:
        snapshot = take_snapshot(lab.state, "full", now)
        return [int(job) for job in snapshot.table.job[snapshot.finished]]

    with Store.open(f"sqlite:///{tmp_path}/a.db") as store:
        parts = {"scheduling": "first-fit"}
        lab = lab_on(live, store, (8,), parts=parts, learn_from=most, round_s=60.0)
        now = 1e6
        for _ in range(waiting):  # on more GPUs than there are
            lab.submit(now, 16)
        for tick in range(16):
            for place, job in enumerate(random_.sample(list(lab.running()), len(lab.running()))):
                if random_.random() < 0.7:
                    lab.end(now - 30.0 + place, job, code=int(random_.random() < 0.2))
            for _ in range(7):
                lab.submit(now)
            before = to_learn_from()
            if tick % 3 != 1:
                lab.restart(now)
            assert to_learn_from() == before
            lab.round(now)
            now += 60.0
    assert len(before) == most
