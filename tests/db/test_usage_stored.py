"""What owners have used is stored as it was counted, on both kinds of databases."""

from __future__ import annotations

from dataclasses import replace

from dlsched.db.records import ClockMoved
from dlsched.db.store import Store
from dlsched.db.usage import UsedByOwner
from dlsched.protocol.ledger import Attach
from dlsched.protocol.messages import Epoch

ANN = UsedByOwner(user_name="ann", account="lab", vc="x", gpu_s=0.1 + 0.2, at=1.7e9 / 3, gpus=0.3)
BOB = UsedByOwner(user_name="bob", account="", vc="", gpu_s=1e-9, at=5.0)


def test_usage_is_read_bit_for_bit_and_the_last_row_of_an_owner_counts(
    store: Store, epoch: Epoch
) -> None:
    earlier = replace(ANN, gpu_s=7.0)
    store.persist(epoch, 1, [Attach(earlier), Attach(BOB), Attach(ANN)], 0.0)
    assert store.load().usage == (ANN, BOB)
    store.persist(epoch, 2, [Attach(replace(BOB, gpus=2.0))], 0.0)
    assert store.load().usage == (ANN, replace(BOB, gpus=2.0))


def test_the_times_of_usage_move_with_the_clock(store: Store, epoch: Epoch) -> None:
    store.persist(epoch, 1, [Attach(BOB)], 0.0)
    store.persist(epoch, 2, [Attach(ClockMoved(by_s=60.0))], 0.0)
    assert store.load().usage == (BOB.moved(60.0),)
