"""Who copies the model's state to whom, and how long that takes.

Every worker holds a full replica, so that each new one can have it straight from another. New
workers are served in order of their GPUs. The source of each is the nearest that has the state or
will have it; of those the one with the fewest copies to make; of those the lowest. A source makes
one copy at a time, different sources work at once. So the second new worker of a fresh node has it
from the first, which had it over the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = ["Copy", "copies", "takes_s"]


class Copy(NamedTuple):
    """One transfer of the whole state.

    Attributes:
        target: the new worker's GPU.
        source: whose replica.
        level: of the link between them, 0 the nearest.
    """

    target: int
    source: int
    level: int


def copies(old: Sequence[int], new: Sequence[int], level: Callable[[int, int], int]) -> list[Copy]:
    """Plan the transfers.

    Args:
        old: GPUs whose workers have the state.
        new: GPUs whose workers need it.
        level: of the link between two GPUs, from 0 up, the nearer the lower.
    """
    has = sorted(old)
    work = dict.fromkeys(has, 0)
    planned = []
    for target in sorted(new):
        source = min(has, key=lambda gpu: (level(gpu, target), work[gpu], gpu))
        work[source] += 1
        planned.append(Copy(target, source, level(source, target)))
        has.append(target)
        work[target] = 0
    return planned


def takes_s(planned: Sequence[Copy], state_gb: float, gb_s: Sequence[float]) -> float:
    """Seconds until the last worker has the state.

    Args:
        planned: transfers, a source's own in order.
        state_gb: parameters and optimiser state.
        gb_s: bandwidth of each level of link.
    """
    ready: dict[int, float] = {}
    for copy in planned:
        begins = ready.get(copy.source, 0.0)
        ready[copy.source] = ready[copy.target] = begins + state_gb / gb_s[copy.level]
    return max(ready.values(), default=0.0)
