"""The live cluster's protocol as pure steps: leader, agent and keeper without any I/O.

Each party has a frozen state, events, commands and one function
`step(state, event) -> (state, commands)`. Time comes in events and timers are values. A durable
write is a command, and its completion is an event, so tests can crash a party before and after each
write. `docs/protocol.md` has the picture; `tests/protocol/simulation` runs all parties
under faults.
"""

from __future__ import annotations

__all__ = ["agent", "keeper", "leader", "ledger", "messages", "rules", "timing"]
