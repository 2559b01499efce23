"""All parties of the protocol in one seeded world with faults and an invariant checker."""

from __future__ import annotations

from tests.protocol.simulation.invariants import Checker
from tests.protocol.simulation.scenario import Behaviour, Fault, Faults, Network
from tests.protocol.simulation.world import World

__all__ = ["Behaviour", "Checker", "Fault", "Faults", "Network", "World"]
