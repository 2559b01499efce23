"""One step in the making: the state so far, the commands so far, and telling the leader."""

from __future__ import annotations

from dataclasses import replace

from dlsched.protocol.agent.commands import (
    Command,
    SendSync,
)
from dlsched.protocol.agent.state import AgentState
from dlsched.protocol.messages import (
    Health,
    Sync,
    digest_of,
)

REMEMBERED_SYNCS = 16


class Turn:
    """The state so far and the commands so far."""

    def __init__(self, state: AgentState) -> None:
        self.state = state
        self.commands: list[Command] = []

    def change(self, **changes: object) -> None:
        """Replace parts of the state."""
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]  # checked by tests

    def say(self, *commands: Command) -> None:
        """Command something."""
        self.commands.extend(commands)

    def sync(self, now: float) -> None:
        """Tell the leader what is held and what has ended."""
        state = self.state
        if not state.started:
            return
        sequence = state.sequence + 1
        held = state.held_runs()
        digest = digest_of(held)
        known = state.registered and digest == state.told_digest
        recent = dict(list(state.sent.items())[-REMEMBERED_SYNCS + 1 :])
        telling = dict(list(state.telling.items())[-REMEMBERED_SYNCS + 1 :])
        self.change(
            sequence=sequence,
            sent={**recent, sequence: now},
            telling={**telling, sequence: digest},
        )
        self.say(
            SendSync(
                Sync(
                    node=state.node,
                    boot_id=state.boot_id,
                    incarnation=state.record.incarnation,
                    sequence=sequence,
                    last=state.record.term,
                    applied=state.applied,
                    held_digest=digest,
                    held=None if known else held,
                    ended=tuple(state.ended[run_id] for run_id in sorted(state.ended)),
                    desired_digest=state.desired_digest,
                    renewed_sequence=state.renewed_sequence,
                    health=Health(quarantined=state.quarantined(), unhealthy=state.unhealthy),
                    inventory=None if state.registered else state.inventory,
                )
            )
        )
