"""A run that goes on over a migration to accounts keeps what it had reported and saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.live_state import LiveState
from dlsched.db.records import CheckpointCommitted, Progress
from dlsched.db.store import Store
from dlsched.db.versions import migrate
from dlsched.protocol.ledger import Attach, SuspendRun, Write
from dlsched.protocol.messages import JobId
from tests.db.first_version import take_back_0022
from tests.db.ledgers import assign, key, node, submit

JOB = JobId(1)
TOLD = Progress(run_id=key(1).run_id, step=1, executed_s=9.0, restart_s=10.0)
SAVED = CheckpointCommitted(
    job=JOB, run_id=key(1).run_id, at=980.0, path="c", step=5, size_bytes=1, sha256="",
    executed_s=960.0,
)  # fmt: skip


@pytest.fixture
def started(tmp_path: Path) -> Callable[..., LiveState]:
    """Migrates a database whose first job has a run since 20 s, and starts on it at 1000 s."""

    def start(*more: Write, gpus: int = 2, share: float | None = None) -> LiveState:
        url = f"sqlite:///{tmp_path}/a.db"
        job = submit(1, gang=(gpus,), gpu_share=share)
        job = replace(job, request=replace(job.request, gpu_share=share))
        with Store.open(url) as store:
            term = store.contend("d")
            assert term is not None
            store.persist(term.epoch, 1, [node("n1"), job], 10.0)
            store.persist(term.epoch, 2, [assign(1, ("n1", tuple(range(gpus))))], 20.0)
            store.persist(term.epoch, 3, more, 980.0)
        take_back_0022(url)
        migrate(url)
        with Store.open(url) as store:
            return LiveState().successor(store.load(), 1000.0)

    return start


def counted(live: LiveState, *names: str) -> list[float]:
    return [live.jobs.get(name, live.jobs.row_of[JOB]) for name in names]


def test_what_a_live_run_has_saved_is_not_lost_with_it(started: Callable[..., LiveState]) -> None:
    live = started(Attach(TOLD), Attach(SAVED))
    assert counted(live, "saved", "restart_s", "measured_starts") == [950.0, 10.0, 1]
    live.accounting.leave(JOB, 1000.0, 1000.0, keeps=False)
    assert counted(live, "executed", "lost_s", "overhead_s") == [950.0, 20.0, 10.0]


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([TOLD], [0.0, 10.0, 970.0]),
        ([SAVED], [960.0, 0.0, 20.0]),
        ([replace(SAVED, run_id=key(7).run_id)], [0.0, 0.0, 980.0]),
        ([replace(TOLD, restart_s=None)], [0.0, 0.0, 980.0]),
    ],
    ids=["only its start", "only a checkpoint", "another run's checkpoint", "no start measured"],
)
def test_each_report_counts_alone(
    started: Callable[..., LiveState], reports: list[object], expected: list[float]
) -> None:
    live = started(*map(Attach, reports))
    live.accounting.leave(JOB, 1000.0, 1000.0, keeps=False)
    assert counted(live, "executed", "restart_s", "lost_s") == expected


@pytest.mark.parametrize("share", [0.5, None])
def test_a_suspended_run_leaves_its_owner_with_nothing_held(
    started: Callable[..., LiveState], share: float | None
) -> None:
    live = started(SuspendRun(key(1).run_id, True), gpus=1, share=share)
    usage = live.jobs.usage
    assert counted(live, "phase") == [c.SUSPENDED]
    assert usage.owners == [("ann", "", "")]
    assert [usage.gpus.item(0), usage.as_of(87400.0).item(0)] == [0.0, 0.0]
