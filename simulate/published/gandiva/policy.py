"""Gandiva's reduced model as a policy: it counts itself, and the world does as it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlsched.core.allocation import Grant, Refused
from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.gandiva.options import GandivaOptions
from simulate.published.gandiva.reduced import SIZES, TICK_S, ReducedGandiva

PENDING = Refused("Resources", "no set of nodes serves gangs of this size, and none is free")
NOT_ITS_TURN = Refused("Slice", "other jobs of its set have their turn")


class ReducedPolicy(SchedulingPolicy[GandivaOptions]):
    """Each decision is one step of the published loop.

    Attributes:
        model: the published program's state; None before the first decision.
    """

    name = "gandiva"
    summary = "the reduced model of Tiresias' simulator"
    preemptive = True
    rests = False

    def __init__(self, options: GandivaOptions) -> None:
        super().__init__(options)
        self.model: ReducedGandiva | None = None

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Go one step on, and have those jobs run whose turn it is.

        Raises:
            BadInput: nodes of different sizes, or a gang of a size that it does not know.
        """
        model = self._model(ctx)
        gangs: dict[int, int] = dict(zip(units.rows.tolist(), units.gang.tolist(), strict=True))
        odd = sorted(set(gangs.values()).difference(SIZES))
        if odd:
            known = ", ".join(map(str, SIZES))
            raise BadInput(
                f"semantics gandiva: the policy knows gangs of {known} GPUs, and not of {odd[0]}"
            )
        for job in model.jobs - gangs.keys():
            model.forget(job)
        arrived = [(row, gang) for row, gang in gangs.items() if row not in model.jobs]
        ended = model.step(ctx.now, arrived, ctx.table.predicted_work.item)
        for row in model.placed:
            walk.output("placed_at", row, ctx.now)
        self._carry_out(gangs, ended, model, ctx, walk)
        if model.jobs:
            walk.wake_at(ctx.now + TICK_S)

    def _carry_out(
        self,
        gangs: Mapping[int, int],
        ended: list[int],
        model: ReducedGandiva,
        ctx: RoundContext,
        walk: Walk,
    ) -> None:
        where = {
            row: sum(1 << node for node in nodes)
            for jobs, nodes, _ in model.turns()
            for row in jobs
        }
        for row in list(ctx.occupancy.held):
            here = ctx.occupancy.held[row].nodes
            if row not in where or any(not where[row] >> node & 1 for node in here):
                walk.suspend(row)
        for row in ended:
            walk.grant(row, Grant(complete=True))
        waiting = {row for row, _ in model.pending}
        for row in gangs.keys() - set(ended):
            if row not in where:
                walk.refuse(row, PENDING if row in waiting else NOT_ITS_TURN)
        for row, nodes in where.items():
            if row not in ctx.occupancy.held:
                walk.place(row, nodes=nodes)

    def _model(self, ctx: RoundContext) -> ReducedGandiva:
        if self.model is None:
            sizes = sorted(set(ctx.occupancy.cluster.gpus.tolist()))
            if len(sizes) > 1:
                raise BadInput(
                    "semantics gandiva: the policy knows nodes of one size, and these have "
                    f"{' and '.join(map(str, sizes))} GPUs"
                )
            self.model = ReducedGandiva(len(ctx.occupancy.cluster), sizes[0])
        return self.model

    def state_dict(self) -> dict[str, Any]:
        """The model's state."""
        model = self.model
        if model is None:
            return {}
        return {"nodes": model.nodes, "size": model.size, "model": model.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self.model = None
        if state:
            self.model = ReducedGandiva(int(state["nodes"]), int(state["size"]))
            self.model.load_state_dict(state["model"])

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Follow a table that was packed."""
        if self.model is not None:
            before = np.flatnonzero(old >= 0)
            self.model.rename(dict(zip(old[before].tolist(), before.tolist(), strict=True)))
