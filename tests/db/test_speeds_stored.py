"""Measured speeds: kept, replaced, forgotten, and read as they were; older tables get theirs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlsched.db.engine import open_engine, writing
from dlsched.db.errors import StoreCorrupt
from dlsched.db.speeds import SpeedKey, SpeedRow, SpeedsForgotten, SpeedsSet
from dlsched.db.store import Store
from dlsched.protocol.ledger import Attach
from dlsched.protocol.messages import Epoch

ALONE = SpeedRow(
    key=SpeedKey("resnet", 64, "v100", 1),
    steps_per_s=26.5,
    measurements=3,
    at=100.0,
    changed_at=90.0,
)
BESIDE = SpeedRow(
    key=SpeedKey("resnet", 64, "v100", 1, "a3c", 0), steps_per_s=20.25, source="root", at=101.0
)
NONE = SpeedRow(key=SpeedKey("command-1f", 0, "k80", 8), steps_per_s=0.0, measurements=1)


def persist(store: Store, epoch: Epoch, number: int, *rows: object) -> None:
    store.persist(epoch, number, [Attach(row) for row in rows], 100.0)


def test_speeds_are_kept_replaced_and_forgotten(store: Store, epoch: Epoch) -> None:
    persist(store, epoch, 1, SpeedsSet(rows=(ALONE, BESIDE, NONE)))
    assert store.load().speeds == (NONE, ALONE, BESIDE)
    faster = replace(ALONE, steps_per_s=30.0, measurements=4, at=200.0)
    persist(store, epoch, 2, SpeedsSet(rows=(ALONE,)), SpeedsSet(rows=(faster,)))
    assert store.load().speeds == (NONE, faster, BESIDE)
    persist(store, epoch, 3, SpeedsForgotten(keys=(ALONE.key, NONE.key)))
    persist(store, epoch, 4, SpeedsForgotten(keys=(ALONE.key,)))
    assert store.load().speeds == (BESIDE,)


@pytest.mark.parametrize("wrong", ["steps_per_s = -1", "gpus = 0"])
def test_a_speed_that_cannot_be_is_named(tmp_path: Path, wrong: str) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    with Store.open(url) as store:
        term = store.contend("daemon-1")
        assert term is not None
        persist(store, term.epoch, 1, SpeedsSet(rows=(ALONE,)))
    engine = open_engine(url)
    with writing(engine) as connection:
        connection.exec_driver_sql(f"UPDATE speeds SET {wrong}")
    engine.dispose()
    with Store.open(url) as store, pytest.raises(StoreCorrupt, match="speeds row resnet"):
        store.load()
