"""The writer on a real store."""

from __future__ import annotations

import queue
from pathlib import Path

from dlsched.daemon.writer import StoreAnswer, TermBegun, Writer, Written
from dlsched.db.store import Store
from dlsched.protocol import leader


def test_asking_twice_for_the_lead_does_not_end_the_new_term(tmp_path: Path) -> None:
    """Beats come while a store loads: the second question finds the first answered."""
    store = Store.open(f"sqlite:///{tmp_path / 'dlsched.db'}")
    said: queue.SimpleQueue[StoreAnswer] = queue.SimpleQueue()
    writer = Writer(store, "d1", said.put)
    writer.start()
    writer.ask(leader.Contend(1.0))
    begun = said.get(timeout=20)
    assert isinstance(begun, TermBegun)
    epoch = begun.loaded.ledger.epoch
    writer.ask(leader.Contend(2.0))  # asked before the main thread knew
    writer.ask(leader.Confirm(3.0, epoch))
    confirmed = said.get(timeout=20)
    assert isinstance(confirmed, Written)
    assert confirmed.event(4.0) == leader.Confirmed(4.0, 3.0)
    with store.engine.begin() as connection:  # another one leads
        connection.exec_driver_sql("UPDATE leader SET epoch = epoch + 1")
    writer.ask(leader.Confirm(5.0, epoch))
    deposed = said.get(timeout=20)
    assert isinstance(deposed, Written)
    assert deposed.event(6.0) == leader.Deposed(6.0)
    writer.ask(leader.Contend(7.0))
    again = said.get(timeout=20)
    assert isinstance(again, TermBegun)
    assert again.loaded.ledger.epoch == epoch + 2
    writer.stop()
    store.close()
