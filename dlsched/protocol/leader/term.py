"""A term begins, commits and ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dlsched.protocol.leader.commands import (
    Answer,
    Persist,
    SendNudge,
)
from dlsched.protocol.leader.state import LeaderState, Role
from dlsched.protocol.leader.turn import Turn
from dlsched.protocol.ledger import (
    Adopt,
    Ledger,
    RaiseEpoch,
    RaiseRevision,
    RunStatus,
    Write,
    apply_all,
)
from dlsched.protocol.messages import (
    Nudge,
    Term,
)

__all__ = ["TermTurn"]


class TermTurn(Turn):
    """How a term begins, what it commits, and how it ends."""

    def start_windows_anew(self, now: float) -> None:
        """After a pause nothing is concluded from what was not heard."""
        hearings = {
            name: replace(hearing, chain=None, renewals={})
            for name, hearing in self.state.hearings.items()
        }
        self.change(window_from=now, hearings=hearings)

    def begin_term(self, now: float, asked_at: float, ledger: Ledger) -> None:
        """Lead with what the database has."""
        self.recovery = None
        self.state = LeaderState(
            name=self.state.name,
            timing=self.state.timing,
            role=Role.LEADING,
            committed=ledger,
            reserved=ledger,
            confirmed_at=asked_at,
            last_tick=now,
            window_from=now,
            loaded={name: node.revision for name, node in ledger.nodes.items()},
            preparing_from={
                run.key.run_id: now
                for run in ledger.runs.values()
                if run.status is RunStatus.PREPARING
            },
        )

    def step_down(self) -> None:
        """Lead no more; whoever waits for an answer is told so."""
        state = self.state
        for answer in (*state.in_flight_answers, *state.queue_answers):
            self.say(Answer(answer.token, unknown=True))
        self.state = LeaderState(name=state.name, timing=state.timing, last_tick=state.last_tick)

    def flush(self) -> None:
        """Put what is gathered into the next transaction."""
        state = self.state
        if (
            state.role is not Role.LEADING
            or state.in_flight
            or not (state.queue or state.queue_answers)
        ):
            return
        transaction = Persist(state.epoch, state.number + 1, state.queue)
        self.change(
            in_flight=transaction,
            in_flight_answers=state.queue_answers,
            queue=(),
            queue_answers=(),
            number=transaction.number,
        )
        self.say(transaction)

    def commit(self, number: int) -> None:
        """A transaction is durable: speak of it."""
        state = self.state
        if state.in_flight is None or state.in_flight.number != number:
            return
        before, after = state.committed, apply_all(state.committed, state.in_flight.writes)
        self.change(committed=after, in_flight=None, in_flight_answers=(), again=False)
        self.sound(state.in_flight.writes)
        self.say(*state.in_flight_answers)
        for name, node in after.nodes.items():
            old = before.nodes.get(name)
            if old is None or old != node or before.epoch != after.epoch:
                term = Term(after.epoch, node.revision)
                self.say(SendNudge(Nudge(node=name, term=term)))

    def sound(self, writes: Iterable[Write]) -> None:
        """Alarms of committed facts: a deposed leader sees higher epochs too, and says nothing."""
        for write in writes:
            match write:
                case RaiseEpoch(epoch=epoch):
                    self.alarm(f"the database had stepped back; going on in epoch {epoch}")
                case RaiseRevision(node=node, revision=revision):
                    self.alarm(f"the database had stepped back; {node} had seen {revision}")
                case Adopt(held=held, node=node):
                    self.alarm(f"{node} holds run {held.key}, unknown here: kept as an orphan")
                case _:
                    pass
