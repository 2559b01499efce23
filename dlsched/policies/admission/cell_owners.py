"""Admission `cells`: jobs that their virtual cluster's cells can never serve are refused."""

from __future__ import annotations

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Bools
from dlsched.core.cluster.occupancy import Occupancy
from dlsched.core.context import RoundContext
from dlsched.core.gpu_request import FreeGpus, GpuRequest
from dlsched.core.options import NoOptions
from dlsched.core.stage import AdmissionPolicy
from dlsched.core.units import Units
from dlsched.policies.placement.hived.placement import Hived, Options


class CellOwners(AdmissionPolicy[NoOptions]):
    """Every job enters but those for which there is no place in a cluster where nothing runs.

    Refused are: an unknown virtual cluster or pinned cell, an opportunistic job that asks for a
    pinned cell, a priority above 1000, a GPU type that its virtual cluster has no cells of, more
    GPUs than its cells have.
    """

    name = "cells"
    summary = (
        "refuse what a virtual cluster's cells can never serve (default with --placement hived)"
    )

    def __init__(self, options: NoOptions) -> None:
        super().__init__(options)
        self._judge = Hived(Options())
        self._empty: Occupancy | None = None
        self._answers: dict[object, Refused | None] = {}  # of the present cluster

    def admit(self, queue: Units, ctx: RoundContext) -> tuple[Bools, dict[int, Refused]]:
        """Admit all jobs that could start if they had the cluster for themselves."""
        cluster = ctx.occupancy.cluster
        if self._empty is None or self._empty.cluster is not cluster:
            self._empty, self._answers = Occupancy(cluster), {}
        refused: dict[int, Refused] = {}
        enters = np.ones(len(queue), np.bool_)
        for k, row in enumerate(queue.rows.tolist()):
            request = GpuRequest(row, int(ctx.table.gang[row]), ctx.table)
            nodes = ctx.pools.nodes[int(ctx.table.pool[row])]
            key = (nodes, self._judge.sameness(request))
            if key not in self._answers:
                placed = self._judge.place_alone(request, FreeGpus(self._empty, nodes))
                self._answers[key] = (
                    placed if isinstance(placed, Refused) and placed.reason == "Never" else None
                )
            why = self._answers[key]
            if why is not None:
                refused[row], enters[k] = why, False
        return enters, refused
