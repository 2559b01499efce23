"""The options of the policy `gandiva-fair`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlsched.core.options import option

__all__ = ["GandivaFairOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GandivaFairOptions:
    """Gandiva_fair."""

    of: Literal["user", "vc", "group"] = option("user", "who holds tickets")
    tickets: tuple[str, ...] = option((), "NAME:TICKETS of users; others have 1")
    quantum_s: float = option(
        0.0, "seconds of a turn; 0: a round, or 60 where there are none", low=0.0
    )
    charge: Literal["gpu", "job"] = option(
        "gpu", "a turn costs GPU time over tickets, or time over tickets"
    )
    balance_every: int = option(5, "turns between two looks at the loads of servers", low=1)
    threshold: float = option(
        0.1, "part of the mean load by which servers may differ; a move must gain so much", low=0.0
    )
    trade: bool = option(True, "trade slow GPUs for fast ones where speeds are known")
    price: Literal["second", "middle"] = option(
        "second", "second-highest speedup; middle: of two users, where there is no third"
    )
    pack: bool = option(
        False, "let who waits share the GPUs of who runs, where both together do more"
    )
    mechanism: Literal["stride", "published"] = option(
        "stride", "turns by stride, or equal shares in the published rounds (as others rebuilt it)"
    )
    resolve_s: float = option(0.0, "seconds between two shares, at least (published)", low=0.0)
    seed: int = option(0, "of the lots (published); the run's unless given", low=0)
