"""Orders that remember the last one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from dlsched.policies.scheduling.ordering import PersistentOrder


def units_of(*rows: int) -> Any:
    return SimpleNamespace(rows=np.array(rows, np.int64))


def ranked(order: PersistentOrder, *rows: int, keys: list[float], remember: bool = True) -> Any:
    positions = order.sort(units_of(*rows), np.array(keys), remember=remember)
    return np.array(rows)[positions].tolist()


def test_equal_keys_keep_the_order_of_the_last_time_and_new_rows_come_last() -> None:
    order = PersistentOrder()
    assert ranked(order, 3, 5, 700, keys=[2.0, 1.0, 0.0]) == [700, 5, 3]
    assert ranked(order, 1, 3, 5, 700, keys=[0.0, 0.0, 0.0, 0.0]) == [700, 5, 3, 1]
    assert ranked(order, 1, 5, keys=[0.0, 1.0], remember=False) == [1, 5]
    assert (order.place(5), order.place(9), order.place(9_999)) == (1, np.inf, np.inf)
    assert ranked(order, 1, 5, keys=[0.0, 0.0]) == [5, 1]
    assert order.place(700) == np.inf, "it was not among the last ones"


def test_an_order_follows_a_packed_table_and_a_restart() -> None:
    order = PersistentOrder()
    ranked(order, 3, 5, 6, keys=[2.0, 1.0, 0.0])
    order.renumber(np.array([5, 3, -1]), 0)  # row 6 is gone
    assert order.state_dict() == {"order": [0, 1]}
    again = PersistentOrder()
    again.load_state_dict({"order": [0, 1]})
    assert ranked(again, 0, 1, 2, keys=[0.0, 0.0, 0.0]) == [0, 1, 2]
    assert ranked(again, 1, 0, keys=[0.0, 0.0]) == [0, 1]
