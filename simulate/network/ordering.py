"""Disciplines without queues: earliest deadline, shortest remaining, and equal shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulate.network.flows import Flow, Number, Shares, share_fairly
from simulate.network.queueing import by_deadline


@dataclass(frozen=True, slots=True)
class _WithoutLimits:
    @property
    def limits(self) -> tuple[Number, ...]:
        """None: what was sent changes nothing."""
        return ()


@dataclass(frozen=True, slots=True)
class EdfFirst(_WithoutLimits):
    """The earliest deadline that is ahead takes all it can; then the least remaining."""

    def share(self, flows: list[Flow], links: Mapping[str, Number], now: Number) -> Shares:
        """Rates of unfinished flows."""
        urgent = [flow for flow in by_deadline(flows) if flow.due(now) is not None]
        others = [flow for flow in flows if flow.due(now) is None]
        return _in_order([*urgent, *_shortest(others)], links)


@dataclass(frozen=True, slots=True)
class Srpt(_WithoutLimits):
    """The least remaining takes all it can; every size must be known."""

    def share(self, flows: list[Flow], links: Mapping[str, Number], now: Number) -> Shares:
        """Rates of unfinished flows."""
        return _in_order(_shortest(flows), links)


@dataclass(frozen=True, slots=True)
class Fair(_WithoutLimits):
    """Max-min fair shares, as a transport without any of this gives."""

    def share(self, flows: list[Flow], links: Mapping[str, Number], now: Number) -> Shares:
        """Rates of unfinished flows."""
        shares = Shares.of(flows, links)
        share_fairly(flows, shares, links)
        return shares


def _shortest(flows: list[Flow]) -> list[Flow]:
    return sorted(flows, key=lambda flow: (flow.remaining, flow.id))


def _in_order(flows: list[Flow], links: Mapping[str, Number]) -> Shares:
    shares = Shares.of(flows, links)
    for flow in flows:
        shares.give(flow, shares.open_rate(flow))
    return shares
