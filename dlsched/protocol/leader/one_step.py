"""The leader as a pure step: events in, new state and commands out.

Decide on `reserved`, commit, then speak from `committed`: nothing that a reply, an
acknowledgement or a client's answer says can be lost with this process. One transaction is in
flight at a time; what comes meanwhile is gathered for the next. Losing the database's word (a
write refused for its epoch) ends the term.
"""

from __future__ import annotations

from dlsched.protocol import rules
from dlsched.protocol.leader.commands import (
    Answer,
    Command,
    Confirm,
    Contend,
)
from dlsched.protocol.leader.events import (
    AttachAsked,
    BatchAsked,
    CancelAsked,
    Confirmed,
    Deposed,
    DownConfirmed,
    Elected,
    Event,
    ForgetAsked,
    Persisted,
    PersistFailed,
    PlaceAsked,
    RequeueAsked,
    StopAsked,
    SubmitAsked,
    SuspendAsked,
    SyncArrived,
    TermsAsked,
    Tick,
    Together,
)
from dlsched.protocol.leader.hearing import HearingTurn
from dlsched.protocol.leader.silence import SilenceTurn
from dlsched.protocol.leader.state import LeaderState, Role
from dlsched.protocol.leader.term import TermTurn
from dlsched.protocol.leader.wishes import WishesTurn
from dlsched.protocol.ledger import (
    Attach,
    ChangeTerms,
)

__all__ = ["step"]


class _Turn(TermTurn, HearingTurn, SilenceTurn, WishesTurn):
    """One event, whichever it is."""

    def take(self, event: Event) -> None:  # noqa: PLR0912  # one case an event
        match event:
            case Tick(now=now):
                self.tick(now)
            case Elected(now=now, asked_at=asked_at, ledger=ledger):
                if self.state.role is Role.STANDBY:
                    self.begin_term(now, asked_at, ledger)
            case Deposed():
                self.step_down()
            case _ if self.state.role is not Role.LEADING:
                self.decline(event)
            case Confirmed(asked_at=asked_at):
                self.change(confirmed_at=max(self.state.confirmed_at, asked_at))
            case Persisted(number=number):
                self.commit(number)
            case PersistFailed(number=number):
                flying = self.state.in_flight
                self.change(again=flying is not None and flying.number == number)
            case SyncArrived(now=now, sync=sync, recalled=recalled):
                self.recall(recalled)
                self.hear(now, sync)
            case Together(events=events):
                for each in events:
                    self.take(each)
            case ForgetAsked(jobs=jobs):
                self.forget(jobs)
            case _:
                self.take_wish(event)

    def take_wish(self, event: Event) -> None:
        """What a client, an operator or the round wants."""
        match event:
            case SubmitAsked(token=token, request=request):
                self.submit(token, request)
            case BatchAsked():
                self.submit_all(event)
            case CancelAsked(token=token, job=job, why=why):
                self.cancel(token, job, why)
            case RequeueAsked(token=token, job=job):
                self.requeue(token, job)
            case PlaceAsked():
                self.place(event)
            case StopAsked(job=job, reason=reason, step=at):
                self.stop(job, reason, at)
            case SuspendAsked():
                self.suspend(event)
            case TermsAsked(job=job, terms=terms):
                row = self.state.reserved.jobs.get(job)
                if row is not None and not row.status.is_terminal and row.terms != terms:
                    self.write(ChangeTerms(job, terms))
            case AttachAsked(rows=rows, token=token_):
                self.write(*map(Attach, rows))
                if token_ is not None:
                    self.answer_after_commit(Answer(token_))
            case DownConfirmed(node=node):
                self.node_down(node)

    def decline(self, event: Event) -> None:
        """Who does not lead decides nothing and says so."""
        for each in event.events if isinstance(event, Together) else (event,):
            token = getattr(each, "token", None)
            if token is not None:
                self.say(Answer(token, unknown=True))

    def tick(self, now: float) -> None:
        state = self.state
        if state.last_tick is not None and rules.was_paused(state.last_tick, now, state.timing):
            self.start_windows_anew(now)
        self.change(last_tick=now)
        if state.role is Role.STANDBY:
            self.say(Contend(now))
            return
        self.say(Confirm(now, state.epoch))
        if state.again and state.in_flight is not None:
            self.change(again=False)
            self.say(state.in_flight)
        self.abort_slow_gangs(now)
        self.judge_silence(now)


def step(state: LeaderState, event: Event) -> tuple[LeaderState, list[Command]]:
    """The state after an event, and what is to be done, in order."""
    turn = _Turn(state)
    turn.take(event)
    turn.flush()
    return turn.state, turn.commands
