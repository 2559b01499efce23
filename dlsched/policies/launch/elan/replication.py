"""The copies of a model's state between workers, and how long they take.

Every worker holds a full replica, so a new worker can get it directly from any other. New workers
are served in order of their GPUs. The source of each is the nearest worker that has the state or
will have it; of equal ones that with the fewest copies to make, then the lowest. A source makes one
copy at a time; different sources work at the same time. So the second new worker of a new node gets
the state from the first one, which gets it over the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Copy(NamedTuple):
    """One transfer of the whole state.

    Attributes:
        target: the new worker's GPU.
        source: the GPU with the replica.
        level: level of the link between them, 0 for the nearest.
    """

    target: int
    source: int
    level: int


def copies(old: Sequence[int], new: Sequence[int], level: Callable[[int, int], int]) -> list[Copy]:
    """Plan the transfers.

    `old` are GPUs of workers that have the state, `new` those that need it; `level` is the level of
    the link between two GPUs, 0 for the nearest.
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

    The transfers of one source are in order; `gb_s` is the bandwidth of each level of link.
    """
    ready: dict[int, float] = {}
    for copy in planned:
        begins = ready.get(copy.source, 0.0)
        ready[copy.source] = ready[copy.target] = begins + state_gb / gb_s[copy.level]
    return max(ready.values(), default=0.0)
