"""Which part of each of its GPUs a run needs, and whether a GPU has room for another run.

A run without a share needs the whole GPU, so two runs share a GPU only when both have a share, or
when one of them has a share of 0: it uses what the others leave.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from dlsched.protocol.messages import GpuId

WHOLE = 1.0
UNUSABLE = math.inf  # of a GPU on which no run may start, whatever it needs
_ROUNDING = 1e-9  # three thirds must make a whole


def part_of(share: float | None) -> float:
    """The part of each GPU that a run needs, in [0, 1]; a share of None is the whole GPU."""
    return WHOLE if share is None else share


def is_room(taken: float, part: float) -> bool:
    """Whether a GPU with the part `taken` in use has room for another `part`."""
    return taken + part <= WHOLE + _ROUNDING


def without_room(holders: Iterable[tuple[Iterable[GpuId], float]], part: float) -> set[GpuId]:
    """The GPUs that have no room for another run.

    That run needs `part` of each GPU; `holders` has the GPUs of each present run, and the part of
    each that it needs.
    """
    taken: dict[GpuId, float] = {}
    for gpus, theirs in holders:
        for gpu in gpus:
            taken[gpu] = taken.get(gpu, 0.0) + theirs
    return {gpu for gpu, most in taken.items() if not is_room(most, part)}
