"""Karuna on links: just enough rate for deadlines, the others by queues of strict priority.

Chen, Chen, Bai, Alizadeh: "Scheduling Mix-flows in Commodity Datacenters with Karuna", SIGCOMM
2016, in the fluid limit of its transport: a flow with a deadline has rate γ = remaining /
(deadline − now), so that it ends exactly then; in the order of the deadlines, as long as every link
of its path has that much left. Otherwise it is demoted, and counts as one of known size until the
next event.

The others are in queue 1 + #{limits ≤ v}: v is the size and the limits are β where it is known, v
is what was sent and the limits are α where not. Queues are served in order, each fairly.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from simulate.network.flows import Flow, Number, Shares, share_fairly


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """The queues of flows without a kept deadline.

    Attributes:
        alpha: amounts sent at which a flow of unknown size sinks, ascending.
        beta: sizes between the queues of known flows, ascending.
        floor: share of each link that the last queue has in any case, so that it never stands.
    """

    alpha: tuple[Number, ...] = ()
    beta: tuple[Number, ...] = ()
    floor: float = 0.0

    @property
    def last(self) -> int:
        """The number of the last queue."""
        return 1 + max(len(self.alpha), len(self.beta))

    def of(self, flow: Flow) -> int:
        """The queue of a flow."""
        if flow.kind == "unknown":
            return 1 + bisect_right(self.alpha, flow.sent)
        return 1 + bisect_right(self.beta, flow.size)

    def serve(self, flows: list[Flow], shares: Shares, links: Mapping[str, Number]) -> None:
        """Share what is left of the links among flows; notes their queues."""
        queues: dict[int, list[Flow]] = {}
        for flow in flows:
            shares.queue[flow.id] = queue = self.of(flow)
            queues.setdefault(queue, []).append(flow)
        if self.floor and self.last in queues:
            most = {name: self.floor * capacity for name, capacity in links.items()}
            open_now = shares.residual.items()
            share_fairly(queues[self.last], shares, {n: min(left, most[n]) for n, left in open_now})
        for queue in sorted(queues):
            share_fairly(queues[queue], shares, shares.residual)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ByQueues:
    queues: Queues

    @property
    def limits(self) -> tuple[Number, ...]:
        """α."""
        return self.queues.alpha


class Karuna(_ByQueues):
    """Just enough for deadlines, then queues."""

    def share(self, flows: list[Flow], links: Mapping[str, Number], now: Number) -> Shares:
        """Rates of unfinished flows."""
        shares = Shares.of(flows, links)
        others = [flow for flow in flows if flow.deadline is None]
        for flow in by_deadline(flows):
            due = flow.due(now)
            gamma = None if due is None else flow.remaining / (due - now)
            if gamma is not None and gamma <= shares.open_rate(flow):
                shares.give(flow, gamma)
            else:
                shares.demoted.append(flow.id)
                others.append(flow)
        self.queues.serve(others, shares, links)
        return shares


class EdfFirstQueues(_ByQueues):
    """All the rate to the earliest deadline that is ahead, the others by the same queues."""

    def share(self, flows: list[Flow], links: Mapping[str, Number], now: Number) -> Shares:
        """Rates of unfinished flows."""
        shares = Shares.of(flows, links)
        urgent = [flow for flow in by_deadline(flows) if flow.due(now) is not None]
        for flow in urgent:
            shares.give(flow, shares.open_rate(flow))
        others = [flow for flow in flows if flow.due(now) is None]
        self.queues.serve(others, shares, links)
        return shares


def by_deadline(flows: list[Flow]) -> list[Flow]:
    """The flows with a deadline, the earliest first."""
    found = [flow for flow in flows if flow.deadline is not None]
    return sorted(found, key=lambda flow: (flow.deadline, flow.id))
