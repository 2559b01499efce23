"""The options of the policy `shockwave`."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.core.options import option

__all__ = ["ShockwaveOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShockwaveOptions:
    """Shockwave."""

    rounds: int = option(20, "rounds that are planned ahead", low=1)
    replan: int = option(8, "rounds after which a plan is made anew if nobody comes or goes", low=1)
    makespan: float = option(1e-3, "weight of the longest time left", low=0.0)
    power: float = option(12.0, "what the lateness of late jobs is raised to", low=0.0)
    fairness: float = option(1.0, "how many times its target a job may take", low=0.0)
    gap: float = option(1e-3, "distance from the optimum that will do, relative", low=0.0)
    nodes: int = option(2000, "nodes of a program's search tree, at most", low=1)
    solve_limit_s: float = option(
        15.0, "seconds of a program in a live cluster; the best plan found is taken", low=0.0
    )
    round_s: float = option(
        120.0, "length of a planned round where every change is a decision", low=1.0
    )
