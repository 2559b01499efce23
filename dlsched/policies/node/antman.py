"""AntMan's local coordinator (Xiao et al., OSDI 2020): opportunistic jobs yield to a GPU's owner.

The *guaranteed* job of a GPU is watched by the time of its mini-batches, against the time that one
takes while all others stand still. When it is slowed, the *jobs* job with the largest
share loses half of it; while it is not, the oldest gains a little. When memory gets short, the
newest opportunistic job gives it back first. The published program was never released: the loop
follows the paper's description, its constants are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median

from dlsched.core.node_policy import (
    FULL,
    Came,
    Event,
    Left,
    Limit,
    MemoryRead,
    NodePolicy,
    Outcome,
    Resident,
    Stepped,
    Woke,
)
from dlsched.core.options import option

_ROUNDING = 1e-9  # 105 ms against 100 ms is a slowdown of 5 %, not of more


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorOptions:
    """When opportunistic jobs get less or more."""

    tick_s: float = option(1.0, "seconds between two looks", low=0.01)
    slow: float = option(0.05, "slowdown of the owner above which a share is halved", low=0.0)
    calm: float = option(0.02, "slowdown up to which a look counts as calm", low=0.0)
    calm_looks: int = option(3, "calm looks in a row before a share grows", low=1)
    grow: int = option(5, "percent by which a share grows", low=1, high=100)
    most: int = option(
        95, "percent that an opportunistic job gets beside an owner", low=1, high=100
    )
    idle_s: float = option(10.0, "seconds without a step after which the owner is idle", low=0.0)
    alone_steps: int = option(20, "steps alone by which the owner's own time is known", low=1)
    settle_s: float = option(
        2.0, "seconds after the others stood still before steps count as alone", low=0.0
    )
    new_pattern: float = option(
        0.05, "change of the owner's own time, alone, above which the new one counts", low=0.0
    )
    headroom: float = option(0.1, "memory kept free above the owner's most, a part of it", low=0.0)
    spare: float = option(0.05, "least part of the GPU's memory that is free", low=0.0, high=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The guaranteed job of a GPU.

    Attributes:
        job: its number.
        since: when it came, seconds.
        own_s: seconds of a mini-batch while all others stand still; None: not known yet.
        alone: durations of steps alone since the last change, newest last, and how many steps.
        last_step_at: seconds; None: none yet.
        fresh_s: duration that was reported since the last look; None: none.
        calm_looks: in a row.
        most_bytes: GPU memory at most; None: not known.
        spilled_bytes: in the host's memory for want of room.
    """

    job: int
    since: float
    own_s: float | None = None
    alone: tuple[float, ...] = ()
    alone_counts: tuple[int, ...] = ()
    last_step_at: float | None = None
    fresh_s: float | None = None
    calm_looks: int = 0
    most_bytes: int | None = None
    spilled_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpportunisticJob:
    """An opportunistic job on a GPU.

    Attributes:
        job: its number.
        share: percent at present.
        steady: the only share above 0 that it can have; 0: any.
        stable_bytes: GPU memory that it needs to go on.
        memory_bytes: its limit; None: none.
        leaves: it gives its memory back.
    """

    job: int
    share: int
    steady: int = 0
    stable_bytes: int = 0
    memory_bytes: int | None = None
    leaves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """One GPU: its owner, its opportunistic jobs by arrival, and its memory.

    Attributes:
        owner: the guaranteed job; None: none.
        opportunistic: the opportunistic ones, the oldest first.
        still_since: since when these all stand still, or there are none; inf: they do not.
        total_bytes: of memory; 0: not known.
        free_bytes: of memory, at the last reading.
        is_read: whether the memory was read since the last look.
        look_at: when to look next, seconds; inf: there is nothing to look at.
    """

    owner: Owner | None = None
    opportunistic: tuple[OpportunisticJob, ...] = ()
    still_since: float = -math.inf
    total_bytes: int = 0
    free_bytes: int = 0
    is_read: bool = False
    look_at: float = math.inf


