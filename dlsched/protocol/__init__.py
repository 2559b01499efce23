"""The live cluster's protocol as pure steps: leader, agent and keeper without any I/O.

Each party is a module with a frozen state, events, commands and one function
`step(state, event) -> (state, commands)`. Time comes in events, timers are values, and everything
durable is a command whose completion is an event, so that a crash before and after each can be
walked. `docs/protocol.md` has the picture; `simulation` runs all parties against faults.
"""

from __future__ import annotations

__all__ = ["agent", "keeper", "leader", "ledger", "messages", "rules", "timing"]
