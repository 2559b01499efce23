"""One step of the leader: events in, new state and commands out.

The leader decides on `reserved` and answers from `committed`, so nothing in a reply, an
acknowledgement or a client's answer can be lost with this process. One transaction is in flight at
a time; changes that arrive meanwhile are collected for the next. A write that the database refuses
because of its epoch ends the term.
"""

from __future__ import annotations

from dlsched.protocol import rules
from dlsched.protocol.leader import interface
from dlsched.protocol.leader.requests import RequestsTurn
from dlsched.protocol.leader.silence import SilenceTurn
from dlsched.protocol.leader.state import LeaderState, Role
from dlsched.protocol.leader.sync import SyncTurn
from dlsched.protocol.leader.term import TermTurn
from dlsched.protocol.ledger import (
    Attach,
    ChangeTerms,
)

__all__ = ["step"]


class LeaderTurn(TermTurn, SyncTurn, SilenceTurn, RequestsTurn):
    """The step for any event."""

    def take(self, event: interface.Event) -> None:  # noqa: PLR0912  # one case an event
        """Carry out one event."""
        match event:
            case interface.Tick(now=now):
                self.tick(now)
            case interface.Elected(now=now, asked_at=asked_at, ledger=ledger):
                if self.state.role is Role.STANDBY:
                    self.begin_term(now, asked_at, ledger)
            case interface.Deposed():
                self.step_down()
            case _ if self.state.role is not Role.LEADING:
                self.decline(event)
            case interface.Confirmed(asked_at=asked_at):
                self.change(confirmed_at=max(self.state.confirmed_at, asked_at))
            case interface.Persisted(now=now, number=number):
                self.commit(number)
                committed = [
                    name for name, owed in self.state.owed.items() if owed.number <= number
                ]
                self.reply_to_owed(now, committed)
            case interface.PersistFailed(number=number):
                flying = self.state.in_flight
                self.change(resend=flying is not None and flying.number == number)
            case interface.SyncArrived():
                self.recall(event.recalled)
                self.receive(event)
            case interface.Together(events=events):
                for each in events:
                    self.take(each)
            case interface.ForgetAsked(jobs=jobs):
                self.forget(jobs)
            case _:
                self.take_request(event)

    def take_request(self, event: interface.Event) -> None:  # noqa: PLR0912  # one case a request
        """Carry out a request of a client, an operator or the round."""
        match event:
            case interface.SubmitAsked(token=token, request=request):
                self.submit(token, request)
            case interface.BatchAsked():
                self.submit_all(event)
            case interface.CancelAsked(token=token, job=job, why=why):
                self.cancel(token, job, why)
            case interface.RequeueAsked():
                self.requeue(event)
            case interface.PlaceAsked():
                self.place(event)
            case interface.StopAsked(job=job, reason=reason, step=at, why=why):
                self.stop(job, reason, at, why)
            case interface.SuspendAsked():
                self.suspend(event)
            case interface.ReadyToFollow():
                self.hand_over(event)
            case interface.FollowerGivenUp(run_id=run_id):
                self.give_up(run_id)
            case interface.TermsAsked(job=job, terms=terms):
                row = self.state.reserved.jobs.get(job)
                if row is not None and not row.status.is_terminal and row.terms != terms:
                    self.write(ChangeTerms(job, terms))
            case interface.AttachAsked(rows=rows, token=token_):
                self.write(*map(Attach, rows))
                if token_ is not None:
                    self.answer_after_commit(interface.Answer(token_))
            case interface.DownConfirmed(node=node):
                self.node_down(node)
            case interface.NodeOff(asked=asked):
                self.node_off(asked)
            case interface.EndOrphans(run_ids=run_ids):
                self.end_orphans(run_ids)
            case interface.OverConfirmed(places=places):
                self.settle(places)

    def decline(self, event: interface.Event) -> None:
        """Answer that the result is unknown: this process does not lead."""
        for each in event.events if isinstance(event, interface.Together) else (event,):
            token = getattr(each, "token", None)
            if token is not None:
                self.emit(interface.Answer(token, unknown=True))

    def tick(self, now: float) -> None:
        """Confirm the term, or contend for one; look for slow gangs and silent nodes."""
        state = self.state
        if state.last_tick is not None and rules.was_paused(state.last_tick, now, state.timing):
            self.start_windows_anew(now)
        self.change(last_tick=now)
        if state.role is Role.STANDBY:
            self.emit(interface.Contend(now))
            return
        self.emit(interface.Confirm(now, state.epoch))
        if state.resend and state.in_flight is not None:
            self.change(resend=False)
            self.emit(state.in_flight)
        self.reply_to_owed(now, list(self.state.owed))  # the database is slow: as far as it is
        self.abort_slow_gangs(now)
        self.check_silence(now)


def step(state: LeaderState, event: interface.Event) -> tuple[LeaderState, list[interface.Command]]:
    """The state after an event, and the commands to carry out, in order."""
    turn = LeaderTurn(state)
    turn.take(event)
    turn.flush()
    return turn.state, turn.commands
