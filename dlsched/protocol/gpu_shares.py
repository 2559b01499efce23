"""How much of each of its GPUs a run needs, and whether a GPU has room for another run.

A run that says nothing needs the whole GPU, so only runs that have said so ever share one.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlsched.protocol.messages import GpuId

__all__ = ["WHOLE", "is_room", "part_of", "without_room"]

WHOLE = 1.0
_HAIR = 1e-9  # three thirds must make a whole


def part_of(share: float | None) -> float:
    """What a run needs of each GPU, in (0, 1]."""
    return WHOLE if share is None else share


def is_room(taken: float, part: float) -> bool:
    """Whether a GPU of which so much is taken can hold another such part."""
    return taken + part <= WHOLE + _HAIR


def without_room(holders: Iterable[tuple[Iterable[GpuId], float]], part: float) -> set[GpuId]:
    """The GPUs that cannot hold another such part.

    Args:
        holders: the GPUs of each who is there, and what it needs of each of them.
        part: what is to come.
    """
    taken: dict[GpuId, float] = {}
    for gpus, theirs in holders:
        for gpu in gpus:
            taken[gpu] = taken.get(gpu, 0.0) + theirs
    return {gpu for gpu, most in taken.items() if not is_room(most, part)}
