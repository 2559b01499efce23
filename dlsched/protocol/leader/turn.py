"""One step in the making: the state so far and the commands so far."""

from __future__ import annotations

from dataclasses import replace

from dlsched.protocol.leader.commands import (
    Alarm,
    Command,
)
from dlsched.protocol.leader.state import LeaderState
from dlsched.protocol.ledger import (
    Write,
    apply_all,
)

__all__ = ["Turn"]


class Turn:
    """The state so far and the commands so far."""

    def __init__(self, state: LeaderState) -> None:
        self.state = state
        self.commands: list[Command] = []
        self.recovery: str | None = None  # hearings do not change while a round is taken in

    def change(self, **changes: object) -> None:
        """Replace parts of the state."""
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]  # checked by tests

    def say(self, *commands: Command) -> None:
        """Command something."""
        self.commands.extend(commands)

    def write(self, *writes: Write) -> None:
        """Decide something: reserved now, committed with the next transaction."""
        self.change(
            reserved=apply_all(self.state.reserved, writes), queue=(*self.state.queue, *writes)
        )

    def alarm(self, text: str) -> None:
        """Tell an operator once, for as long as it stands."""
        if text not in self.state.shown:
            self.change(shown=self.state.shown | {text})
            self.say(Alarm(text))
