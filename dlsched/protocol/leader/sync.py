"""Syncs of nodes: the leader takes over their reports and replies with committed state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dlsched.core.errors import plural
from dlsched.protocol import messages as m
from dlsched.protocol import rules
from dlsched.protocol.leader.interface import SendReply, SyncArrived
from dlsched.protocol.leader.placing import may_repeat_at_once
from dlsched.protocol.leader.state import LastSync, OwedReply, Refusal, Turn, witnesses_of
from dlsched.protocol.ledger import (
    GPU_UNHEALTHY,
    IS_GONE,
    REBOOTED,
    Job,
    Ledger,
    Node,
    NodeStatus,
    Run,
    RunStatus,
    with_run,
    without_jobs,
)
from dlsched.protocol.ledger import writes as change
from dlsched.protocol.rules import Chain
from dlsched.protocol.table import having

REMEMBERED_REPLIES = 16  # a node
RECORDS_LOST = "no record of it is left"


class SyncTurn(Turn):
    """What a leader does with a sync."""

    def receive(self, event: SyncArrived) -> None:
        """Take over a sync's reports, then reply."""
        now, sync = event.now, event.sync
        name = sync.node
        self.notice_step_back(sync)
        if not self.is_registered(event):
            return
        last = self.state.last_syncs.get(name)
        if last is not None and last.incarnation == sync.incarnation:
            if sync.sequence <= last.sequence:
                return  # a repeated message, or one that a newer one has overtaken
            self.reply_to_owed(now, [name])
        else:
            last = None
        held = sync.held
        if held is None and last is not None and last.held_digest == sync.held_digest:
            held = last.held
        self.note_sync(now, sync, last, held)
        self.record_ends(event)
        self.close_gpus(sync, held)
        if held is None:
            self.emit(SendReply(replace(self.bare_reply(sync), want_held=True)))
            return
        self.compare_held(sync, held)
        self.offer_witnesses(now, sync)
        self.reply_once_committed(now, sync)

    def notice_step_back(self, sync: m.Sync) -> None:
        """Notice that the database was replaced by an older copy, because a node has seen more.

        A revision above the one that this term loaded, or a term above this one, was lost with the
        newer database. The leader goes on above everything that a node has seen.
        """
        state, name, last = self.state, sync.node, sync.last
        row = state.reserved.nodes.get(name)
        if last.epoch < state.epoch:
            known = state.loaded.get(name, m.Revision(0))
        else:
            known = row.revision if row is not None else m.Revision(0)
        if last.epoch <= state.reserved.epoch and last.revision <= known:
            return
        if row is None and last.epoch <= state.reserved.epoch:
            self.change(stepped_back=True)
            return  # the older database does not know the node, which will register
        forgotten = max(last, state.lost_terms.get(name, m.Term()))
        self.change(stepped_back=True, lost_terms=having(state.lost_terms, name, forgotten))
        if last.epoch >= state.reserved.epoch:
            self.write(change.RaiseEpoch(m.Epoch(last.epoch + 1)))
        if row is not None and last.revision > row.revision:
            self.write(change.RaiseRevision(name, last.revision))

    def is_registered(self, event: SyncArrived) -> bool:
        """Whether a sync is from a node's registered agent; registers a node that asks for it."""
        sync = event.sync
        name = sync.node
        node = self.state.reserved.nodes.get(name)
        known = self.state.committed.nodes.get(name)
        if all(row is not None and _is_agent_of(row, sync) for row in (node, known)):
            return True
        if node is not None and not self.may_register(event.now, node, sync):
            return False
        if sync.inventory is None:
            self.emit(SendReply(replace(self.bare_reply(sync), register=True)))
        elif node is None or node == known:
            self.register(event)
        return False

    def may_register(self, now: float, node: Node, sync: m.Sync) -> bool:
        """Whether an agent may become that of a known node; tells it otherwise.

        An agent without the records of the registered one is either the same node, after its disk
        was lost or replaced by an older copy, or another one under the same name. One with these
        records and another boot is the same node after a reboot, or a machine that was cloned. Both
        wait until the registered agent has been silent for a while. One without the records also
        counts on from that one's incarnation, which no message of an agent that has died can do.
        """
        last = self.state.last_syncs.get(node.name)
        has_records = rules.has_the_records(node, sync)
        if has_records:
            if sync.incarnation < node.incarnation:
                return False  # a message of an earlier process
            if sync.boot_id == node.boot_id or node.status is not NodeStatus.UP:
                return True
        elif last is not None and _start(sync) in last.starts:
            return False  # likewise
        heard = max(self.state.window_from, last.at if last is not None else self.state.window_from)
        timing = self.state.timing
        why = ""
        if now - heard <= timing.witness_beats * timing.beat_s:
            what = "it is of another boot than" if has_records else "it lacks the records of"
            why = f"{what} the registered agent, which may be alive"
        elif self.is_elsewhere(node, sync, has_records=has_records):
            why = (
                "another machine or a copy: runs of the registered one may be alive there; "
                f"if they are not: dlsched admin node-down {node.name} --confirmed"
            )
        bare = replace(self.bare_reply(sync), register=True)
        if why:
            refusal = Refusal(now, f"an agent is refused: {why}")
            self.change(refusals=having(self.state.refusals, node.name, refusal))
            self.alarm(f"{node.name}: {refusal.why}")
            self.emit(SendReply(replace(bare, refused=why)))
            return False
        if not has_records and sync.incarnation <= node.incarnation:
            self.emit(SendReply(replace(bare, count_on_from=node.incarnation)))
            return False
        return True

    def is_elsewhere(self, node: Node, sync: m.Sync, *, has_records: bool) -> bool:
        """Whether an agent may be on another machine than the runs of its node.

        One that has the node's records is believed where nothing names the hardware.
        """
        if node.boot_id == sync.boot_id or sync.inventory is None:
            return False
        if has_records and not rules.names_hardware(node, sync.inventory):
            return False
        ledger = self.state.reserved
        holds = ledger.held_by.get(node.name) or any(at == node.name for at, _ in ledger.orphans)
        return bool(holds) and not rules.is_same_machine(node, sync.inventory)

    def bare_reply(self, sync: m.Sync) -> m.Reply:
        """A reply without orders, for requests to the agent."""
        node = self.state.committed.nodes.get(sync.node)
        return m.Reply(
            node=sync.node,
            incarnation=sync.incarnation,
            sequence=sync.sequence,
            term=m.Term(self.state.epoch, node.revision) if node else m.Term(),
            desired_digest=m.Digest(""),
            desired=None,
        )

    def register(self, event: SyncArrived) -> None:
        """Register a node and its GPUs; a reboot ends the runs of the previous boot.

        Runs of this boot are over, too, when the node must have had a record of them and has none:
        they are neither alive there nor is it known how they ended.
        """
        sync = event.sync
        assert sync.inventory is not None
        node, last = self.state.reserved.nodes.get(sync.node), self.state.last_syncs.get(sync.node)
        mine: list[Run] = []
        if node is not None:
            mine = self.state.reserved.runs_on(sync.node)
            mine += self.state.reserved.stuck_runs_on(sync.node)
        rebooted = [run for run in mine if run.members[sync.node].boot_id != sync.boot_id]
        is_back = node is not None and not rules.has_the_records(node, sync)
        present = {held.key.run_id for held in sync.held or ()}
        present |= {record.key.run_id for record in sync.ended}
        begun = {
            held.key.run_id
            for held in (last.held if last is not None else ())
            if held.phase is not m.Phase.STARTING
        }
        lost = [
            run
            for run in mine
            if run not in rebooted
            and not run.members[sync.node].is_stuck
            and run.key.run_id not in present
            and (is_back or run.key.run_id in begun)
        ]
        self.write(
            change.RegisterNode(
                node=sync.node,
                boot_id=sync.boot_id,
                incarnation=sync.incarnation,
                inventory=sync.inventory,
                start=_start(sync),
            )
        )
        if not self.state.reserved.nodes[sync.node].witnesses:
            self.write(change.SetWitnesses(sync.node, (witnesses_of(self.state.reserved.nodes),)))
        self.record_ends(event)  # its exit records first
        self.close_gpus(sync, sync.held)
        for runs, why in ((rebooted, REBOOTED), (lost, RECORDS_LOST)):
            for run in runs:
                member = self.state.reserved.runs[run.key.run_id].members[sync.node]
                if member.is_stuck or not member.is_over:
                    self.write(change.MemberOver(run.key.run_id, sync.node, presumed=why))
        refusals = {k: v for k, v in self.state.refusals.items() if k != sync.node}
        self.change(refusals=refusals)
        self.end_alarms(f"{sync.node} ", f"{sync.node}:", f"quorum lost: {sync.node} ")
        if is_back or lost:
            kept = len(mine) - len(rebooted) - len(lost)
            self.tell(
                f"{sync.node}: its agent has lost its records: {plural(kept, 'run')} kept, "
                f"{len(lost) + len(rebooted)} given up"
            )

    def note_sync(
        self, now: float, sync: m.Sync, last: LastSync | None, held: tuple[m.HeldRun, ...] | None
    ) -> None:
        """Remember the sync, and the renewals that it proves.

        Args:
            now: on the leader's clock, in seconds.
            sync: the sync.
            last: the node's sync before; None: this is the first one of its agent process.
            held: the held runs; None: they are unknown.
        """
        timing = self.state.timing
        old = last or LastSync(incarnation=sync.incarnation, sequence=-1, at=now)
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
            starts=sync.starts,
            held=held if held is not None else (),
            held_digest=sync.held_digest if held is not None else m.Digest(""),
            chain=chain,
        )
        over = [f"{sync.node} is late", f"quorum lost: {sync.node} is silent"]
        refusal = self.state.refusals.get(sync.node)
        if refusal is not None and now - refusal.at > 2 * timing.witness_beats * timing.beat_s:
            over.append(f"{sync.node}: an agent is refused")  # it has not asked again
        self.change(last_syncs=having(self.state.last_syncs, sync.node, new))
        self.end_alarms(*over)

    def recall(self, rows: Iterable[tuple[Job, Run]]) -> None:
        """Load rows that have left memory again.

        Only rows of runs that are over leave memory; an unknown run that is not over belongs to a
        later term.
        """
        for job, run in rows:
            if not run.is_over:
                continue
            self.change(
                reserved=with_run(self.state.reserved, job, run),
                committed=with_run(self.state.committed, job, run),
            )

    def forget(self, jobs: Iterable[m.JobId]) -> None:
        """Drop ended jobs from memory, once every node has dropped their runs."""
        state = self.state
        flying = state.in_flight.writes if state.in_flight is not None else ()
        moving = {
            change.job_changed(write, state.reserved)
            for write in (*flying, *state.queue)
            if not isinstance(write, change.Attach | change.Submit)
        }
        reported = {held.key.run_id for last in state.last_syncs.values() for held in last.held}
        gone = []
        for job in jobs:
            rows = [ledger.jobs.get(job) for ledger in (state.committed, state.reserved)]
            runs = state.reserved.runs_of_job(job)
            if any(row is None or not row.status.is_terminal for row in rows):
                continue  # one that is to start again has ended in the committed ledger alone
            if job in moving:
                continue  # it was to start again, and was cancelled: that is not durable yet
            if not any(r.stuck_on or not r.is_over or r.key.run_id in reported for r in runs):
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
                taken=state.taken - runs_gone,
            )

    def record_ends(self, event: SyncArrived) -> None:
        """Record the ends of runs of any epoch: a report is never refused."""
        sync = event.sync
        for record in sync.ended:
            reserved = self.state.reserved
            run = reserved.runs.get(record.key.run_id)
            if run is not None and sync.node in run.members:
                member = run.members[sync.node]
                if member.exit is None:
                    sick = sorted(set(member.gpus) & set(sync.health.unhealthy))
                    why = f"{GPU_UNHEALTHY}{', '.join(sick)}" if sick else ""
                    if record.leaves_a_process and member.boot_id != sync.boot_id:
                        why = REBOOTED  # and the process is gone
                    over = change.MemberOver(record.key.run_id, sync.node, record, why)
                    self.end_member(event, over)
            elif (sync.node, record.key.run_id) not in reserved.history:
                self.write(change.OrphanOver(sync.node, record.key.run_id, record))

    def end_member(self, event: SyncArrived, over: change.MemberOver) -> None:
        """Record the end of a member; a run that is over with it may be repeated in place."""
        again = event.again.get(self.state.reserved.runs[over.run_id].key.job)
        if again is None or not may_repeat_at_once(self.state, event.now, over, event.sync):
            self.write(over)
            return
        self.write(replace(over, again=again))
        if self.state.reserved.runs[again].status is RunStatus.PREPARING:
            self.change(preparing_from=having(self.state.preparing_from, again, event.now))

    def compare_held(self, sync: m.Sync, held: tuple[m.HeldRun, ...]) -> None:
        """Compare the runs that a node holds with those that it should hold."""
        name = sync.node
        self.note_doubts(name, held)
        present = {h.key.run_id for h in held} | {r.key.run_id for r in sync.ended}
        for mine in held:
            run = self.state.reserved.runs.get(mine.key.run_id)
            if run is None or name not in run.members:
                if (name, mine.key.run_id) not in self.state.reserved.orphans:
                    self.write(change.Adopt(mine, name))
            elif mine.phase is m.Phase.PREPARED and run.status is RunStatus.PREPARING:
                self.note_prepared(run, name)
            elif run.is_giving_way and mine.suspension == run.suspension:
                self.note_suspended(run, name, mine)
        seen = max(sync.applied, self.state.lost_terms.get(name, m.Term()))
        for run in self.state.reserved.runs_on(name):
            if run.key.run_id not in present and seen >= run.members[name].since:
                self.write(change.MemberOver(run.key.run_id, name, presumed="not there"))
        for run in self.state.reserved.stuck_runs_on(name):
            if run.key.run_id not in present:
                self.write(change.MemberOver(run.key.run_id, name, presumed=IS_GONE))
        for (place, run_id), orphan in list(self.state.reserved.orphans.items()):
            if place == name and run_id not in present and sync.applied >= orphan.since:
                self.write(change.OrphanOver(name, run_id, None))

    def close_gpus(self, sync: m.Sync, held: tuple[m.HeldRun, ...] | None) -> None:
        """Close the GPUs of processes that cannot be killed, and of runs that were given up.

        A run that was given up while its node was silent is frozen there until it is killed.
        """
        node, runs = self.state.reserved.nodes[sync.node], self.state.reserved.runs
        closed = set(sync.health.quarantined)
        if held is None:
            closed.update(node.quarantined)  # what else it holds is not known yet
        for each in held or ():
            run = runs.get(each.key.run_id)
            member = None if run is None else run.members.get(sync.node)
            if member is not None and member.is_over:
                closed.update(each.gpus)
        if closed != set(node.quarantined):
            self.write(change.Quarantine(sync.node, tuple(sorted(closed))))

    def note_doubts(self, name: m.NodeName, held: tuple[m.HeldRun, ...]) -> None:
        """Note which runs are in doubt on a node, and stop the rest of their gangs."""
        mine = {(name, each.key.run_id) for each in held if each.in_doubt}
        others = {each for each in self.state.in_doubt if each[0] != name}
        if mine | others != self.state.in_doubt:
            self.change(in_doubt=frozenset(mine | others))
        for _, run_id in sorted(mine):
            run = self.state.reserved.runs.get(run_id)
            if run is not None and not run.is_over and run.stop is None and len(run.members) > 1:
                self.write(change.StopRun(run_id, m.StopReason.PEER))

    def note_prepared(self, run: Run, node: m.NodeName) -> None:
        """A member has prepared; when it is the last one, release the gang."""
        run_id = run.key.run_id
        ready = self.state.prepared.get(run_id, frozenset()) | {node}
        self.change(prepared=having(self.state.prepared, run_id, ready))
        if rules.may_release(run, ready):
            self.write(change.ReleaseRun(run_id))

    def note_suspended(self, run: Run, node: m.NodeName, held: m.HeldRun) -> None:
        """Note that a suspended run has left its GPUs on a node; preempt one that cannot."""
        if held.let_go:
            if not run.members[node].let_go:
                self.write(change.LetGo(run.key.run_id, node))
        elif held.phase is m.Phase.SUSPENDED:
            self.write(change.StopRun(run.key.run_id, m.StopReason.PREEMPT))

    def reply_once_committed(self, now: float, sync: m.Sync) -> None:
        """Reply now, or as soon as what this sync and others have changed for its node is durable.

        The reply then acknowledges the ends that the sync has told, and no nudge needs to follow.
        """
        state, name = self.state, sync.node
        pending = state.queue or state.in_flight
        if not pending or state.reserved.nodes[name] == state.committed.nodes[name]:
            self.reply(now, sync)
            return
        number = state.number + 1 if state.queue else state.number
        self.change(owed=having(state.owed, name, OwedReply(sync, number)))

    def reply_to_owed(self, now: float, nodes: Iterable[m.NodeName]) -> None:
        """Reply to the syncs of some nodes that wait for a transaction."""
        for name in nodes:
            owed = self.state.owed.get(name)
            if owed is not None:
                self.change(owed={k: v for k, v in self.state.owed.items() if k != name})
                self.reply(now, owed.sync)

    def reply(self, now: float, sync: m.Sync) -> None:
        """Reply from the committed ledger."""
        state, name = self.state, sync.node
        held = state.last_syncs[name].held
        committed, desired = state.committed, state.desired(name)
        over = [mine.key.run_id for mine in held if self.is_to_be_killed(name, mine.key.run_id)]
        acknowledged = tuple(
            record.key.run_id for record in sync.ended if is_committed(committed, name, record.key)
        )
        term = m.Term(committed.epoch, committed.nodes[name].revision)
        if term < sync.last:
            return  # the raise of the epoch or revision is not committed yet
        if state.told_to_stop.get(name) != desired.stopped:
            self.change(told_to_stop=having(state.told_to_stop, name, desired.stopped))
        self.emit(
            SendReply(
                m.Reply(
                    node=name,
                    incarnation=sync.incarnation,
                    sequence=sync.sequence,
                    term=term,
                    desired_digest=desired.digest,
                    desired=None if desired.digest == sync.desired_digest else desired.runs,
                    acknowledged=acknowledged,
                    over=tuple(over),
                    lease=self.renew(now, sync, [d.key.run_id for d in desired.runs]),
                    witnesses=_newest(committed.nodes[name].witnesses),
                )
            )
        )

    def offer_witnesses(self, now: float, sync: m.Sync) -> None:
        """Note durably which witnesses a node may have, before a reply tells it of others.

        Nodes that join change the set. A node that is cut off keeps the one that it has, and the
        two need not share a witness; so it is lost only by every set that it may have.
        """
        name, wanted = sync.node, self.state.witnesses
        known, last = self.state.reserved.nodes[name].witnesses, self.state.last_syncs[name]
        offered = _newest(self.state.committed.nodes[name].witnesses)
        if last.offered != offered:
            last = replace(last, offered=offered, offered_from=now)
            self.change(last_syncs=having(self.state.last_syncs, name, last))
        sets = known
        if _newest(known) != wanted:
            sets = (*(each for each in known if each != wanted), wanted)
        elif wanted == offered and rules.has_no_earlier_witnesses(
            sync, offered, now - last.offered_from, self.state.epoch, self.state.timing
        ):
            sets = (wanted,)
        if sync.witnesses and sync.witnesses not in sets:  # told by a later database
            sets = (sync.witnesses, *sets)
        if sets != known:
            self.write(change.SetWitnesses(name, sets))

    def is_to_be_killed(self, node: m.NodeName, run_id: m.RunId) -> bool:
        """Whether a run that a node holds is over there, or an operator ends it.

        An operator ends orphans, and runs of which the node cannot tell whether they are over.
        """
        run, where = self.state.committed.runs.get(run_id), (node, run_id)
        member = None if run is None else run.members.get(node)
        if member is not None and member.is_over and not member.is_stuck:
            return True
        can_end = where in self.state.committed.orphans or where in self.state.in_doubt
        return can_end and where in self.state.ending

    def renew(self, now: float, sync: m.Sync, runs: Iterable[m.RunId]) -> m.Lease | None:
        """The node's next lease; None when the database has not confirmed the term recently."""
        state, name = self.state, sync.node
        if not rules.may_renew(state.confirmed_at, now, state.timing):
            return None
        last = state.last_syncs[name]
        recent = list(last.renewals.items())[-REMEMBERED_REPLIES + 1 :]
        last = replace(last, renewals={**dict(recent), sync.sequence: now})
        self.change(
            last_syncs=having(state.last_syncs, name, last),
            renewed=having(state.renewed, name, now),
        )
        orphans = [run_id for place, run_id in state.committed.orphans if place == name]
        return m.Lease(duration_s=state.timing.lease_s, covers=frozenset([*runs, *orphans]))


def _is_agent_of(node: Node, sync: m.Sync) -> bool:
    """Whether a sync is from the agent that registered a node, which is up."""
    return node.status is NodeStatus.UP and (node.boot_id, node.incarnation, node.start) == (
        sync.boot_id, sync.incarnation, _start(sync)
    )  # fmt: skip


def _start(sync: m.Sync) -> str:
    """The name of the start of the agent that a sync is from; empty: it gives none."""
    return sync.starts[-1] if sync.starts else ""


def _newest(sets: tuple[tuple[m.NodeName, ...], ...]) -> tuple[m.NodeName, ...]:
    return sets[-1] if sets else ()


def is_committed(ledger: Ledger, node: m.NodeName, key: m.RunKey) -> bool:
    """Return whether the ledger holds the run's member on the node as committed."""
    run = ledger.runs.get(key.run_id)
    if run is not None and node in run.members:
        return run.members[node].exit is not None
    return (node, key.run_id) in ledger.history
