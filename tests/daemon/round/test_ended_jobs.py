"""What a new daemon reads of ended jobs, however many there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.daemon.round import ended_jobs
from dlsched.db.store import Store
from dlsched.protocol.messages import JobId
from tests.db.histories import add_history

FIRST = 1_000_000  # before the ids of the history


def test_so_many_ended_jobs_are_read_as_policies_learn_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_jobs, "LEARN_FROM", 3)
    monkeypatch.setattr(ended_jobs, "MOST", 6)
    with Store.open(f"sqlite:///{tmp_path}/a.db") as store:
        add_history(store, 20)
        found = [each.job.job for each in ended_jobs.read_ended(store, store.load())]
        assert found == [FIRST + k for k in (18, 19, 20)]
        known = [JobId(FIRST + k) for k in range(1, 13)]
        assert store.last_ended(known, 6) == known[6:]
        assert store.last_ended([JobId(7)], 6) == []
