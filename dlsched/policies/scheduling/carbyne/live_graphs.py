"""The graphs of jobs in a table: which rows wait for each other, and what they need.

Resources count as whole parts of the cluster (10⁻⁹), so that plans are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Floats
from dlsched.core.context import RoundContext
from dlsched.core.units import Status, Units, UnitTable
from dlsched.policies.fairness.demand import resources_of
from dlsched.policies.scheduling.carbyne.stages import Graph, Stage

PARTS = 10**9  # of the cluster's amount of each resource


@dataclass(slots=True)
class LiveGraph:
    """The known jobs of one graph.

    Attributes:
        rows: of the table; a stage each.
        graph: the stages.
        waiting: by stage, 1 if the job has not begun.
        ready: the stages that may begin now.
        held: parts of each resource that its running jobs hold.
        later: by stage, seconds until its plan begins it.
        reasons: by stage, why it could not be placed.
    """

    rows: list[int]
    graph: Graph
    waiting: list[int]
    ready: list[int]
    held: Floats
    later: dict[int, float] = field(default_factory=dict)
    reasons: dict[int, Refused] = field(default_factory=dict)


class GraphsOfTable:
    """Finds the graphs of active jobs."""

    def __init__(self) -> None:
        """Knows no table yet."""
        self._graph_of: dict[int, tuple[int, ...]] = {}
        self._known: tuple[UnitTable | None, int] = (None, 0)

    def of(self, units: Units, ctx: RoundContext) -> list[LiveGraph]:
        """The graphs of active jobs, in the order of their first rows."""
        table = ctx.table
        self._connect(table)
        is_ready = dict.fromkeys(units.rows.tolist())
        running = ctx.running
        gpus = dict(zip(running.rows.tolist(), running.gpus_now.tolist(), strict=True))
        lists: dict[int, tuple[int, ...]] = {}
        for row in ctx.active.tolist():
            rows = self._graph_of.get(row, (row,))
            lists[rows[0]] = rows
        known = [_known_rows(table, rows) for _, rows in sorted(lists.items())]
        flat = np.array([row for listed in known for row in listed], np.int64)
        asked = np.array([gpus.get(row, table.gang.item(row)) for row in flat.tolist()])
        needs = np.stack(
            [
                np.rint(amount / (total or 1.0) * PARTS)
                for total, amount in resources_of(ctx, flat, asked)
            ],
            axis=1,
        ).astype(np.int64)
        work = np.maximum(table.predicted_work[flat] - table.executed[flat], 0.0)
        work = work + ctx.restart_overhead
        found, place = [], 0
        for listed in known:
            part = slice(place, place + len(listed))
            place += len(listed)
            number_of = {row: number for number, row in enumerate(listed)}
            stages = [
                Stage(
                    duration,
                    tuple(need),
                    1,
                    tuple(number_of[p] for p in table.parents.get(row, ()) if p in number_of),
                )
                for row, duration, need in zip(
                    listed, work[part].tolist(), needs[part].tolist(), strict=True
                )
            ]
            holds = np.array([row in gpus for row in listed], np.bool_)
            found.append(
                LiveGraph(
                    rows=listed,
                    graph=Graph(stages),
                    waiting=[int(table.status[row] < Status.RUNNING) for row in listed],
                    ready=[number for number, row in enumerate(listed) if row in is_ready],
                    held=needs[part][holds].sum(axis=0).astype(np.float64),
                )
            )
        return found

    def _connect(self, table: UnitTable) -> None:
        """Note which rows are in one graph; once for each table."""
        if self._known[0] is table and self._known[1] == len(table.parents):
            return
        self._known = table, len(table.parents)
        near: dict[int, set[int]] = {}
        for row, parents in table.parents.items():
            for parent in parents:
                near.setdefault(row, set()).add(parent)
                near.setdefault(parent, set()).add(row)
        self._graph_of = {}
        for start in near:
            if start in self._graph_of:
                continue
            seen, ahead = {start}, [start]
            while ahead:
                new = near[ahead.pop()] - seen
                seen |= new
                ahead += new
            self._graph_of |= dict.fromkeys(seen, tuple(sorted(seen)))


def _known_rows(table: UnitTable, rows: Sequence[int]) -> list[int]:
    """The rows of a graph that a plan can count on.

    They are predicted and neither refused nor held back, and so are all that come before them.
    """
    left_out = {
        row
        for row in rows
        if table.status[row] in (Status.REFUSED, Status.HELD_BACK)
        or np.isnan(table.predicted_work[row])
    }
    found = [row for row in rows if row not in left_out]
    while behind := [row for row in found if not left_out.isdisjoint(table.parents.get(row, ()))]:
        left_out.update(behind)
        found = [row for row in found if row not in left_out]
    return found
