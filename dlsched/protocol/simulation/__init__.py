"""All parties of the protocol in one seeded world of faults, watched by an invariant checker."""

from __future__ import annotations

from dlsched.protocol.simulation.faults import Fault, Faults, Network
from dlsched.protocol.simulation.invariants import Checker
from dlsched.protocol.simulation.processes import Behaviour
from dlsched.protocol.simulation.world import World

__all__ = ["Behaviour", "Checker", "Fault", "Faults", "Network", "World"]
