"""A leader's term: how it begins, commits changes and ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dlsched.protocol import messages as m
from dlsched.protocol.leader.interface import (
    Answer,
    Persist,
    SendNudge,
)
from dlsched.protocol.leader.state import LeaderState, Role, Turn, witnesses_of
from dlsched.protocol.ledger import (
    Adopt,
    Ledger,
    RaiseEpoch,
    RaiseRevision,
    RunStatus,
    Write,
    apply_all,
)


class TermTurn(Turn):
    """What a leader does about its term."""

    def start_windows_anew(self, now: float) -> None:
        """Restart all observations of silence after a pause of this process."""
        last_syncs = {
            name: replace(last, chain=None, renewals={})
            for name, last in self.state.last_syncs.items()
        }
        self.change(window_from=now, last_syncs=last_syncs)

    def begin_term(self, now: float, asked_at: float, ledger: Ledger) -> None:
        """Start to lead with the database's content."""
        self.recovery = None
        self.state = LeaderState(
            name=self.state.name,
            timing=self.state.timing,
            role=Role.LEADING,
            committed=ledger,
            reserved=ledger,
            witnesses=witnesses_of(ledger.nodes),
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
        """Stop to lead; waiting clients are told that their result is unknown."""
        state = self.state
        for answer in (*state.in_flight_answers, *state.queue_answers):
            self.emit(Answer(answer.token, unknown=True))
        self.state = LeaderState(name=state.name, timing=state.timing, last_tick=state.last_tick)

    def flush(self) -> None:
        """Send the collected changes as the next transaction, unless one is in flight."""
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
        self.emit(transaction)

    def commit(self, number: int) -> None:
        """A transaction is durable: answer its clients and nudge the nodes that it concerns.

        A node whose sync waits for it gets its reply instead.
        """
        state = self.state
        if state.in_flight is None or state.in_flight.number != number:
            return
        answered = {name for name, owed in state.owed.items() if owed.number <= number}
        before, after = state.committed, apply_all(state.committed, state.in_flight.writes)
        self.change(committed=after, in_flight=None, in_flight_answers=(), resend=False)
        self.raise_alarms(state.in_flight.writes)
        self.emit(*state.in_flight_answers)
        for name, node in after.nodes.items():
            old = before.nodes.get(name)
            if old is node and before.epoch == after.epoch:
                continue  # nearly all of them: a comparison of their fields would cost more
            if old is None or old.status is not node.status:
                self.change(witnesses=witnesses_of(after.nodes))
            if name not in answered and (old is None or old != node or before.epoch != after.epoch):
                term = m.Term(after.epoch, node.revision)
                self.emit(SendNudge(m.Nudge(node=name, term=term)))

    def raise_alarms(self, writes: Iterable[Write]) -> None:
        """Raise alarms of committed changes only: a deposed leader sees higher epochs, too."""
        for write in writes:
            match write:
                case RaiseEpoch(epoch=epoch):
                    self.tell(f"the database had stepped back; going on in epoch {epoch}")
                case RaiseRevision(node=node, revision=revision):
                    self.tell(f"the database had stepped back; {node} had seen {revision}")
                case Adopt(held=held, node=node):
                    self.tell(f"{node} holds run {held.key}, unknown here: kept as an orphan")
                case _:
                    pass
