"""Why waiting jobs got nothing in a round: what the parts said, else what can be counted.

The words are Slurm's where Slurm has one; a text after a colon says more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlsched.core.allocation import Allocation, Refused
from dlsched.core.arrays import Ints, Rows
from dlsched.core.context import RoundContext

if TYPE_CHECKING:
    from dlsched.daemon.round.prepared_round import PreparedRound

NOT_AVAILABLE = "ReqNodeNotAvail"
NAMED = 3  # nodes that one reason names at most


def reasons_of(
    prepared: PreparedRound, allocation: Allocation, waiting: Rows
) -> tuple[tuple[str, ...], Ints]:
    """Reasons of rows that wait and got nothing, and pairs of a job and its reason's number.

    A row that the policy ends has its reason, too.
    """
    table, seen = prepared.ctx.table, prepared.snapshot.table
    numbers: dict[str, int] = {}
    reason_of = np.full(len(table), -1, np.int64)
    if waiting.size:
        gave_way = seen.preemptions[waiting] > 0
        _, first, which = np.unique(
            (table.pool[waiting] * 2 + gave_way) * (1 << 32) + table.gang[waiting],
            return_index=True,
            return_inverse=True,
        )
        counted = _Counted(prepared)
        general = [
            numbers.setdefault(counted.reason(row), len(numbers)) for row in waiting[first].tolist()
        ]
        reason_of[waiting] = np.array(general, np.int64)[which]
    behind = numbers.setdefault("Admission: waits behind others", len(numbers))
    reason_of[prepared.cycle.held_back] = behind
    shut = {number for text, number in numbers.items() if text.startswith(NOT_AVAILABLE)}
    given = {**allocation.refused, **prepared.cycle.refusals}
    ended = {row for row, grant in allocation.grants.items() if grant.complete}
    for row, why in given.items():
        if (
            why.reason == "Never"
            or row in ended
            or (reason_of[row] >= 0 and reason_of[row] not in shut)
        ):
            reason_of[row] = numbers.setdefault(str(why), len(numbers))
    ends = table.marks(ended)
    for why, over in allocation.over_limits:
        waits = (reason_of[over] >= 0) & ~ends[over]
        reason_of[over[waits]] = numbers.setdefault(str(why), len(numbers))
    rows = np.flatnonzero(reason_of >= 0)
    jobs = seen.job
    return tuple(numbers), np.stack([jobs[rows], reason_of[rows]], axis=1)


class _Counted:
    """Reasons that follow from what is free, and from what is out of service."""

    def __init__(self, prepared: PreparedRound) -> None:
        self._ctx: RoundContext = prepared.ctx
        self._policy = prepared.snapshot.settings.policy
        self._gave_way: Ints = prepared.snapshot.table.preemptions
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
            return str(Refused.too_few_free(gang, free))
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
        shut_nodes = f"{', '.join(names[:NAMED])}{more} {takes} no new work"
        self._open[pool] = every - lost, every, shut_nodes
        return self._open[pool]
