"""All parties of the protocol in one seeded world of faults, watched by an invariant checker."""

from __future__ import annotations

from dlsched.protocol.simulation.invariants import Checker
from dlsched.protocol.simulation.world import Behaviour, Fault, Faults, Network, World

__all__ = ["Behaviour", "Checker", "Fault", "Faults", "Network", "World"]
