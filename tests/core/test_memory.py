"""What a part declares is stored, restored, grown and packed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.arrays import Floats, Rows
from dlsched.core.memory import (
    Remembering,
    by_row,
    finished_seen,
    in_array,
    kept,
    memory,
    rows,
)
from dlsched.core.options import NoOptions
from dlsched.core.stage import Stage
from dlsched.daemon.round.codec import decode, encode


@dataclass
class Lease:
    until: float
    gpus: int


class Inner(Remembering):
    turns: int = kept(0)
    ends: dict[int, float] = by_row(float)


class Everything(Stage[NoOptions]):
    name = "everything"
    wait: Floats = memory(0.5)
    leases: dict[int, Lease] = by_row(Lease)
    lists: dict[int, list[float]] = by_row(lambda *parts: list(parts))
    owners: set[int] = rows(set)
    queue: list[int] = rows(list)
    order: Rows = rows(in_array)
    _last: float = kept(-1.0)
    models: list[str] = kept(list)
    seen: int = finished_seen()
    cached: dict[int, float] = by_row(is_stored=False)
    inner: Inner = kept(Inner)


def filled(some: list[int]) -> Everything:
    one = Everything(NoOptions())
    one.reach(10)
    for row in some:
        one.wait[row] = row
        one.leases[row] = Lease(float(row), row)
        one.lists[row] = [float(row)] * (row % 3)
        one.cached[row] = one.inner.ends[row] = row / 2
    one.owners, one.queue, one.order = set(some), list(some), np.array(some, np.int64)
    one._last, one.models, one.seen, one.inner.turns = 3.0, ["a"], 4, 7
    return one


SOME = st.lists(st.integers(0, 9), unique=True, max_size=10)


@given(some=SOME)
def test_what_is_declared_survives_a_restart(some: list[int]) -> None:
    one, other = filled(some), Everything(NoOptions())
    other.cached[3] = 1.0
    other.load_state_dict(decode(encode(one.state_dict())))
    assert encode(other.state_dict()) == encode(one.state_dict())
    assert (other.leases, other.lists, other.owners) == (one.leases, one.lists, one.owners)
    assert (other.queue, other.order.tolist(), other.inner.ends) == (some, some, one.inner.ends)
    assert (other._last, other.models, other.seen, other.inner.turns) == (3.0, ["a"], 4, 7)
    assert other.cached == {}


@given(some=SOME, order=st.permutations(range(12)), count=st.integers(0, 12))
def test_what_is_by_row_follows_a_packed_table(
    some: list[int], order: list[int], count: int
) -> None:
    one = filled(some)
    old = np.array([-1 if row > 9 else row for row in order[:count]], np.int64)
    place = {before: row for row, before in enumerate(old.tolist()) if before >= 0}
    stay = [place[row] for row in some if row in place]
    one.renumber(old, 1)
    back = dict(zip(stay, (row for row in some if row in place), strict=True))
    assert one.wait.tolist() == [float(back.get(row, 0.5)) for row in range(count)]
    assert one.leases == {row: Lease(float(back[row]), back[row]) for row in stay}
    assert one.cached == one.inner.ends == {row: back[row] / 2 for row in stay}
    assert (one.owners, one.queue, one.order.tolist()) == (set(stay), stay, stay)
    assert (one.seen, one._last) == (3, 3.0)


def test_a_state_is_no_view_and_instances_share_nothing() -> None:
    one, other = filled([1, 2]), Everything(NoOptions())
    state = encode(kept_before := one.state_dict())
    one.wait[1] = 77.0
    one.models.append("b")
    one.leases[1].gpus = 9
    one.inner.ends[1] = 9.0
    assert encode(kept_before) == state
    assert (other.models, other.leases, len(other.wait)) == ([], {}, 0)


def test_a_state_of_a_part_that_remembers_other_things_is_refused() -> None:
    state = filled([1]).state_dict()
    del state["last"]
    with pytest.raises(KeyError, match="last"):
        Everything(NoOptions()).load_state_dict(state)


def test_an_object_that_stores_itself_is_stored_beside_what_is_declared() -> None:
    class Own:
        by_hand = np.arange(3)

        def state_dict(self) -> dict[str, Any]:
            return {"by_hand": self.by_hand}

        def load_state_dict(self, state: Any) -> None:
            self.by_hand = np.array(state["by_hand"])

        def renumber(self, old: Rows) -> None:
            self.by_hand = self.by_hand[old]

    class Both(Stage[NoOptions]):
        name = "both"
        decisions: int = kept(0)

        def __init__(self, options: NoOptions) -> None:
            super().__init__(options)
            self.own = Own()
            self.memories = (self.own,)

    one, other = Both(NoOptions()), Both(NoOptions())
    one.decisions = 5
    one.renumber(np.array([2, 0]), 0)
    other.load_state_dict(one.state_dict())
    assert (other.own.by_hand.tolist(), other.decisions) == ([2, 0], 5)
