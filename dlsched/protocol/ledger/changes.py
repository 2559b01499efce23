"""Changes in order, which also know what kinds there are among them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Any, TypeVar, overload

from dlsched.protocol.ledger.writes import Attach, Submit, Write

__all__ = ["OF_SUBMISSIONS", "Changes"]
OF_SUBMISSIONS = frozenset({Submit, Attach})  # kinds that change no job, run or node that is there
T = TypeVar("T")


class Changes(tuple[Write, ...]):
    """Changes in order.

    A submission has tens of thousands of them, and most parts that follow the ledger look for a
    few kinds: where there are none, asking for them costs nothing. Kinds are exact types.
    """

    @cached_property
    def _by_kind(self) -> dict[type, list[Any]]:
        """The changes by their types, and the attached rows by theirs."""
        found: defaultdict[type, list[Any]] = defaultdict(list)
        for write in self:
            found[type(write)].append(write)
        for attached in found.get(Attach, ()):
            found[type(attached.row)].append(attached.row)
        return dict(found)

    @overload
    def of(self, kinds: type[T], /) -> Sequence[T]: ...

    @overload
    def of(self, *kinds: type) -> Sequence[Any]: ...

    def of(self, *kinds: type) -> Sequence[Any]:
        """The changes of some kinds, and the attached rows of some kinds, in order.

        Args:
            kinds: of changes alone, or of rows alone.
        """
        there = [self._by_kind[kind] for kind in kinds if kind in self._by_kind]
        if len(there) < 2:
            return there[0] if there else ()
        return [
            each
            for write in self
            if type(each := write.row if isinstance(write, Attach) else write) in kinds
        ]

    @cached_property
    def kinds(self) -> frozenset[type]:
        """The kinds of the changes themselves."""
        return frozenset(map(type, self))
