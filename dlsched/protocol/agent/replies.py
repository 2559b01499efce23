"""Replies of the leader: one is used after its term is durable, and only while it is fresh."""

from __future__ import annotations

from dataclasses import replace

from dlsched.protocol import messages as m
from dlsched.protocol import rules
from dlsched.protocol.agent.interface import (
    AgentRecord,
    DropRecord,
    LogLine,
    OrderKeeper,
    Persist,
    WriteEnd,
    WriteLease,
)
from dlsched.protocol.agent.runs import RunsTurn


class RepliesTurn(RunsTurn):
    """What an agent does with replies and with the answers of witnesses."""

    def receive(self, now: float, reply: m.Reply) -> None:
        """Check a reply: for this process, fresh, and of no older term than the one on disk."""
        state = self.state
        sent_at = state.sent.get(reply.sequence)
        if (
            reply.incarnation != state.record.incarnation
            or sent_at is None
            or reply.sequence <= state.answered
        ):
            return
        self.rest(now, reply.sequence)
        if not rules.is_fresh(sent_at, now, state.timing):
            self.emit(LogLine("a reply came too late"))
            return
        if reply.refused != self.state.refused:
            self.change(refused=reply.refused)
            why = reply.refused and f": {reply.refused}"
            self.emit(LogLine(f"the daemon {'refuses this agent' if why else 'takes it now'}{why}"))
        if reply.count_on_from >= self.state.record.incarnation:
            self.change(answered=reply.sequence)
            self.count_on_from(reply.count_on_from)
            return
        if reply.register or reply.want_held:  # contains no order, so its term does not matter
            news = state.registered or reply.want_held
            self.change(
                reported_digest=m.Digest(""), registered=state.registered and not reply.register
            )
            if news:
                self.change(answered=reply.sequence)
                self.sync(now)
            return
        if not rules.supersedes(reply.term, state.record.term):
            self.emit(LogLine(f"a reply of {reply.term} after {state.record.term}"))
            return
        self.change(pending=reply)
        if reply.term == state.record.term:
            self.use_pending(now)
        else:
            self.persist(reply.term)

    def persist(self, term: m.Term) -> None:
        """Make a term durable before a reply of that term is used."""
        newest = self.state.writing or self.state.record
        if term > newest.term:
            record = replace(newest, term=term)
            self.change(writing=record)
            self.emit(Persist(record))

    def count_on_from(self, known: m.Incarnation) -> None:
        """Make an incarnation above the one that the leader knows durable, then sync with it."""
        newest = self.state.writing or self.state.record
        record = replace(newest, incarnation=m.Incarnation(max(known, newest.incarnation) + 1))
        self.change(writing=record)
        self.emit(Persist(record))

    def persisted(self, now: float, record: AgentRecord) -> None:
        """The agent's file is durable: start to sync, or use the reply that waited for it."""
        if self.state.writing == record:
            self.change(writing=None)
        counted = record.incarnation != self.state.record.incarnation
        self.change(record=record)
        if counted or not self.state.started:
            self.change(started=True)
            self.sync(now)
        self.use_pending(now)

    def use_pending(self, now: float) -> None:
        """Use the waiting reply if its term is durable and it is still fresh."""
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
            reported_digest=state.reported[reply.sequence],
            witnesses=reply.witnesses,
        )
        if reply.desired is not None:
            self.change(desired=reply.desired, desired_digest=reply.desired_digest)
        elif reply.desired_digest != state.desired_digest:
            self.change(desired_digest=m.Digest(""))
            self.sync(now)
            return
        if reply.lease is not None:
            until = sent_at + reply.lease.duration_s
            self.change(renewed_at=now, renewed_sequence=reply.sequence)
            self.write_lease(until, reply.lease.covers, by_leader=True)
        self.acknowledge(now, reply)
        changed = self.reconcile(now)
        self.change(applied=reply.term)
        if changed:
            self.tell(now)

    def acknowledge(self, now: float, reply: m.Reply) -> None:
        """Drop the ends that the leader has committed, and kill the runs that it knows are over."""
        ended, held = dict(self.state.ended), dict(self.state.held)
        for run_id in reply.acknowledged:
            record = ended.pop(run_id, None)
            if record is None:
                continue
            self.emit(OrderKeeper(run_id, m.Forget()))
            if run_id in held and held[run_id].quarantined:
                continue  # its record says so until the process is gone
            self.emit(DropRecord(run_id, record))
            held.pop(run_id, None)
        self.change(ended=ended, held=held)
        for run_id in reply.over:
            if run_id not in held:
                continue
            end = held[run_id].in_doubt
            if end is not None:
                held[run_id] = replace(held[run_id], in_doubt=None, quarantined=False)
                self.change(held=held)
                self.emit(WriteEnd(end))
            elif held[run_id].quarantined:
                held[run_id] = replace(held[run_id], is_said_to_be_over=True)
                self.change(held=held)
            elif not held[run_id].lost:
                self.order_end(now, run_id, m.Kill(m.StopReason.OVER))

    def write_lease(self, until: float, covers: frozenset[m.RunId], *, by_leader: bool) -> None:
        """Replace the lease file."""
        self.change(lease_until=until, covers=covers)
        self.emit(WriteLease(until, covers, by_leader))

    def witnessed(self, now: float, answer: m.WitnessAnswer) -> None:
        """Note a witness's answer; extend the lease when enough of them allow it."""
        state, witness_round = self.state, self.state.witness_round
        if answer.nonce != witness_round.nonce or answer.witness not in state.witnesses:
            return
        if state.renewed_at > witness_round.asked_at:
            return
        ages = {**witness_round.ages, answer.witness: answer.renewed_ago_s}
        self.change(witness_round=replace(witness_round, ages=ages))
        if not rules.is_fresh(witness_round.asked_at, now, state.timing):
            return
        if rules.may_extend(
            ages.values(), len(state.witnesses), state.lease_until, now, state.timing
        ):
            until = witness_round.asked_at + state.timing.lease_s
            if until > state.lease_until:
                self.write_lease(until, state.covers, by_leader=False)
