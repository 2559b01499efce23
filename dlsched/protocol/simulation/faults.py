"""What goes wrong in a simulated world, and when."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Fault", "Faults", "Network"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What the network does to messages between machines."""

    delay_s: float = 0.02
    slow: float = 0.0  # share of messages that take up to `slow_s`
    slow_s: float = 8.0
    lost: float = 0.0
    doubled: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong (or is asked for) at a time, for a while."""

    at: float
    kind: str
    target: str = ""
    other: str = ""
    for_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """A schedule."""

    faults: tuple[Fault, ...] = ()
    network: Network = Network()
    clock_rates: dict[str, float] = field(default_factory=dict)
