"""The persistent mapping behaves as a dict does, and its changes do not copy it."""

from __future__ import annotations

import random

from dlsched.protocol.ledger import Ledger, Request, Submit, apply, apply_all
from dlsched.protocol.messages import JobId, RequestId
from dlsched.protocol.table import Table


def test_it_agrees_with_a_dict_through_any_changes() -> None:
    rng = random.Random(3)
    table: Table[int, int] = Table()
    truth: dict[int, int] = {}
    for turn in range(4000):
        key = rng.randrange(300)
        if rng.random() < 0.6:
            table, truth = table.having(key, turn), {**truth, key: turn}
        else:
            table = table.without([key, -1])
            truth.pop(key, None)
        assert len(table) == len(truth)
        assert (key in table) == (key in truth)
        assert table.get(key, "no") == truth.get(key, "no")
        if turn % 100 == 0:
            assert list(table.values()) == [table[key] for key in table]
            assert list(table.items()) == [(key, table[key]) for key in table]
            assert (len(table.values()), len(table.items())) == (len(truth), len(truth))
    assert table == truth
    assert sorted(table) == sorted(truth)


def test_an_older_version_stays() -> None:
    old: Table[int, str] = Table(dict.fromkeys(range(1000), "old"))
    new = old
    for k in range(1000):
        new = new.having(k, "new").without([k + 1])
    assert set(old.values()) == {"old"}
    assert len(new) == 1000


def test_it_iterates_in_the_order_of_insertion() -> None:
    table: Table[int, int] = Table((k, k) for k in range(100))
    for k in (200, 150, 3):
        table = table.having(k, 0)
    assert list(table) == [*range(100), 200, 150]


def test_ten_thousand_submissions_are_one_change_and_mean_the_same_as_one_by_one() -> None:
    writes = [
        Submit(request=Request(request_id=RequestId(f"r{k}")), job=JobId(k + 1)) for k in range(500)
    ]
    bulk, single = apply_all(Ledger(), writes), Ledger()
    for write in writes:
        single = apply(single, write)
    assert bulk == single
    assert list(bulk.jobs) == list(single.jobs)
