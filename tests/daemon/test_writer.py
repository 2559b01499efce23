"""The writer on a real store."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlsched.daemon.writer import StoreAnswer, StoreFailed, TermBegun, Writer, Written
from dlsched.db.errors import StoreUnavailable
from dlsched.db.reading.loading import Loaded
from dlsched.db.store import Store
from dlsched.protocol import leader
from dlsched.protocol.messages import Epoch

Started = tuple[Store, Writer, queue.SimpleQueue[StoreAnswer]]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    """A writer on an empty store, and what it has said."""
    said: queue.SimpleQueue[StoreAnswer] = queue.SimpleQueue()
    with Store.open(f"sqlite:///{tmp_path / 'dlsched.db'}") as store:
        writer = Writer(store, "d1", said.put)
        writer.start()
        yield store, writer, said
        writer.stop()


def test_asking_twice_for_the_lead_does_not_end_the_new_term(started: Started) -> None:
    """Beats come while a store loads: the second question finds the first answered."""
    store, writer, said = started
    writer.ask(leader.Contend(1.0))
    begun = said.get(timeout=60)
    assert isinstance(begun, TermBegun)
    epoch = begun.loaded.ledger.epoch
    writer.ask(leader.Contend(2.0))  # asked before the main thread knew
    writer.ask(leader.Confirm(3.0, epoch))
    confirmed = said.get(timeout=60)
    assert isinstance(confirmed, Written)
    assert confirmed.event(4.0) == leader.Confirmed(4.0, 3.0)
    with store.engine.begin() as connection:  # another one leads
        connection.exec_driver_sql("UPDATE leader SET epoch = epoch + 1")
    writer.ask(leader.Confirm(5.0, epoch))
    deposed = said.get(timeout=60)
    assert isinstance(deposed, Written)
    assert deposed.event(6.0) == leader.Deposed(6.0)
    writer.ask(leader.Contend(7.0))
    again = said.get(timeout=60)
    assert isinstance(again, TermBegun)
    assert again.loaded.ledger.epoch == epoch + 2


def test_a_term_that_another_one_has_followed_while_it_loaded_never_begins(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would write under the other one's epoch: the paused daemon asks again instead."""
    store, writer, said = started
    load = store.load
    loads: list[Epoch] = []

    def paused() -> Loaded:
        if not loads:
            with store.engine.begin() as connection:
                connection.exec_driver_sql("UPDATE leader SET epoch = epoch + 1")
        found = load()
        loads.append(found.ledger.epoch)
        if len(loads) == 1:
            second.set()
        return found

    second = threading.Event()
    monkeypatch.setattr(store, "load", paused)
    writer.ask(leader.Contend(1.0))
    assert second.wait(20)
    for at in range(2, 40):  # until the first term is forgotten
        writer.ask(leader.Contend(float(at)))
        try:
            begun = said.get(timeout=0.5)
            break
        except queue.Empty:
            continue
    assert isinstance(begun, TermBegun)
    assert begun.loaded.ledger.epoch == loads[-1] == 3


@pytest.mark.parametrize("name", ["load", "last_completed"])
def test_a_term_that_could_not_be_read_is_asked_for_again(
    started: Started, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Else the daemon would renew its heartbeat for ever, and no other one could lead."""
    store, writer, said = started
    read = getattr(store, name)
    failed: list[bool] = []

    def once(*given: Any) -> Any:
        if not failed:
            failed.append(True)
            raise StoreUnavailable("away")
        return read(*given)

    monkeypatch.setattr(store, name, once)
    writer.ask(leader.Contend(1.0))
    assert isinstance(said.get(timeout=60), StoreFailed)
    writer.ask(leader.Contend(2.0))
    assert isinstance(said.get(timeout=60), TermBegun)


def test_the_lead_is_confirmed_while_a_transaction_takes_long(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, writer, said = started
    writer.ask(leader.Contend(1.0))
    begun = said.get(timeout=60)
    assert isinstance(begun, TermBegun)
    done = threading.Event()
    monkeypatch.setattr(store, "persist", lambda *_: done.wait(20))
    writer.ask(leader.Persist(begun.loaded.ledger.epoch, 1, ()))
    writer.ask(leader.Confirm(3.0, begun.loaded.ledger.epoch))
    confirmed = said.get(timeout=60)
    assert isinstance(confirmed, Written)
    assert confirmed.event(4.0) == leader.Confirmed(4.0, 3.0)
    done.set()
    written = said.get(timeout=60)
    assert isinstance(written, Written)
    assert written.event(5.0) == leader.Persisted(5.0, 1)
