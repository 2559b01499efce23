"""Gandiva_fair as Shockwave's artifact rebuilt it for its comparison: equal shares, in rounds.

Zheng et al., "Shockwave", NSDI 2023. There are no tickets and no trading: every job has the same
share of the time on all GPUs, and Gavel's published rounds make leases of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.core.options import option
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.heterogeneous.gpu_types import capacity
from dlsched.policies.heterogeneous.time_shares import TimeShares
from dlsched.policies.scheduling.gandiva_fair.policy import GandivaFair, GandivaFairOptions
from simulate.published.gavel.rounds import PublishedRounds


def equal_shares(rows: Rows, types: tuple[str, ...], ctx: RoundContext) -> TimeShares:
    """The same share for every job: x_ij = N_j / m for m jobs, each row cut to 1.

    The gang does not enter.
    """
    share = capacity(types, ctx) / max(len(rows), 1)
    share = share / max(float(share.sum()), 1.0)
    none = np.zeros(0, np.int64)
    x, pair_x = np.tile(share, (len(rows), 1)), np.zeros((0, len(types)))
    return TimeShares(rows=rows, x=x, first=none, second=none, pair_x=pair_x)


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualSharesOptions(GandivaFairOptions):
    """Gandiva_fair, where time passes as in the simulators of Gavel and Shockwave."""

    mechanism: Literal["stride", "published"] = option(
        "stride", "turns by stride, or equal shares in rounds (as Shockwave's artifact rebuilt it)"
    )
    resolve_s: float = option(
        0.0, "least number of seconds between two computations of shares (published)", low=0.0
    )
    seed: int = option(0, "seed of random choices (published); by default the run's seed", low=0)


class EqualSharesInRounds(GandivaFair):
    """Equal shares in Gavel's published rounds, unless `mechanism=stride`."""

    Options: ClassVar[type[EqualSharesOptions]] = EqualSharesOptions
    options: EqualSharesOptions

    def __init__(self, options: EqualSharesOptions) -> None:
        super().__init__(options)
        self._rounds: PublishedRounds | None = None
        if options.mechanism == "published":
            self._rounds = PublishedRounds(
                equal_shares, resolve_s=options.resolve_s, shuffles=True, seed=options.seed
            )

    @property
    def chooses_gpus(self) -> bool:
        """True for the published rounds, and with `pack`."""
        return self._rounds is not None or super().chooses_gpus

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """One round, or one turn."""
        if self._rounds is None:
            super().allocate(units, ctx, walk)
        else:
            self._rounds.decide(ctx.active, ctx, walk)

    def state_dict(self) -> dict[str, Any]:
        """The ledger of the rounds, or what the turns keep."""
        if self._rounds is None:
            return super().state_dict()
        return {"published": self._rounds.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        if self._rounds is None:
            super().load_state_dict(state)
        else:
            self._rounds.load_state_dict(state["published"])

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Follow a table that was packed."""
        super().renumber(old, finished_gone)
        if self._rounds is not None:
            place = {int(before): row for row, before in enumerate(old.tolist()) if before >= 0}
            self._rounds.rename(place)
