"""Events for an audit: the newest first, by user, kind, node and time, in bounded stretches."""

from __future__ import annotations

import pytest

from dlsched.db.reading import events
from dlsched.db.reading.events import AuditFilter
from dlsched.db.records import Event
from dlsched.db.store import Store
from dlsched.protocol.ledger import Attach
from dlsched.protocol.messages import Epoch, JobId, NodeName

ACTORS = ("ann", "daemon", "bob", "node n1", "policy fifo", "job")


@pytest.fixture
def filled(store: Store, epoch: Epoch) -> Store:
    """Sixty events, one each second, by six actors in turn."""
    rows = [
        Event(
            at=float(k),
            kind="drain" if k % 2 else "cancel",
            actor=ACTORS[k % 6],
            job=JobId(k),
            node=NodeName(f"n{k % 3}"),
        )
        for k in range(60)
    ]
    store.persist(epoch, 1, [Attach(row) for row in rows], 1.0)
    return store


def read(store: Store, limit: int = 7, **wanted: object) -> list[int]:
    """The seconds of all events of a filter, read in pages."""
    found: list[int] = []
    before: int | None = None
    while before != 0:
        page, before = store.audit(AuditFilter(**wanted), before, limit=limit)  # type: ignore[arg-type]
        assert len(page) <= limit
        found += [int(each.event.at) for each in page]
    return found


@pytest.mark.parametrize("stretch", [4, 1_000])
def test_filters_and_order(filled: Store, stretch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STRETCH", stretch)
    newest_first = range(59, -1, -1)
    assert read(filled) == [k for k in newest_first if ACTORS[k % 6] in ("ann", "bob")]
    assert read(filled, parts_too=True) == list(newest_first)
    assert read(filled, actors=("daemon",)) == [k for k in newest_first if k % 6 == 1]
    assert read(filled, kinds=("drain",), parts_too=True) == [k for k in newest_first if k % 2]
    named = {"nodes": (NodeName("n1"),), "since": 20.0, "until": 40.0, "parts_too": True}
    assert read(filled, **named) == [k for k in newest_first if k % 3 == 1 and 20 <= k < 40]
    assert read(filled, jobs=(JobId(8), JobId(3)), parts_too=True) == [8, 3]
    assert read(filled, actors=("carl",)) == []


def test_what_is_too_old_is_not_read(filled: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STRETCH", 10)
    _, before = filled.audit(AuditFilter(since=55.0, actors=("carl",)))
    assert before == 0
    _, before = filled.audit(AuditFilter(since=5.0, actors=("carl",)))
    assert before > 0
