"""Flows, links, and the rates that a discipline gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

Number = float | Fraction
FlowId = int | str
Links = Mapping[str, Number]  # the capacity of each
Kind = Literal["deadline", "known", "unknown"]
KINDS: tuple[Kind, ...] = ("deadline", "known", "unknown")
CRUMB = 1e-9  # of a size: so little is rounding


@dataclass(slots=True, kw_only=True)
class Flow:
    """One flow.

    Attributes:
        id: ties go to the smaller one.
        kind: with a deadline; without one, of known size; of a size that is not known beforehand.
        path: the links that it uses, all at the same rate.
        size: in all; disciplines do not look at it where the kind is `unknown`.
        arrival: seconds.
        deadline: seconds; None for the other kinds.
        sent: of the size, so far.
    """

    id: FlowId
    kind: Kind
    path: tuple[str, ...]
    size: Number
    arrival: Number = 0
    deadline: Number | None = None
    sent: Number = 0

    @property
    def remaining(self) -> Number:
        """What is still to be sent."""
        return self.size - self.sent

    def due(self, now: Number) -> Number | None:
        """The deadline, if it is still ahead."""
        return self.deadline if self.deadline is not None and self.deadline > now else None


@dataclass(slots=True, kw_only=True)
class Shares:
    """What a discipline decides at a moment.

    Attributes:
        rate: of each flow.
        residual: what is left of each link.
        demoted: flows whose deadline cannot be kept.
        queue: of each flow that is served by queues, from 1.
    """

    rate: dict[FlowId, Number]
    residual: dict[str, Number]
    demoted: list[FlowId] = field(default_factory=list)
    queue: dict[FlowId, int] = field(default_factory=dict)

    @classmethod
    def of(cls, flows: Iterable[Flow], links: Links) -> Shares:
        """Every flow stands, and every link is free."""
        return cls(rate={flow.id: 0 for flow in flows}, residual=dict(links))

    def give(self, flow: Flow, rate: Number) -> None:
        """Raise a flow's rate by so much, on every link of its path."""
        self.rate[flow.id] += rate
        for link in flow.path:
            self.residual[link] -= rate

    def open_rate(self, flow: Flow) -> Number:
        """The most by which a flow's rate could be raised."""
        return min(self.residual[link] for link in flow.path)


@dataclass(frozen=True, slots=True)
class Discipline:
    """How flows share links.

    Attributes:
        share: the rates of unfinished flows on links at a time.
        limits: amounts sent at which a flow of unknown size is looked at again, ascending.
    """

    share: Callable[[list[Flow], Links, Number], Shares]
    limits: tuple[Number, ...] = ()


def share_fairly(flows: Iterable[Flow], shares: Shares, within: Links) -> None:
    """Raise rates together until a link of each flow is full (max-min fair).

    Args:
        flows: that take part.
        shares: what they have so far; changes.
        within: of each link, the most that they may get together.
    """
    growing = list(flows)
    left = dict(within)
    while growing:
        count: dict[str, int] = {}
        for flow in growing:
            for link in flow.path:
                count[link] = count.get(link, 0) + 1
        step = min(left[link] / n for link, n in count.items())
        for flow in growing:
            shares.give(flow, step)
        full = {link for link, n in count.items() if left[link] / n <= step}
        for link, n in count.items():
            left[link] = 0 if link in full else left[link] - step * n
        growing = [flow for flow in growing if full.isdisjoint(flow.path)]
