"""Held runs against the desired set: keepers are started, ordered and replaced by records."""

from __future__ import annotations

from dataclasses import replace

from dlsched.protocol import messages as m
from dlsched.protocol import rules
from dlsched.protocol.agent.interface import (
    KillKeeper,
    KillLeftovers,
    LogLine,
    OrderKeeper,
    RunRecord,
    Spawn,
    WriteEnd,
)
from dlsched.protocol.agent.state import Held, Turn
from dlsched.protocol.gpu_shares import UNUSABLE, part_of, without_room


class RunsTurn(Turn):
    """What an agent does with runs."""

    def reconcile(self, now: float) -> bool:
        """Act on each difference between desired and held; true when a run was refused."""
        news = False
        for want in self.state.desired:
            run_id = want.key.run_id
            held = self.state.held.get(run_id)
            if run_id in self.state.ended:
                continue
            if held is not None:
                if not held.lost:
                    self.steer(now, held, want)
            elif reason := self.veto(want):
                self.refuse(want, reason)
                news = True
            else:
                self.spawn(want)
        return news

    def steer(self, now: float, held: Held, want: m.DesiredRun) -> None:
        """Order the keeper of a held run to do what the leader wants."""
        run_id, has = want.key.run_id, held.desired
        if (want.limits, want.grace_s) != (has.limits, has.grace_s):
            self.emit(OrderKeeper(run_id, m.Adjust(limits=want.limits, grace_s=want.grace_s)))
        if has.follows and not want.follows:
            self.emit(OrderKeeper(run_id, m.TakeOver()))
        match want.want, held.phase:
            case m.Want.STOPPED, _:
                reason = want.stop or m.StopReason.OVER
                order: m.Stop | m.Kill = m.Stop(
                    reason=reason, step=want.stop_step, hand_over=want.hand_over
                )
                if held.let_go and self.blocks_resume(held) is not None:
                    order = m.Kill(reason)  # without its GPUs it cannot save
                elif want.follows:
                    order = m.Kill(reason)  # it has nothing to save
                self.order_end(now, run_id, order)
            case m.Want.RUNNING, m.Phase.STARTING | m.Phase.PREPARED:
                self.emit(OrderKeeper(run_id, m.Release()))
            case m.Want.RUNNING, m.Phase.SUSPENDED if self.blocks_resume(held) is None:
                self.emit(OrderKeeper(run_id, m.Thaw()))
            case m.Want.SUSPENDED, m.Phase.RUNNING:
                self.emit(OrderKeeper(run_id, m.Freeze(want.suspend_level, want.suspension)))
            case m.Want.SUSPENDED, m.Phase.SUSPENDED if held.suspension != want.suspension:
                self.emit(OrderKeeper(run_id, m.Freeze(want.suspend_level, want.suspension)))
            case _:
                pass

    def order_end(self, now: float, run_id: m.RunId, order: m.Stop | m.Kill) -> None:
        """Order a keeper to end its run, and note by when it must have begun to."""
        held = self.state.held[run_id]
        if held.kill_keeper_at is None and not held.quarantined:
            due = replace(held, kill_keeper_at=self._ends_by(now, held))
            self.change(held={**self.state.held, run_id: due})
        self.emit(OrderKeeper(run_id, order))

    def kill_unresponsive_keepers(self, now: float) -> None:
        """Kill each keeper that was told to end its run and has not done it in time."""
        for run_id, held in self.state.held.items():
            if held.kill_keeper_at is not None and now >= held.kill_keeper_at and not held.lost:
                self.emit(LogLine(f"the keeper of run {held.desired.key} does not end it: killed"))
                self.emit(KillKeeper(run_id))

    def wait_for_keepers_again(self, now: float) -> None:
        """Let all times in which keepers must obey begin anew: this process was paused."""
        held = {
            run_id: each
            if each.kill_keeper_at is None
            else replace(each, kill_keeper_at=max(each.kill_keeper_at, self._ends_by(now, each)))
            for run_id, each in self.state.held.items()
        }
        self.change(held=held)

    def _ends_by(self, now: float, held: Held) -> float:
        """When a run that is to end must be over, or its keeper must have begun to end it."""
        timing = self.state.timing
        if held.phase is not m.Phase.STOPPING:
            return now + timing.obeys_s
        longest_s = held.desired.grace_s + timing.unkillable_s + self.state.epilog_s
        return now + longest_s + timing.obeys_s

    def blocks_resume(self, held: Held) -> Held | None:
        """A run without which a run that has left its GPUs could use them again; None: no run."""
        return self.blocker(held.desired) if held.let_go else None

    def blocker(self, want: m.DesiredRun) -> Held | None:
        """A run on the GPUs of a wanted run that leaves it no room; None: there is room."""
        mine = set(want.gpus)
        on_them = [
            held
            for run_id, held in self.state.held.items()
            if run_id not in (want.key.run_id, want.follows)
            and held.desired.follows != want.key.run_id
            and mine & set(held.desired.gpus)
            and not self.is_off_its_gpus(held)
        ]
        parts = [(held.desired.gpus, _part_of(held)) for held in on_them]
        full = mine & without_room(parts, part_of(want.gpu_share))
        return next((held for held in on_them if full & set(held.desired.gpus)), None)

    def is_off_its_gpus(self, held: Held) -> bool:
        """Whether a held run has left its GPUs to other runs."""
        wanted = {want.key.run_id: want for want in self.state.desired}
        want = wanted.get(held.desired.key.run_id)
        return rules.is_off_its_gpus(want, held.suspension, let_go=held.let_go)

    def veto(self, want: m.DesiredRun) -> str:  # noqa: PLR0911  # one reason a return
        """Why this node refuses to start a run; empty when it starts it."""
        state = self.state
        if want.want is m.Want.STOPPED:
            return "stopped before it was started"
        if want.boot_id != state.boot_id:
            return "assigned to another boot of this node"
        if not set(want.gpus) <= set(state.inventory.gpus):
            return "no such GPU here"
        if set(want.gpus) & set(state.unhealthy):
            return "GPU is unhealthy"
        holder = self.blocker(want)
        if holder is not None:
            return f"GPU held by run {holder.desired.key}"
        for held in state.held.values():
            key = held.desired.key
            is_other = key.job == want.key.job and key.run_id != want.follows
            if is_other and not held.is_said_to_be_over:
                return f"run {held.desired.key} of the same job is here"
        return ""

    def refuse(self, want: m.DesiredRun, reason: str) -> None:
        """Record the end of a run that was never started."""
        record = m.ExitRecord(
            key=want.key,
            node=self.state.node,
            reason=m.ExitReason.NOT_STARTED,
            stop=want.stop,
            detail=reason,
            nodes=tuple(share.node for share in want.layout),
            request_id=want.request_id,
        )
        self.change(ended={**self.state.ended, want.key.run_id: record})

    def spawn(self, want: m.DesiredRun) -> None:
        """Start a keeper for a run."""
        run_id = want.key.run_id
        held = Held(desired=want, phase=m.Phase.STARTING)
        self.change(held={**self.state.held, run_id: held})
        covered = self.state.lease_until if run_id in self.state.covers else None
        self.emit(Spawn(want, covered))

    def keeper_reported(self, now: float, status: m.KeeperStatus) -> None:
        """Take over a keeper's status."""
        run_id = status.desired.key.run_id
        if status.exit is not None:
            if run_id in self.state.held or run_id in self.state.ended:
                self.note_quarantine(status)
                self.ended(now, status.exit)
            return
        held = self.state.held.get(run_id)
        if held is None or held.lost:
            return
        desired = replace(
            held.desired,
            limits=status.desired.limits,
            grace_s=status.desired.grace_s,
            follows=status.desired.follows,
        )
        news = replace(
            held,
            phase=status.phase,
            desired=desired,
            suspension=status.suspension,
            let_go=status.let_go,
        )
        if news.kill_keeper_at is not None and held.phase is not news.phase:
            news = replace(news, kill_keeper_at=self._ends_by(now, news))
        self.change(held={**self.state.held, run_id: news})
        if (status.phase, desired.want) == (m.Phase.PREPARED, m.Want.PREPARED):
            self.sync(now)  # the other nodes of its gang wait for it
        else:
            self.tell(now)

    def note_quarantine(self, status: m.KeeperStatus) -> None:
        """Note whether a stuck process of an ended run still holds its GPUs."""
        run_id = status.desired.key.run_id
        held = dict(self.state.held)
        if status.quarantined:
            held[run_id] = Held(desired=status.desired, phase=m.Phase.STOPPING, quarantined=True)
        else:
            held.pop(run_id, None)
        self.change(held=held)

    def ended(self, now: float, record: m.ExitRecord) -> None:
        """Report the end of a run, which is on disk."""
        run_id = record.key.run_id
        held = {
            key: value
            for key, value in self.state.held.items()
            if key != run_id or value.quarantined
        }
        self.change(held=held, ended={**self.state.ended, run_id: record})
        self.tell(now)

    def keeper_gone(self, run_id: m.RunId, why: str, fault: m.StartFault | None) -> None:
        """A keeper has died: kill the processes that it may have left."""
        held = self.state.held.get(run_id)
        if held is None or held.lost:
            return
        lost = replace(
            held,
            lost=True,
            phase=m.Phase.STOPPING,
            why=why,
            fault=fault,
            let_go=False,
            kill_keeper_at=None,
        )
        self.change(held={**self.state.held, run_id: lost})
        self.emit(KillLeftovers(run_id))

    def leftovers_gone(
        self, now: float, run_id: m.RunId, found: RunRecord | None, at: float | None
    ) -> None:
        """End a run that has neither keeper nor processes, by its record or by a new one.

        A run that was lost with its keeper has executed from its release until now, at most; one
        that was lost with its node until a time that is not known.
        """
        held = self.state.held.get(run_id)
        if held is None or not held.lost:
            return
        end = self.state.ended.get(run_id) or (found.exit if found is not None else None)
        if end is not None and held.quarantined and self.may_be_alive():
            doubtful = replace(held, in_doubt=end)
            self.change(held={**self.state.held, run_id: doubtful})
            self.tell(now)
            return
        if end is not None:  # a process that could not be killed may have exited at last
            self.change(held={k: v for k, v in self.state.held.items() if k != run_id})
            self.ended(now, end)
            return
        if found is None or not found.released:
            reason = m.ExitReason.NOT_STARTED
        elif found.boot_id != self.state.boot_id:
            reason = m.ExitReason.NODE_LOST
        else:
            reason = m.ExitReason.KEEPER_LOST
        desired, ran_s = held.desired, 0.0
        not_started = reason is m.ExitReason.NOT_STARTED
        why = held.why or ("its keeper was lost before it executed" if not_started else "")
        if reason is not m.ExitReason.KEEPER_LOST:
            at = None
        elif found is not None and found.released_at is not None and at is not None:
            ran_s = max(0.0, at - found.released_at)
        record = m.ExitRecord(
            key=desired.key,
            node=self.state.node,
            reason=reason,
            stop=desired.stop,
            ran_s=ran_s,
            detail=why,
            nodes=tuple(share.node for share in desired.layout),
            request_id=desired.request_id,
            at=at,
            start_fault=held.fault if not_started and desired.stop is None else None,
        )
        if found is None:
            self.ended(now, record)  # nothing was ever reserved: nothing to overwrite
        elif reason is m.ExitReason.KEEPER_LOST and self.may_be_alive():
            doubtful = replace(held, in_doubt=record)
            self.change(held={**self.state.held, run_id: doubtful})
            self.emit(LogLine(f"run {desired.key} lost its keeper; its processes may be alive"))
            self.tell(now)
        else:
            self.emit(WriteEnd(record))

    def may_be_alive(self) -> bool:
        """Whether processes may outlive their keeper unseen, because no launcher here ends them.

        Such a run stays held, with its GPUs, until an operator confirms that it is over.
        """
        return not self.state.inventory.can_fence


def _part_of(held: Held) -> float:
    """The part of each of its GPUs that a held run uses; a stuck process uses all of it."""
    return UNUSABLE if held.quarantined else part_of(held.desired.gpu_share)
