"""How flows share links: by Karuna, earliest deadline, shortest remaining, or equal shares.

Karuna gives just enough rate for deadlines, and serves the others by queues of strict priority.

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simulate.worlds.network.flows import Discipline, Flow, Links, Number, Shares, share_fairly


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

    def serve(self, flows: list[Flow], shares: Shares, links: Links) -> None:
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


def karuna(queues: Queues) -> Discipline:
    """Just enough for deadlines, then queues."""

    def share(flows: list[Flow], links: Links, now: Number) -> Shares:
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
        queues.serve(others, shares, links)
        return shares

    return Discipline(share, queues.alpha)


def edf_first_queues(queues: Queues) -> Discipline:
    """All the rate to the earliest deadline that is ahead, the others by the same queues."""

    def share(flows: list[Flow], links: Links, now: Number) -> Shares:
        shares = Shares.of(flows, links)
        for flow in by_deadline(flows):
            if flow.due(now) is not None:
                shares.give(flow, shares.open_rate(flow))
        queues.serve([flow for flow in flows if flow.due(now) is None], shares, links)
        return shares

    return Discipline(share, queues.alpha)


def edf_first(flows: list[Flow], links: Links, now: Number) -> Shares:
    """The earliest deadline that is ahead takes all it can; then the least remaining."""
    urgent = [flow for flow in by_deadline(flows) if flow.due(now) is not None]
    others = [flow for flow in flows if flow.due(now) is None]
    return _in_order([*urgent, *_shortest(others)], links)


def srpt(flows: list[Flow], links: Links, _now: Number) -> Shares:
    """The least remaining takes all it can; every size must be known."""
    return _in_order(_shortest(flows), links)


def fair(flows: list[Flow], links: Links, _now: Number) -> Shares:
    """Max-min fair shares, as a transport without any of this gives."""
    shares = Shares.of(flows, links)
    share_fairly(flows, shares, links)
    return shares


DISCIPLINES: Mapping[str, Callable[[Queues], Discipline]] = {
    "karuna": karuna,
    "edf-first-queues": edf_first_queues,
    "edf-first": lambda _queues: Discipline(edf_first),
    "srpt": lambda _queues: Discipline(srpt),
    "fair": lambda _queues: Discipline(fair),
}


def by_deadline(flows: list[Flow]) -> list[Flow]:
    """The flows with a deadline, the earliest first."""
    found = [flow for flow in flows if flow.deadline is not None]
    return sorted(found, key=lambda flow: (flow.deadline, flow.id))


def _shortest(flows: list[Flow]) -> list[Flow]:
    return sorted(flows, key=lambda flow: (flow.remaining, flow.id))


def _in_order(flows: list[Flow], links: Links) -> Shares:
    shares = Shares.of(flows, links)
    for flow in flows:
        shares.give(flow, shares.open_rate(flow))
    return shares
