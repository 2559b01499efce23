"""In which groups of layers a model is copied to a GPU, so that its first pass ends soonest.

Copies run back to back, and a group's layers are computed as soon as it has arrived and those
before it are done. With k groups of sizes S and computing times c, a copy's overhead a, a group's
overhead b and the bandwidth B,

    T_k = k·a + (S_1 + … + S_k)/B,   C_k = max(C_{k−1}, T_k) + b + c_k,   C_0 = 0

and C of the last group is to be least. T depends on the last layer and on k alone, so C is found by
a dynamic programme over both, in O(n³). The paper searches with two prunings instead, which may
take exponential time; its published code has groups by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.errors import BadInput

EQUAL = 1e-9  # of two times, relative: rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model's layers in the order of the forward pass, and how they get to a GPU.

    Attributes:
        size: of each layer's parameters and buffers, MB.
        compute: of each layer, ms.
        bandwidth: MB/ms.
        call: overhead of each copy, ms.
        sync: overhead of each group, ms.
    """

    size: Floats
    compute: Floats
    bandwidth: float
    call: float = 0.0
    sync: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            BadInput: says what is wrong.
        """
        values = (self.size, self.compute)
        if not len(self.size) or len(self.size) != len(self.compute):
            raise BadInput(
                f"a model of {len(self.size)} sizes and {len(self.compute)} computing times: as "
                "many of both are needed, at least one"
            )
        for name, value in zip(("size", "compute"), values, strict=True):
            wrong = np.flatnonzero(~(np.isfinite(value) & (value >= 0)))
            if wrong.size:
                raise BadInput(
                    f"layer {wrong[0]}: {name} is {value[wrong[0]]:g}; a number of 0 or more is "
                    "needed"
                )
        if not (self.bandwidth > 0 and self.call >= 0 and self.sync >= 0):
            raise BadInput("bandwidth must be above 0, overheads 0 or more")


def best_groups(model: Model) -> list[int]:
    """The last layer of each group, 0-based, of the grouping with the least finish time.

    Of equal ones the one with the fewest groups; of these the one whose ends come first in
    lexicographic order.
    """
    count = len(model.size)
    copied = np.concatenate([[0.0], np.cumsum(model.size)]) / model.bandwidth
    computed = np.concatenate([[0.0], np.cumsum(model.compute)])

    least = np.full((count + 1, count + 1), np.inf)  # [groups, layers covered]
    least[0, 0] = 0.0
    for groups in range(1, count + 1):
        arrived = groups * model.call + copied
        # [covered before, covered after]; only before < after is a group
        done = np.maximum(least[groups - 1][:, None], arrived) + model.sync - computed[:, None]
        done = np.where(np.tri(count + 1, dtype=np.bool_), np.inf, done)
        least[groups] = done.min(axis=0) + computed
    ends = least[1:, count]
    groups = int(np.flatnonzero(ends <= ends.min() * (1 + EQUAL) + EQUAL)[0]) + 1
    return _first_ends(model, copied, computed, float(ends.min()), groups)


def _first_ends(
    model: Model, copied: Floats, computed: Floats, best: float, groups: int
) -> list[int]:
    """Of the groupings with so many groups and this finish time, the first in lexicographic order.

    From the back: the latest moment by which a group must have begun to be computed, so that the
    end is still the best. Then each end is the first layer that keeps it.
    """
    count = len(model.size)
    allowed = best * (1 + EQUAL) + EQUAL
    # latest[k, j]: with k groups done and j layers covered, when the last of them may end
    latest = np.full((groups + 1, count + 1), -np.inf)
    latest[groups, count] = allowed
    for number in range(groups - 1, -1, -1):
        arrived = (number + 1) * model.call + copied
        by = latest[number + 1] - model.sync - (computed[None, :] - computed[:, None])
        by = np.where((arrived <= by) & ~np.tri(count + 1, dtype=np.bool_), by, -np.inf)
        latest[number] = by.max(axis=1)
    ends, covered, done = [], 0, 0.0
    for number in range(1, groups + 1):
        for after in range(covered + 1, count + 1):
            arrived_at = number * model.call + copied[after]
            then = max(done, arrived_at) + model.sync + computed[after] - computed[covered]
            if then <= latest[number, after]:
                covered, done = after, float(then)
                break
        ends.append(covered - 1)
    return ends
