"""Why waiting jobs got nothing in a round: what the parts said, else what can be counted.

The words are Slurm's where Slurm has one; a text after a colon says more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlsched.core.allocation import Allocation
from dlsched.core.arrays import Ints, Rows
from dlsched.core.context import RoundContext

if TYPE_CHECKING:
    from dlsched.daemon.round.standing import Standing

__all__ = ["reasons_of"]

NOT_AVAILABLE = "ReqNodeNotAvail"
NAMED = 3  # nodes that one reason names at most


def reasons_of(
    standing: Standing, allocation: Allocation, waiting: Rows
) -> tuple[tuple[str, ...], Ints]:
    """Reasons, and pairs of a job and its reason's number.

    Args:
        standing: what was decided on.
        allocation: what was decided.
        waiting: rows that wait and were given nothing.
    """
    table, columns = standing.ctx.table, standing.snapshot.columns
    numbers: dict[str, int] = {}
    reason_of = np.full(len(table), -1, np.int64)
    if waiting.size:
        gave_way = columns["preemptions"][waiting] > 0
        _, first, which = np.unique(
            (table.pool[waiting] * 2 + gave_way) * (1 << 32) + table.gang[waiting],
            return_index=True,
            return_inverse=True,
        )
        counted = _Counted(standing)
        general = [
            numbers.setdefault(counted.reason(row), len(numbers)) for row in waiting[first].tolist()
        ]
        reason_of[waiting] = np.array(general, np.int64)[which]
    behind = numbers.setdefault("Admission: waits behind others", len(numbers))
    reason_of[standing.queue] = behind
    shut = {number for text, number in numbers.items() if text.startswith(NOT_AVAILABLE)}
    told = {**allocation.refused, **standing.why_not}
    for row, why in told.items():
        if why.reason == "Never" or (reason_of[row] >= 0 and reason_of[row] not in shut):
            reason_of[row] = numbers.setdefault(str(why), len(numbers))
    rows = np.flatnonzero(reason_of >= 0)
    jobs: Ints = columns["job"]
    return tuple(numbers), np.stack([jobs[rows], reason_of[rows]], axis=1)


class _Counted:
    """Reasons that follow from what is free, and from what is out of service."""

    def __init__(self, standing: Standing) -> None:
        self._ctx: RoundContext = standing.ctx
        self._policy = standing.snapshot.settings.policy
        self._gave_way: Ints = standing.snapshot.columns["preemptions"]
        self._open: dict[int, tuple[int, int, str]] = {}  # by pool

    def reason(self, row: int) -> str:
        """Why a row that no part spoke of waits."""
        ctx = self._ctx
        pool, gang = int(ctx.table.pool[row]), int(ctx.table.gang[row])
        free = ctx.occupancy.free_in(ctx.pools.nodes[pool])
        if gang > free:
            takes_work, every, shut = self._service(pool)
            if takes_work < gang <= every:
                return f"{NOT_AVAILABLE}: {shut}"
            return f"Resources: needs {gang} GPUs, {free} are free"
        if self._gave_way[row]:
            return f"Lease: was preempted, waits for its turn under {self._policy}"
        return f"Priority: others go first under {self._policy}"

    def _service(self, pool: int) -> tuple[int, int, str]:
        """A pool's GPUs on nodes that take work, all of its GPUs, and which nodes take none."""
        if pool in self._open:
            return self._open[pool]
        occupancy, nodes = self._ctx.occupancy, self._ctx.pools.nodes[pool]
        cluster = occupancy.cluster
        shut = nodes & ~occupancy.open_nodes
        names, lost, every = [], 0, 0
        for node in range(nodes.bit_length() if shut else 0):
            if nodes >> node & 1:
                gpus = int(cluster.gpus[node])
                every += gpus
                if shut >> node & 1:
                    lost += gpus
                    names.append(cluster.names[node])
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        takes = "takes" if len(names) == 1 else "take"
        told = f"{', '.join(names[:NAMED])}{more} {takes} no new work"
        self._open[pool] = every - lost, every, told
        return self._open[pool]
