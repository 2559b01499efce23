"""Sums of floats that are the same on every Python, so that ties fall alike.

From Python 3.12 on, `sum()` of floats carries rounding errors along; before, it does not.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from fractions import Fraction

__all__ = ["ordered_sum"]

Number = TypeVar("Number", bound="float | Fraction")


def ordered_sum(values: Iterable[Number]) -> Number:
    """Return the sum of the values, added from the first to the last and rounded each time."""
    return cast(Number, reduce(operator.add, values, 0))
