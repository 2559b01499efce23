"""Runs as they are against runs as they are to be: keepers are made, told and survived."""

from __future__ import annotations

from dataclasses import replace

from dlsched.protocol import rules
from dlsched.protocol.agent.commands import (
    KillLeftovers,
    Spawn,
    Tell,
    WriteEnd,
)
from dlsched.protocol.agent.records import RunRecord
from dlsched.protocol.agent.state import Held
from dlsched.protocol.agent.turn import Turn
from dlsched.protocol.gpu_shares import WHOLE, part_of, without_room
from dlsched.protocol.messages import (
    Adjust,
    DesiredRun,
    ExitReason,
    ExitRecord,
    Freeze,
    KeeperStatus,
    Kill,
    Phase,
    Release,
    RunId,
    Stop,
    StopReason,
    Thaw,
    Want,
)


class RunsTurn(Turn):
    """What becomes of runs."""

    def reconcile(self) -> bool:
        """Order what the difference between desired and held means; whether it is news."""
        news = False
        for want in self.state.desired:
            run_id = want.key.run_id
            held = self.state.held.get(run_id)
            if run_id in self.state.ended:
                continue
            if held is not None:
                if not held.lost:
                    self.steer(held, want)
            elif reason := self.veto(want):
                self.refuse(want, reason)
                news = True
            else:
                self.spawn(want)
        return news

    def steer(self, held: Held, want: DesiredRun) -> None:
        """One run as it is against what is wanted of it."""
        run_id, has = want.key.run_id, held.desired
        if (want.limits, want.grace_s) != (has.limits, has.grace_s):
            self.say(Tell(run_id, Adjust(limits=want.limits, grace_s=want.grace_s)))
        match want.want, held.phase:
            case Want.STOPPED, _:
                reason = want.stop or StopReason.OVER
                if held.let_go and self.lent_to(held) is not None:
                    self.say(Tell(run_id, Kill(reason)))  # to save it would need its GPUs
                else:
                    self.say(Tell(run_id, Stop(reason=reason, step=want.stop_step)))
            case Want.RUNNING, Phase.STARTING | Phase.PREPARED:
                self.say(Tell(run_id, Release()))
            case Want.RUNNING, Phase.SUSPENDED if self.lent_to(held) is None:
                self.say(Tell(run_id, Thaw()))
            case Want.SUSPENDED, Phase.RUNNING:
                self.say(Tell(run_id, Freeze(want.suspend_level, want.suspension)))
            case Want.SUSPENDED, Phase.SUSPENDED if held.suspension != want.suspension:
                self.say(Tell(run_id, Freeze(want.suspend_level, want.suspension)))
            case _:
                pass

    def lent_to(self, held: Held) -> Held | None:
        """Who is on the GPUs of a run that has let them go, and leaves it no room there."""
        return self.in_the_way(held.desired) if held.let_go else None

    def in_the_way(self, want: DesiredRun) -> Held | None:
        """Who is on the GPUs of a run and leaves it no room there."""
        mine = set(want.gpus)
        on_them = [
            held
            for run_id, held in self.state.held.items()
            if run_id != want.key.run_id
            and mine & set(held.desired.gpus)
            and not self.is_off_its_gpus(held)
        ]
        parts = [(held.desired.gpus, _part_of(held)) for held in on_them]
        full = mine & without_room(parts, part_of(want.gpu_share))
        return next((held for held in on_them if full & set(held.desired.gpus)), None)

    def is_off_its_gpus(self, held: Held) -> bool:
        """Whether a run is suspended for others to have its GPUs, and has left them."""
        wanted = {want.key.run_id: want for want in self.state.desired}
        want = wanted.get(held.desired.key.run_id)
        return rules.is_off_its_gpus(want, held.suspension, let_go=held.let_go)

    def veto(self, want: DesiredRun) -> str:  # noqa: PLR0911  # one reason a return
        """Why this node will not start a run; empty when it will."""
        state = self.state
        if want.want is Want.STOPPED:
            return "stopped before it was started"
        if want.boot_id != state.boot_id:
            return "assigned to another boot of this node"
        if not set(want.gpus) <= set(state.inventory.gpus):
            return "no such GPU here"
        if set(want.gpus) & set(state.unhealthy):
            return "GPU is unhealthy"
        holder = self.in_the_way(want)
        if holder is not None:
            return f"GPU held by run {holder.desired.key}"
        for held in state.held.values():
            if held.desired.key.job == want.key.job:
                return f"run {held.desired.key} of the same job is here"
        return ""

    def refuse(self, want: DesiredRun, reason: str) -> None:
        """End a run that was never started."""
        record = ExitRecord(
            key=want.key,
            node=self.state.node,
            reason=ExitReason.NOT_STARTED,
            stop=want.stop,
            detail=reason,
            nodes=tuple(share.node for share in want.layout),
            request_id=want.request_id,
        )
        self.change(ended={**self.state.ended, want.key.run_id: record})

    def spawn(self, want: DesiredRun) -> None:
        """Make a keeper for a run."""
        run_id = want.key.run_id
        held = Held(desired=want, phase=Phase.STARTING)
        self.change(held={**self.state.held, run_id: held})
        covered = self.state.lease_until if run_id in self.state.covers else None
        self.say(Spawn(want, covered))

    def keeper_spoke(self, now: float, status: KeeperStatus) -> None:
        """Take in a keeper's status."""
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
            held.desired, limits=status.desired.limits, grace_s=status.desired.grace_s
        )
        news = replace(
            held,
            phase=status.phase,
            desired=desired,
            suspension=status.suspension,
            let_go=status.let_go,
        )
        self.change(held={**self.state.held, run_id: news})
        self.sync(now)

    def note_quarantine(self, status: KeeperStatus) -> None:
        """GPUs that stuck processes hold."""
        run_id = status.desired.key.run_id
        held = dict(self.state.held)
        if status.quarantined:
            held[run_id] = Held(desired=status.desired, phase=Phase.STOPPING, quarantined=True)
        else:
            held.pop(run_id, None)
        self.change(held=held)

    def ended(self, now: float, record: ExitRecord) -> None:
        """A run's end is on disk: tell it."""
        run_id = record.key.run_id
        held = {
            key: value
            for key, value in self.state.held.items()
            if key != run_id or value.quarantined
        }
        self.change(held=held, ended={**self.state.ended, run_id: record})
        self.sync(now)

    def keeper_gone(self, run_id: RunId, why: str) -> None:
        """A keeper is no more: look for what it may have left."""
        held = self.state.held.get(run_id)
        if held is None or held.lost:
            return
        lost = replace(held, lost=True, phase=Phase.STOPPING, why=why, let_go=False)
        self.change(held={**self.state.held, run_id: lost})
        self.say(KillLeftovers(run_id))

    def leftovers_gone(self, now: float, run_id: RunId, found: RunRecord | None) -> None:
        """A run without keeper and without processes: its record decides, else one is written."""
        held = self.state.held.get(run_id)
        if held is None or not held.lost:
            return
        if run_id in self.state.ended:  # a stuck process is gone at last
            self.change(held={k: v for k, v in self.state.held.items() if k != run_id})
            self.sync(now)
            return
        if found is not None and found.exit is not None:
            self.ended(now, found.exit)
            return
        if found is None or not found.released:
            reason = ExitReason.NOT_STARTED
        elif found.boot_id != self.state.boot_id:
            reason = ExitReason.NODE_LOST
        else:
            reason = ExitReason.KEEPER_LOST
        desired = held.desired
        record = ExitRecord(
            key=desired.key,
            node=self.state.node,
            reason=reason,
            stop=desired.stop,
            detail=held.why,
            nodes=tuple(share.node for share in desired.layout),
            request_id=desired.request_id,
        )
        if found is None:
            self.ended(now, record)  # nothing was ever reserved: nothing to overwrite
        else:
            self.say(WriteEnd(record))


def _part_of(held: Held) -> float:
    """What a run that is here takes of each of its GPUs; what is stuck takes all."""
    return WHOLE if held.quarantined else part_of(held.desired.gpu_share)
