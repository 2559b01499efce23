"""A node's agent as a pure step: syncs, compares desired with held, orders its keepers.

The agent may die at any instant and take nothing with it: runs belong to keepers, ends to records
on disk, and the order of commands to the (epoch, revision) that is durable before a reply is used.
"""

from __future__ import annotations

from dataclasses import replace

from dlsched.protocol import rules
from dlsched.protocol.agent.commands import (
    AnswerWitness,
    Ask,
    Command,
    KillLeftovers,
    Persist,
)
from dlsched.protocol.agent.events import (
    EndWritten,
    Event,
    HealthChanged,
    KeeperGone,
    KeeperSpoke,
    LeftoversGone,
    Nudged,
    Persisted,
    ReplyArrived,
    Started,
    Tick,
    WitnessAnswered,
    WitnessAsked,
)
from dlsched.protocol.agent.replies import RepliesTurn
from dlsched.protocol.agent.state import AgentState, Asking, Held
from dlsched.protocol.messages import (
    ExitRecord,
    Incarnation,
    Phase,
    RunId,
    WitnessAnswer,
    WitnessQuery,
)


class _Turn(RepliesTurn):
    """One event, whichever it is."""

    def start(self, event: Started) -> None:
        """Read the disk, find the keepers, count this start; talk when that is durable."""
        held: dict[RunId, Held] = {}
        ended: dict[RunId, ExitRecord] = {}
        for status in event.keepers:
            key = status.desired.key
            held[key.run_id] = Held(
                desired=status.desired,
                phase=status.phase,
                quarantined=status.quarantined,
                suspension=status.suspension,
                let_go=status.let_go,
            )
            if status.exit is not None:
                ended[key.run_id] = status.exit
        for record in event.runs:
            run_id = record.desired.key.run_id
            if record.exit is not None:
                ended[run_id] = record.exit
                if run_id in held and not held[run_id].quarantined:
                    del held[run_id]
            elif run_id not in held:
                held[run_id] = Held(
                    desired=record.desired, phase=Phase.STOPPING, lost=True, record=record
                )
                self.say(KillLeftovers(run_id))
        incarnation = Incarnation(event.record.incarnation + 1)
        record_ = replace(event.record, incarnation=incarnation)
        self.state = AgentState(
            node=self.state.node,
            inventory=self.state.inventory,
            timing=self.state.timing,
            boot_id=event.boot_id,
            record=event.record,
            writing=record_,
            held=held,
            ended=ended,
            renewed_at=event.now,  # it cannot rule out a renewal before its start
            lease_until=event.lease_until if event.lease_until is not None else float("-inf"),
            last_tick=event.now,
            unhealthy=self.state.unhealthy,
        )
        self.say(Persist(record_))

    def tick(self, now: float) -> None:
        state = self.state
        if state.last_tick is not None and rules.was_paused(state.last_tick, now, state.timing):
            self.change(renewed_at=now)  # nothing was observed meanwhile
        self.change(last_tick=now)
        self.sync(now)
        unrenewed = state.timing.witness_beats * state.timing.beat_s
        fenced = now < state.lease_until and now - self.state.renewed_at >= unrenewed
        if fenced and state.witnesses:
            nonce = state.asking.nonce + 1
            self.change(asking=Asking(nonce=nonce, asked_at=now))
            for witness in state.witnesses:
                self.say(Ask(WitnessQuery(asker=state.node, witness=witness, nonce=nonce)))


def step(  # noqa: PLR0912  # one case an event
    state: AgentState, event: Event
) -> tuple[AgentState, list[Command]]:
    """The state after an event, and what is to be done, in order."""
    turn = _Turn(state)
    match event:
        case Started():
            turn.start(event)
        case Tick(now=now):
            turn.tick(now)
        case ReplyArrived(now=now, reply=reply):
            turn.receive(now, reply)
        case Nudged(now=now, nudge=nudge):
            if nudge.term > state.applied:
                turn.sync(now)
        case Persisted(now=now, record=record):
            turn.persisted(now, record)
        case KeeperSpoke(now=now, status=status):
            turn.keeper_spoke(now, status)
        case KeeperGone(run_id=run_id, why=why):
            turn.keeper_gone(run_id, why)
        case HealthChanged(now=now, unhealthy=unhealthy):
            if unhealthy != state.unhealthy:
                turn.change(unhealthy=unhealthy)
                turn.sync(now)
        case LeftoversGone(now=now, run_id=run_id, record=found):
            turn.leftovers_gone(now, run_id, found)
        case EndWritten(now=now, exit=record):
            turn.ended(now, record)
        case WitnessAsked(now=now, query=query):
            age = now - state.renewed_at
            turn.say(
                AnswerWitness(
                    WitnessAnswer(
                        asker=query.asker,
                        witness=query.witness,
                        nonce=query.nonce,
                        renewed_ago_s=age,
                    )
                )
            )
        case WitnessAnswered(now=now, answer=answer):
            turn.witnessed(now, answer)
    return turn.state, turn.commands
