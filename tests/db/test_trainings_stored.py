"""What elastic jobs have told: kept beyond them, loaded while they live; old tables get it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlsched.db.engine import open_engine, writing
from dlsched.db.errors import StoreCorrupt
from dlsched.db.store import Store
from dlsched.db.trainings import CurvesRow, TrainingRow
from dlsched.protocol.ledger import Attach, CancelJob
from dlsched.protocol.messages import Epoch, JobId
from tests.db.ledgers import submit

KNOWN = {"limits": [128, 1024, 1, 256, True, False], "gradients": [0.5, 1e-300]}


def told(job: int, **known: object) -> TrainingRow:
    return TrainingRow(job=JobId(job), known=known or KNOWN, at=100.0)


def test_the_last_word_of_live_jobs_is_loaded(store: Store, epoch: Epoch) -> None:
    store.persist(epoch, 1, [submit(1), submit(2), Attach(told(1)), Attach(told(2, a=1))], 1.0)
    store.persist(epoch, 2, [Attach(told(2, a=2)), Attach(told(2, a=3))], 2.0)
    assert store.load().trainings == (told(1), told(2, a=3))
    store.persist(epoch, 3, [CancelJob(JobId(1), "user")], 3.0)
    assert store.load().trainings == (told(2, a=3),)
    assert store.training(JobId(1)) == told(1)
    assert store.training(JobId(7)) is None


def test_curves_are_kept_beside_them(store: Store, epoch: Epoch) -> None:
    curves = CurvesRow(job=JobId(1), known={"curves": {}}, at=2.0)
    store.persist(epoch, 1, [submit(1), Attach(told(1)), Attach(curves)], 1.0)
    loaded = store.load()
    assert (loaded.trainings, loaded.curves) == ((told(1),), (curves,))
    store.persist(epoch, 2, [CancelJob(JobId(1), "user")], 2.0)
    assert store.load().curves == ()
    assert store.curves(JobId(1)) == curves
    assert store.curves(JobId(2)) is None


@pytest.mark.parametrize("wrong", ["{", "7"])
def test_what_cannot_be_read_is_named(tmp_path: Path, wrong: str) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with Store.open(url) as store:
        term = store.contend("daemon-1")
        assert term is not None
        store.persist(term.epoch, 1, [submit(1), Attach(told(1))], 1.0)
    engine = open_engine(url)
    with writing(engine) as connection:
        connection.exec_driver_sql(f"UPDATE trainings SET known = '{wrong}'")
    engine.dispose()
    with Store.open(url) as store, pytest.raises(StoreCorrupt, match="trainings row 1"):
        store.load()