class Coordinator(NodePolicy[CoordinatorOptions, GpuState]):
    """The control loop of one GPU."""

    name = "antman-node"
    summary = "opportunistic jobs get what does not slow the owner of their GPU (AntMan, OSDI 2020)"
    State = GpuState

    @property
    def settles_after(self) -> int:
        """Looks until the owner counts as idle or its own time is known, and a share has grown."""
        options = self.options
        return int(options.idle_s / options.tick_s) + options.alone_steps + options.calm_looks + 1

    def begin(self) -> GpuState:
        """No job, all memory unknown."""
        return GpuState()

    def step(self, state: GpuState, event: Event) -> Outcome[GpuState]:
        """Take an event."""
        match event:
            case Came(now=now, resident=resident):
                state = self._came(state, resident, now)
            case Left(now=now, job=job):
                state = self._left(state, job)
            case Stepped(now=now):
                state = self._stepped(state, event)
            case MemoryRead(now=now, total_bytes=total, free_bytes=free):
                state = replace(state, total_bytes=total, free_bytes=free, is_read=True)
            case Woke(now=now):
                state = self._look(state, now)
        state = self._scheduled(_noted_still(state, now), now, anew=isinstance(event, Woke))
        limits = {
            each.job: Limit(share=each.share, memory_bytes=each.memory_bytes, leaves=each.leaves)
            for each in state.opportunistic
        }
        if state.owner is not None:
            limits[state.owner.job] = Limit()
        return Outcome(state, limits, state.look_at)

    def _scheduled(self, state: GpuState, now: float, *, anew: bool) -> GpuState:
        """With the time of the next look: there is something to look at while jobs share."""
        if state.owner is None or not state.opportunistic:
            return replace(state, look_at=math.inf)
        if anew or state.look_at == math.inf:
            return replace(state, look_at=now + self.options.tick_s)
        return state

    # -- jobs come and go --------------------------------------------------------------------------

    def _came(self, state: GpuState, resident: Resident, now: float) -> GpuState:
        job = resident.job
        known = {each.job for each in state.opportunistic} | {
            state.owner.job if state.owner else -1
        }
        if job in known:
            return state  # an agent that began anew says again what is there
        if not resident.guaranteed:
            steady = 0 if resident.can_throttle else max(1, resident.share)
            added = OpportunisticJob(job=job, share=0, steady=steady)
            state = replace(state, opportunistic=(*state.opportunistic, added))
            return state if state.owner is not None else _divided_equally(state)
        # a GPU has one owner: where a node is told of a second one, the newest counts
        still = tuple(replace(each, share=0) for each in state.opportunistic)
        return self._with_memory_limits(
            replace(state, owner=Owner(job=job, since=now), opportunistic=still)
        )

    def _left(self, state: GpuState, job: int) -> GpuState:
        if state.owner is not None and state.owner.job == job:
            return _divided_equally(replace(state, owner=None))
        jobs = tuple(each for each in state.opportunistic if each.job != job)
        state = replace(state, opportunistic=jobs)
        return state if state.owner is not None else _divided_equally(state)

    # -- what was measured -------------------------------------------------------------------------

    def _stepped(self, state: GpuState, event: Stepped) -> GpuState:
        owner = state.owner
        if not (math.isfinite(event.duration_s) and event.duration_s > 0 and event.steps > 0):
            return state
        if owner is None or event.job != owner.job:
            stable = event.memory_bytes or 0
            jobs = tuple(
                replace(each, stable_bytes=stable) if each.job == event.job and stable else each
                for each in state.opportunistic
            )
            return replace(state, opportunistic=jobs)
        owner = replace(
            owner,
            last_step_at=event.now,
            fresh_s=event.duration_s,
            most_bytes=max(owner.most_bytes or 0, event.memory_bytes or 0) or None,
            spilled_bytes=event.spilled_bytes,
        )
        if event.now - state.still_since >= self.options.settle_s:
            owner = self._measured_alone(owner, event)
        elif owner.own_s is None and state.still_since == math.inf:
            # it had been idle since its start: nothing is known of it while others run
            jobs = tuple(replace(each, share=0) for each in state.opportunistic)
            state = replace(state, opportunistic=jobs)
        known_now = owner.own_s is not None and (state.owner is None or state.owner.own_s is None)
        state = replace(state, owner=owner)
        return self._with_memory_limits(state) if known_now else state

    def _measured_alone(self, owner: Owner, event: Stepped) -> Owner:
        """The owner has done steps while all others stood still."""
        options = self.options
        durations = (*owner.alone, event.duration_s)
        counts = (*owner.alone_counts, min(event.steps, options.alone_steps))
        while sum(counts[1:]) >= options.alone_steps:
            durations, counts = durations[1:], counts[1:]
        owner = replace(owner, alone=durations, alone_counts=counts)
        if sum(counts) < options.alone_steps:
            return owner
        measured = median(
            each for each, count in zip(durations, counts, strict=True) for _ in range(count)
        )
        own = owner.own_s
        if own is None or abs(measured / own - 1.0) > options.new_pattern + _ROUNDING:
            return replace(owner, own_s=measured, calm_looks=0)
        return owner

    # -- a look ------------------------------------------------------------------------------------

    def _look(self, state: GpuState, now: float) -> GpuState:
        """Give and take shares, and take memory back."""
        owner = state.owner
        if owner is None or not state.opportunistic:
            return state
        state = self._with_memory_for(owner, state)
        slowdown = self._slowdown(owner, now)
        owner = replace(owner, fresh_s=None)
        if slowdown is None:
            return replace(state, owner=owner)
        jobs = state.opportunistic
        if slowdown > self.options.slow + _ROUNDING:
            jobs, owner = _halved(jobs), replace(owner, calm_looks=0)
        elif slowdown > self.options.calm + _ROUNDING:
            owner = replace(owner, calm_looks=0)
        else:
            owner = replace(owner, calm_looks=owner.calm_looks + 1)
            if owner.calm_looks >= self.options.calm_looks:
                grown = self._grown(jobs)
                if grown != jobs:
                    jobs, owner = grown, replace(owner, calm_looks=0)
        return replace(state, owner=owner, opportunistic=jobs)

    def _slowdown(self, owner: Owner, now: float) -> float | None:
        """By how much the owner is slower than alone; None: nothing new is known."""
        last = owner.since if owner.last_step_at is None else owner.last_step_at
        if now - last > self.options.idle_s:
            return 0.0
        if owner.own_s is None or owner.fresh_s is None:
            return None
        return owner.fresh_s / owner.own_s - 1.0

    def _grown(self, jobs: tuple[OpportunisticJob, ...]) -> tuple[OpportunisticJob, ...]:
        """The oldest that has not the most yet gets a little more."""
        for place, each in enumerate(jobs):
            most = each.steady or self.options.most
            if each.share < most and not each.leaves:
                share = min(most, each.steady or each.share + self.options.grow)
                return (*jobs[:place], replace(each, share=share), *jobs[place + 1 :])
        return jobs

    # -- memory ------------------------------------------------------------------------------------

    def _with_memory_limits(self, state: GpuState) -> GpuState:
        """Each opportunistic job may have what it needs, and its part of what the owner leaves."""
        owner = state.owner
        if owner is None or not state.opportunistic or not state.total_bytes:
            return state
        spare = 0
        if owner.most_bytes is not None:
            left = state.total_bytes - int(owner.most_bytes * (1.0 + self.options.headroom))
            spare = max(0, left - sum(each.stable_bytes for each in state.opportunistic))
        part = spare // len(state.opportunistic)
        jobs = tuple(
            replace(each, memory_bytes=each.stable_bytes + part) for each in state.opportunistic
        )
        return replace(state, opportunistic=jobs)

    def _with_memory_for(self, owner: Owner, state: GpuState) -> GpuState:
        """Take memory back where the owner lacks it: from the newest job first."""
        is_short = state.is_read and state.free_bytes < self.options.spare * state.total_bytes
        state = replace(state, is_read=False)
        if not is_short and not owner.spilled_bytes:
            return state
        missing = owner.spilled_bytes + int(self.options.spare * state.total_bytes)
        jobs, shrunk = list(state.opportunistic), False
        for place in reversed(range(len(jobs))):
            each = jobs[place]
            limit = state.total_bytes if each.memory_bytes is None else each.memory_bytes
            lower = max(each.stable_bytes, limit - missing)
            if missing > 0 and lower < limit and not each.leaves:
                jobs[place] = replace(each, memory_bytes=lower)
                missing, shrunk = missing - (limit - lower), True
        if not shrunk:  # all are down to what they need: the newest must go
            stays = [place for place, each in enumerate(jobs) if not each.leaves]
            if stays:
                jobs[stays[-1]] = replace(jobs[stays[-1]], share=0, leaves=True)
        return replace(state, opportunistic=tuple(jobs))


def _divided_equally(state: GpuState) -> GpuState:
    """Without an owner, the jobs have the GPU in equal parts, without limits of memory."""
    count = max(1, len(state.opportunistic))
    jobs = tuple(
        replace(each, share=each.steady or FULL // count, memory_bytes=None, leaves=False)
        for each in state.opportunistic
    )
    return replace(state, opportunistic=jobs)


def _halved(jobs: tuple[OpportunisticJob, ...]) -> tuple[OpportunisticJob, ...]:
    """The opportunistic job with the largest share loses half of it; of equal ones the newest."""
    place = max(range(len(jobs)), key=lambda at: (jobs[at].share, at))
    each = jobs[place]
    share = 0 if each.steady else each.share // 2
    return (*jobs[:place], replace(each, share=share), *jobs[place + 1 :])


def _noted_still(state: GpuState, now: float) -> GpuState:
    """With the time since when all opportunistic jobs stand still."""
    if any(each.share for each in state.opportunistic):
        if state.owner is None or state.still_since == math.inf:
            return replace(state, still_since=math.inf)
        owner = replace(state.owner, alone=(), alone_counts=())
        return replace(state, still_since=math.inf, owner=owner)
    return replace(state, still_since=now) if state.still_since == math.inf else state
