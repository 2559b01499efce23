"""The leader answers: a reply is used once its term is durable, and while it is young."""

from __future__ import annotations

from dataclasses import replace

from dlsched.protocol import rules
from dlsched.protocol.agent.commands import (
    DropRecord,
    Note,
    Persist,
    Tell,
    WriteLease,
)
from dlsched.protocol.agent.records import AgentRecord
from dlsched.protocol.agent.runs import RunsTurn
from dlsched.protocol.messages import (
    Digest,
    Forget,
    Kill,
    Reply,
    RunId,
    StopReason,
    Term,
    WitnessAnswer,
)


class RepliesTurn(RunsTurn):
    """What a reply and a witness come to."""

    def receive(self, now: float, reply: Reply) -> None:
        """Look at a reply: is it for this process, young, and of a term that may still order?"""
        state = self.state
        sent_at = state.sent.get(reply.sequence)
        if (
            reply.incarnation != state.record.incarnation
            or sent_at is None
            or reply.sequence <= state.answered
        ):
            return
        if not rules.is_fresh(sent_at, now, state.timing):
            self.say(Note("a reply came too late"))
            return
        if reply.register or reply.want_held:  # orders nothing, so no term can forbid it
            news = state.registered or reply.want_held
            self.change(told_digest=Digest(""), registered=state.registered and not reply.register)
            if news:
                self.change(answered=reply.sequence)
                self.sync(now)
            return
        if not rules.supersedes(reply.term, state.record.term):
            self.say(Note(f"a reply of {reply.term} after {state.record.term}"))
            return
        self.change(pending=reply)
        if reply.term == state.record.term:
            self.use_pending(now)
        else:
            self.persist(reply.term)

    def persist(self, term: Term) -> None:
        """Make a term durable before anything of it is used."""
        newest = self.state.writing or self.state.record
        if term > newest.term:
            record = replace(self.state.record, term=term)
            self.change(writing=record)
            self.say(Persist(record))

    def persisted(self, now: float, record: AgentRecord) -> None:
        """The own file is durable: begin, or use what waited for it."""
        if self.state.writing == record:
            self.change(writing=None)
        self.change(record=record)
        if not self.state.started:
            self.change(started=True)
            self.sync(now)
        self.use_pending(now)

    def use_pending(self, now: float) -> None:
        """Use a reply whose term is durable, if it is still young enough."""
        state, reply = self.state, self.state.pending
        if reply is None or reply.term != state.record.term:
            return
        self.change(pending=None)
        sent_at = state.sent.get(reply.sequence)
        if sent_at is None or not rules.is_fresh(sent_at, now, state.timing):
            return
        self.change(
            registered=True,
            answered=reply.sequence,
            told_digest=state.telling[reply.sequence],
            witnesses=reply.witnesses,
        )
        if reply.desired is not None:
            self.change(desired=reply.desired, desired_digest=reply.desired_digest)
        elif reply.desired_digest != state.desired_digest:
            self.change(desired_digest=Digest(""))
            self.sync(now)
            return
        if reply.lease is not None:
            until = sent_at + reply.lease.duration_s
            self.change(renewed_at=now, renewed_sequence=reply.sequence)
            self.write_lease(until, reply.lease.covers, by_leader=True)
        self.acknowledge(reply)
        changed = self.reconcile()
        self.change(applied=reply.term)
        if changed:
            self.sync(now)

    def acknowledge(self, reply: Reply) -> None:
        """What the leader has committed of ends need not be told again."""
        ended, held = dict(self.state.ended), dict(self.state.held)
        for run_id in reply.acknowledged:
            if ended.pop(run_id, None) is None:
                continue
            self.say(Tell(run_id, Forget()), DropRecord(run_id))
            if run_id in held and not held[run_id].quarantined:
                del held[run_id]
        self.change(ended=ended, held=held)
        for run_id in reply.over:
            if run_id in held and not held[run_id].lost:
                self.say(Tell(run_id, Kill(StopReason.OVER)))

    def write_lease(self, until: float, covers: frozenset[RunId], *, by_leader: bool) -> None:
        """Replace the lease file."""
        self.change(lease_until=until, covers=covers)
        self.say(WriteLease(until, covers, by_leader))

    def witnessed(self, now: float, answer: WitnessAnswer) -> None:
        """A witness has answered; enough of them extend the lease."""
        state, asking = self.state, self.state.asking
        if answer.nonce != asking.nonce or answer.witness not in state.witnesses:
            return
        if state.renewed_at > asking.asked_at:
            return
        ages = {**asking.ages, answer.witness: answer.renewed_ago_s}
        self.change(asking=replace(asking, ages=ages))
        if not rules.is_fresh(asking.asked_at, now, state.timing):
            return
        if rules.may_extend(
            ages.values(), len(state.witnesses), state.lease_until, now, state.timing
        ):
            until = asking.asked_at + state.timing.lease_s
            if until > state.lease_until:
                self.write_lease(until, state.covers, by_leader=False)
