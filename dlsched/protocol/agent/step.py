"""One step of a node's agent: it syncs, compares desired with held runs, and orders its keepers.

The agent may die at any moment without a loss: keepers own the runs, records on disk hold the ends,
and a reply is used only after its (epoch, revision) is durable.
"""

from __future__ import annotations

from dataclasses import replace

from dlsched.protocol import messages as m
from dlsched.protocol import rules
from dlsched.protocol.agent import interface
from dlsched.protocol.agent.replies import RepliesTurn
from dlsched.protocol.agent.state import REMEMBERED_STARTS, AgentState, Held, WitnessRound


class AgentTurn(RepliesTurn):
    """The step for any event."""

    def start(self, event: interface.Started) -> None:
        """Take over disk and keepers and count this start; sync when that is durable."""
        held: dict[m.RunId, Held] = {}
        ended: dict[m.RunId, m.ExitRecord] = {}
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
                lives = record.exit.leaves_a_process and record.boot_id == event.boot_id
                if lives and run_id not in held:  # its keeper has died since
                    held[run_id] = replace(_left(record), quarantined=True)
                    self.emit(interface.KillLeftovers(run_id))
            elif run_id not in held:
                held[run_id] = _left(record)
                self.emit(interface.KillLeftovers(run_id))
        incarnation = m.Incarnation(event.record.incarnation + 1)
        starts = (*event.record.starts, event.start)[-REMEMBERED_STARTS:]
        record_ = replace(event.record, incarnation=incarnation, starts=starts)
        self.state = AgentState(
            node=self.state.node,
            inventory=self.state.inventory,
            timing=self.state.timing,
            epilog_s=self.state.epilog_s,
            boot_id=event.boot_id,
            record=event.record,
            writing=record_,
            held=held,
            ended=ended,
            renewed_at=event.now,  # a renewal before the start cannot be excluded
            lease_until=event.lease_until if event.lease_until is not None else float("-inf"),
            last_tick=event.now,
            unhealthy=self.state.unhealthy,
        )
        self.emit(interface.Persist(record_))

    def tick(self, now: float) -> None:
        """Sync, and ask the witnesses when no leader has renewed the lease for a while."""
        state = self.state
        if state.last_tick is not None and rules.was_paused(state.last_tick, now, state.timing):
            self.change(renewed_at=now)  # a renewal during the pause cannot be excluded
            self.wait_for_keepers_again(now)
        self.change(last_tick=now)
        self.kill_unresponsive_keepers(now)
        self.sync(now)
        unrenewed = state.timing.witness_beats * state.timing.beat_s
        fenced = now < state.lease_until and now - self.state.renewed_at >= unrenewed
        if fenced and state.witnesses:
            nonce = state.witness_round.nonce + 1
            self.change(witness_round=WitnessRound(nonce=nonce, asked_at=now))
            for witness in state.witnesses:
                self.emit(
                    interface.QueryWitness(
                        m.WitnessQuery(asker=state.node, witness=witness, nonce=nonce)
                    )
                )


def _left(record: interface.RunRecord) -> Held:
    """A run whose keeper is not there any more."""
    return Held(desired=record.desired, phase=m.Phase.STOPPING, lost=True, record=record)


def step(  # noqa: PLR0912  # one case an event
    state: AgentState, event: interface.Event
) -> tuple[AgentState, list[interface.Command]]:
    """The state after an event, and the commands to carry out, in order."""
    turn = AgentTurn(state)
    match event:
        case interface.Started():
            turn.start(event)
        case interface.Tick(now=now):
            turn.tick(now)
        case interface.SyncDue(now=now):
            if state.owes_sync:
                turn.change(owes_sync=False)
                turn.tell(now)
        case interface.ReplyArrived(now=now, reply=reply):
            turn.receive(now, reply)
        case interface.Nudged(now=now, nudge=nudge):
            if nudge.term > state.applied:
                if state.unanswered:
                    turn.tell(now)  # the reply under way has that term, most likely
                else:
                    turn.sync(now)
        case interface.Persisted(now=now, record=record):
            turn.persisted(now, record)
        case interface.KeeperReported(now=now, status=status):
            turn.keeper_reported(now, status)
        case interface.KeeperGone(run_id=run_id, why=why, fault=fault):
            turn.keeper_gone(run_id, why, fault)
        case interface.HealthChanged(now=now, unhealthy=unhealthy):
            if unhealthy != state.unhealthy:
                turn.change(unhealthy=unhealthy)
                turn.tell(now)
        case interface.LeftoversGone(now=now, run_id=run_id, record=found, at=at):
            turn.leftovers_gone(now, run_id, found, at)
        case interface.EndWritten(now=now, exit=record):
            turn.ended(now, record)
        case interface.WitnessAsked(now=now, query=query):
            age = now - state.renewed_at
            turn.emit(
                interface.AnswerWitness(
                    m.WitnessAnswer(
                        asker=query.asker,
                        witness=query.witness,
                        nonce=query.nonce,
                        renewed_ago_s=age,
                    )
                )
            )
        case interface.WitnessAnswered(now=now, answer=answer):
            turn.witnessed(now, answer)
    return turn.state, turn.commands
