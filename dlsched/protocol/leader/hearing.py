"""A node syncs: what it says is taken in, what is committed is answered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dlsched.protocol import rules
from dlsched.protocol.leader.commands import (
    SendReply,
)
from dlsched.protocol.leader.state import Hearing
from dlsched.protocol.leader.turn import Turn
from dlsched.protocol.ledger import (
    GPU_UNHEALTHY,
    Adopt,
    Attach,
    Job,
    Ledger,
    LetGo,
    MemberOver,
    NodeStatus,
    OrphanOver,
    Quarantine,
    RaiseEpoch,
    RaiseRevision,
    RegisterNode,
    ReleaseRun,
    Run,
    RunStatus,
    StopRun,
    Submit,
    having,
    with_run,
    without_jobs,
)
from dlsched.protocol.messages import (
    Digest,
    Epoch,
    HeldRun,
    JobId,
    Lease,
    NodeName,
    Phase,
    Reply,
    Revision,
    RunId,
    RunKey,
    StopReason,
    Sync,
    Term,
    digest_of,
)
from dlsched.protocol.rules import Chain

__all__ = ["HearingTurn"]


REMEMBERED_REPLIES = 16  # a node


class HearingTurn(Turn):
    """What a node says, and what it is told."""

    def hear(self, now: float, sync: Sync) -> None:
        """Take in a sync: its news first, then the reply."""
        name = sync.node
        self.notice_step_back(sync)
        if not self.is_registered(sync):
            return
        hearing = self.state.hearings.get(name)
        if hearing is not None and hearing.incarnation == sync.incarnation:
            if sync.sequence <= hearing.sequence:
                return  # a repeated or overtaken message
        else:
            hearing = None
        held = sync.held
        if held is None and hearing is not None and hearing.held_digest == sync.held_digest:
            held = hearing.held
        self.note_hearing(now, sync, hearing, held)
        self.take_ends(sync)
        if held is None:
            self.say(SendReply(replace(self.bare_reply(sync), want_held=True)))
            return
        self.take_held(sync, held)
        if sync.health.quarantined != self.state.reserved.nodes[name].quarantined:
            self.write(Quarantine(name, sync.health.quarantined))
        self.reply(now, sync, held)

    def notice_step_back(self, sync: Sync) -> None:
        """A node that has seen more than this database ever said: the database is an older one.

        What was said in earlier terms is what this term found when it began; a revision beyond
        that, or a term beyond this one, was lost. The term goes on above everything seen.
        """
        state, name, last = self.state, sync.node, sync.last
        row = state.reserved.nodes.get(name)
        if last.epoch < state.epoch:
            known = state.loaded.get(name, Revision(0))
        else:
            known = row.revision if row is not None else Revision(0)
        if last.epoch <= state.reserved.epoch and last.revision <= known:
            return
        if row is None and last.epoch <= state.reserved.epoch:
            self.change(stepped_back=True)
            return  # the node itself was forgotten; it will register
        forgotten = max(last, state.forgotten.get(name, Term()))
        self.change(stepped_back=True, forgotten=having(state.forgotten, name, forgotten))
        if last.epoch >= state.reserved.epoch:
            self.write(RaiseEpoch(Epoch(last.epoch + 1)))
        if row is not None and last.revision > row.revision:
            self.write(RaiseRevision(name, last.revision))

    def is_registered(self, sync: Sync) -> bool:
        """Whether a sync is from a node's registered agent; registers one that asks for it."""
        name = sync.node
        node = self.state.reserved.nodes.get(name)
        known = self.state.committed.nodes.get(name)
        for row in (node, known):
            if row is None or (row.boot_id, row.incarnation) != (sync.boot_id, sync.incarnation):
                break
            if row.status is not NodeStatus.UP:
                break
        else:
            return True
        if node is not None and sync.incarnation < node.incarnation:
            return False  # a message of an agent that is no more
        if sync.inventory is None:
            self.say(SendReply(replace(self.bare_reply(sync), register=True)))
        elif node is None or node == known:
            self.register(sync)
        return False

    def bare_reply(self, sync: Sync) -> Reply:
        """A reply that only asks for something."""
        node = self.state.committed.nodes.get(sync.node)
        return Reply(
            node=sync.node,
            incarnation=sync.incarnation,
            sequence=sync.sequence,
            term=Term(self.state.epoch, node.revision) if node else Term(),
            desired_digest=Digest(""),
            desired=None,
        )

    def register(self, sync: Sync) -> None:
        """A node says what it has; a reboot ends the runs of the boot before."""
        assert sync.inventory is not None
        rebooted = [
            run
            for run in self.state.reserved.runs_on(sync.node)
            if sync.node in self.state.reserved.nodes
            and run.members[sync.node].boot_id != sync.boot_id
        ]
        self.write(
            RegisterNode(
                node=sync.node,
                boot_id=sync.boot_id,
                incarnation=sync.incarnation,
                inventory=sync.inventory,
            )
        )
        self.take_ends(sync)  # its exit records first
        for run in rebooted:
            if not self.state.reserved.runs[run.key.run_id].members[sync.node].is_over:
                self.write(MemberOver(run.key.run_id, sync.node, presumed="rebooted"))
        self.change(shown=frozenset(t for t in self.state.shown if not t.startswith(sync.node)))

    def note_hearing(
        self, now: float, sync: Sync, hearing: Hearing | None, held: tuple[HeldRun, ...] | None
    ) -> None:
        """Remember what was heard, and when."""
        timing = self.state.timing
        old = hearing or Hearing(incarnation=sync.incarnation, sequence=-1, at=now)
        chain = old.chain
        sent = old.renewals.get(sync.renewed_sequence)
        if sent is not None:
            if chain is None or now - chain.last_sent > timing.witnessed_s:
                chain = Chain(since=now, last_sent=sent)
            elif sent > chain.last_sent:
                chain = replace(chain, last_sent=sent)
        new = replace(
            old,
            sequence=sync.sequence,
            at=now,
            held=held if held is not None else (),
            held_digest=sync.held_digest if held is not None else Digest(""),
            chain=chain,
        )
        shown = frozenset(t for t in self.state.shown if not t.startswith(f"{sync.node} is late"))
        self.change(hearings=having(self.state.hearings, sync.node, new), shown=shown)

    def recall(self, rows: Iterable[tuple[Job, Run]]) -> None:
        """Take rows back that have left memory: what is committed stays known.

        Only what is over leaves memory; a run that is not over and unknown here belongs to a
        later term.
        """
        for job, run in rows:
            if not run.is_over:
                continue
            self.change(
                reserved=with_run(self.state.reserved, job, run),
                committed=with_run(self.state.committed, job, run),
            )

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Let jobs that are over leave memory, once every node has dropped their runs."""
        state = self.state
        flying = state.in_flight.writes if state.in_flight is not None else ()
        moving = {
            getattr(write, "run_id", None)
            for write in (*flying, *state.queue)
            if not isinstance(write, Attach | Submit)
        }
        told = {held.key.run_id for hearing in state.hearings.values() for held in hearing.held}
        gone = []
        for job in jobs:
            row = state.committed.jobs.get(job)
            runs = state.reserved.runs_of_job(job)
            if row is None or not row.status.is_terminal:
                continue
            if all(r.is_over and r.key.run_id not in moving | told for r in runs):
                gone.append(job)
        runs_gone = {r for job in gone for r in state.reserved.runs_of.get(job, ())}
        if gone:
            self.change(
                reserved=without_jobs(state.reserved, gone),
                committed=without_jobs(state.committed, gone),
                prepared={r: n for r, n in state.prepared.items() if r not in runs_gone},
                preparing_from={
                    r: at for r, at in state.preparing_from.items() if r not in runs_gone
                },
            )

    def take_ends(self, sync: Sync) -> None:
        """Ended runs, from whatever epoch: a report is never refused."""
        for record in sync.ended:
            reserved = self.state.reserved
            run = reserved.runs.get(record.key.run_id)
            if run is not None and sync.node in run.members:
                member = run.members[sync.node]
                if member.exit is None:
                    sick = sorted(set(member.gpus) & set(sync.health.unhealthy))
                    why = f"{GPU_UNHEALTHY}{', '.join(sick)}" if sick else ""
                    self.write(MemberOver(record.key.run_id, sync.node, record, why))
            elif (sync.node, record.key.run_id) not in reserved.history:
                self.write(OrphanOver(sync.node, record.key.run_id, record))

    def take_held(self, sync: Sync, held: tuple[HeldRun, ...]) -> None:
        """Compare what a node holds with what it should."""
        name = sync.node
        present = {h.key.run_id for h in held} | {r.key.run_id for r in sync.ended}
        for mine in held:
            run = self.state.reserved.runs.get(mine.key.run_id)
            if run is None or name not in run.members:
                if (name, mine.key.run_id) not in self.state.reserved.orphans:
                    self.write(Adopt(mine, name))
            elif mine.phase is Phase.PREPARED and run.status is RunStatus.PREPARING:
                self.note_prepared(run, name)
            elif run.is_giving_way and mine.suspension == run.suspension:
                self.note_suspended(run, name, mine)
        seen = max(sync.applied, self.state.forgotten.get(name, Term()))
        for run in self.state.reserved.runs_on(name):
            if run.key.run_id not in present and seen >= run.members[name].since:
                self.write(MemberOver(run.key.run_id, name, presumed="not there"))
        for (place, run_id), orphan in list(self.state.reserved.orphans.items()):
            if place == name and run_id not in present and sync.applied >= orphan.since:
                self.write(OrphanOver(name, run_id, None))

    def note_prepared(self, run: Run, node: NodeName) -> None:
        """A member has prepared; the last one releases the gang."""
        run_id = run.key.run_id
        ready = self.state.prepared.get(run_id, frozenset()) | {node}
        self.change(prepared=having(self.state.prepared, run_id, ready))
        if rules.may_release(run, ready):
            self.write(ReleaseRun(run_id))

    def note_suspended(self, run: Run, node: NodeName, held: HeldRun) -> None:
        """A run that gives way stands still on a node: it is off its GPUs, or never will be."""
        if held.let_go:
            if not run.members[node].let_go:
                self.write(LetGo(run.key.run_id, node))
        elif held.phase is Phase.SUSPENDED:
            self.write(StopRun(run.key.run_id, StopReason.PREEMPT))

    def reply(self, now: float, sync: Sync, held: tuple[HeldRun, ...]) -> None:
        """Answer from what is committed."""
        state, name = self.state, sync.node
        committed, reserved = state.committed, state.reserved
        desired = tuple(
            want
            for want in committed.desired(name)
            if not reserved.runs[want.key.run_id].members[name].is_over
        )
        digest = digest_of(desired)
        over = []
        for mine in held:
            run = committed.runs.get(mine.key.run_id)
            if run is not None and name in run.members and run.members[name].is_over:
                over.append(mine.key.run_id)
        acknowledged = tuple(
            record.key.run_id for record in sync.ended if is_committed(committed, name, record.key)
        )
        term = Term(committed.epoch, committed.nodes[name].revision)
        if term < sync.last:
            return  # the raise of the epoch or revision is not committed yet
        self.say(
            SendReply(
                Reply(
                    node=name,
                    incarnation=sync.incarnation,
                    sequence=sync.sequence,
                    term=term,
                    desired_digest=digest,
                    desired=None if digest == sync.desired_digest else desired,
                    acknowledged=acknowledged,
                    over=tuple(over),
                    lease=self.renew(now, sync, [d.key.run_id for d in desired]),
                    witnesses=state.witnesses,
                )
            )
        )

    def renew(self, now: float, sync: Sync, runs: Iterable[RunId]) -> Lease | None:
        """The node's next lease, while the database's word stands."""
        state, name = self.state, sync.node
        if not rules.may_renew(state.confirmed_at, now, state.timing):
            return None
        hearing = state.hearings[name]
        recent = list(hearing.renewals.items())[-REMEMBERED_REPLIES + 1 :]
        hearing = replace(hearing, renewals={**dict(recent), sync.sequence: now})
        self.change(
            hearings=having(state.hearings, name, hearing), renewed=having(state.renewed, name, now)
        )
        orphans = [run_id for place, run_id in state.committed.orphans if place == name]
        return Lease(duration_s=state.timing.lease_s, covers=frozenset([*runs, *orphans]))


def is_committed(ledger: Ledger, node: NodeName, key: RunKey) -> bool:
    run = ledger.runs.get(key.run_id)
    if run is not None and node in run.members:
        return run.members[node].exit is not None
    return (node, key.run_id) in ledger.history
