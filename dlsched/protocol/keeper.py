"""A keeper as a pure step: one run on one node, from reservation to its recorded end.

The keeper is the parent of the job's processes. It reserves the run's record exclusively before
anything runs, makes the exit record durable before it reports the end, and goes on without an agent
or a leader. Where the site has hooks, the prolog ends well before the run is prepared, and the
epilog has ended, well or not, before the end is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Literal

from dlsched.core.errors import InvariantBroken
from dlsched.protocol import messages as m
from dlsched.protocol.timing import Timing

SIGKILL, SIGTERM = 9, 15
PEER_GRACE_S = 10.0  # at most, for the other ranks of a gang of which one has failed


class Stage(Enum):
    """The stages of a keeper."""

    NEW = "new"
    RESERVING = "reserving"  # the reserved-run file is being made
    PROLOG = "prolog"  # the site's hook runs before the run is prepared
    PREPARED = "prepared"
    RELEASING = "releasing"  # "released" is being made durable
    RUNNING = "running"
    STOPPING = "stopping"  # asked to exit
    KILLING = "killing"
    RECORDING = "recording"  # the exit record is being made durable
    EPILOG = "epilog"  # the site's hook runs, and its end is being made durable
    ENDED = "ended"
    GONE = "gone"


class Cause(Enum):
    """What moves a keeper from one stage to the next."""

    BEGUN = "begun"
    RESERVED = "reserved"
    TAKEN = "taken"  # another keeper has reserved this run
    RELEASE = "release"
    RELEASED = "released"
    STOP = "stop"
    KILL = "kill"
    EXITED = "exited"
    GIVEN_UP = "given up"
    RECORDED = "recorded"
    HOOK = "hook"  # the site has one
    HOOK_ENDED = "hook ended"
    FORGET = "forget"


_ALIVE = (Stage.RUNNING, Stage.STOPPING, Stage.KILLING)
_BEFORE = (Stage.NEW, Stage.RESERVING, Stage.PROLOG, Stage.PREPARED, Stage.RELEASING)
FENCEABLE = (Stage.RUNNING, Stage.STOPPING)  # a job that is leaving still computes
TRANSITIONS: Mapping[tuple[Stage, Cause], Stage] = MappingProxyType(
    {
        (Stage.NEW, Cause.BEGUN): Stage.RESERVING,
        (Stage.RESERVING, Cause.RESERVED): Stage.PREPARED,
        (Stage.RESERVING, Cause.TAKEN): Stage.GONE,
        (Stage.RESERVING, Cause.HOOK): Stage.PROLOG,
        (Stage.PROLOG, Cause.HOOK_ENDED): Stage.PREPARED,
        (Stage.PROLOG, Cause.GIVEN_UP): Stage.RECORDING,
        (Stage.PREPARED, Cause.RELEASE): Stage.RELEASING,
        (Stage.PREPARED, Cause.GIVEN_UP): Stage.RECORDING,
        (Stage.RELEASING, Cause.RELEASED): Stage.RUNNING,
        (Stage.RELEASING, Cause.GIVEN_UP): Stage.RECORDING,
        (Stage.RUNNING, Cause.STOP): Stage.STOPPING,
        (Stage.RUNNING, Cause.KILL): Stage.KILLING,
        (Stage.STOPPING, Cause.KILL): Stage.KILLING,
        (Stage.KILLING, Cause.GIVEN_UP): Stage.RECORDING,
        (Stage.RECORDING, Cause.RECORDED): Stage.ENDED,
        (Stage.RECORDING, Cause.HOOK): Stage.EPILOG,
        (Stage.EPILOG, Cause.RECORDED): Stage.ENDED,
        (Stage.ENDED, Cause.FORGET): Stage.GONE,
    }
    | {(stage, Cause.EXITED): Stage.RECORDING for stage in _ALIVE}
)


# -- events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Began:
    """The keeper process starts; `covered_until` is the end of a lease that lists this run."""

    now: float
    covered_until: float | None = None


@dataclass(frozen=True, slots=True)
class Reserved:
    """The reserved-run file exists; `mine` is false when another keeper created it first."""

    now: float
    mine: bool


@dataclass(frozen=True, slots=True)
class ReleaseWritten:
    """The record says "released", and this is durable."""

    now: float


@dataclass(frozen=True, slots=True)
class ExitWritten:
    """The exit record is durable."""

    now: float


@dataclass(frozen=True, slots=True)
class HookEnded:
    """The site's hook that ran has ended; `failed` says how it failed, empty if it did not."""

    now: float
    failed: str = ""


@dataclass(frozen=True, slots=True)
class EpilogWritten:
    """It is durable that the epilog has ended, and how."""

    now: float


@dataclass(frozen=True, slots=True)
class OrderArrived:
    """An order of the agent arrived."""

    now: float
    order: m.Order


@dataclass(frozen=True, slots=True)
class LeaseChanged:
    """The lease file has changed; `covered` says whether it lists this run."""

    now: float
    until: float
    covered: bool
    by_leader: bool


@dataclass(frozen=True, slots=True)
class JobExited:
    """The job's processes have exited; `stuck`: all but some that cannot be killed."""

    now: float
    code: int = 0
    signal: int = 0
    out_of_memory: bool = False
    detail: str = ""
    stuck: bool = False
    told: m.Told | None = None
    checkpoint: int | None = None  # step of the last one handed in while a stop was pending
    term_s: float | None = None  # since TERM was sent; None: none was
    unasked: bool = False  # it had ended or failed before a stop was asked
    at: float | None = None  # in seconds since the epoch; None: not known
    steps: tuple[m.StepRecord, ...] = ()
    cpu_s: float = 0.0
    peak_memory_bytes: int = 0
    script_cpu_s: float = 0.0
    script_peak_bytes: int = 0
    start_fault: m.StartFault | None = None  # a process of it could not start, and why not
    executed: bool = True  # some process of it has executed its program


@dataclass(frozen=True, slots=True)
class JobSuspended:
    """The job is suspended at the highest level that works; `let_go`: it uses no GPU any more."""

    now: float
    let_go: bool


@dataclass(frozen=True, slots=True)
class AgentAttached:
    """An agent has connected and needs this keeper's status."""

    now: float


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """A deadline has passed."""

    now: float


Event = (
    Began
    | Reserved
    | ReleaseWritten
    | ExitWritten
    | HookEnded
    | EpilogWritten
    | OrderArrived
    | LeaseChanged
    | JobExited
    | JobSuspended
    | AgentAttached
    | DeadlinePassed
)


# -- commands ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reserve:
    """Persist: create the reserved-run file, exclusively."""

    released: bool  # a one-node run is released with its reservation


@dataclass(frozen=True, slots=True)
class WriteReleased:
    """Persist: the run is about to execute."""


@dataclass(frozen=True, slots=True)
class WriteExit:
    """Persist: how the run ended."""

    exit: m.ExitRecord


@dataclass(frozen=True, slots=True)
class RunHook:
    """Start the site's prolog or its epilog."""

    name: Literal["prolog", "epilog"]


@dataclass(frozen=True, slots=True)
class KillHook:
    """Kill the site's hook that runs."""


@dataclass(frozen=True, slots=True)
class ApplyLimits:
    """The run has other limits of processors and memory from now on."""

    limits: m.Limits


@dataclass(frozen=True, slots=True)
class WriteEpilog:
    """Persist: the epilog has ended; `failed` says how it failed."""

    failed: str


@dataclass(frozen=True, slots=True)
class Execute:
    """Start the job's processes."""


@dataclass(frozen=True, slots=True)
class SendSignal:
    """Send a signal to the job's processes; signal 9 goes to the whole process tree."""

    number: int
    stop_step: int | None = None
    hand_over: str = ""  # with a stop: where the ranks of the next run wait for the state


@dataclass(frozen=True, slots=True)
class TellToTakeOver:
    """The run before is over: the ranks of this one go on in its place."""


@dataclass(frozen=True, slots=True)
class FreezeJob:
    """Freeze the job's processes."""


@dataclass(frozen=True, slots=True)
class ThawJob:
    """Thaw the job's processes."""


@dataclass(frozen=True, slots=True)
class Report:
    """Report the status to the agent, if one is connected."""

    status: m.KeeperStatus


@dataclass(frozen=True, slots=True)
class Leave:
    """End the keeper process."""


Command = (
    Reserve
    | WriteReleased
    | WriteExit
    | RunHook
    | KillHook
    | ApplyLimits
    | WriteEpilog
    | Execute
    | SendSignal
    | TellToTakeOver
    | FreezeJob
    | ThawJob
    | Report
    | Leave
)


# -- state ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperState:
    """Everything a keeper knows."""

    node: m.NodeName
    desired: m.DesiredRun
    timing: Timing = Timing()
    can_freeze: bool = True
    prolog_s: float | None = None  # how long the site's hooks may take; None: it has none
    epilog_s: float | None = None
    stage: Stage = Stage.NEW
    release_asked: bool = False
    stop: m.StopReason | None = None
    suspended: bool = False
    suspension: int = 0  # its number, when other runs may use the GPUs meanwhile
    settling: bool = False  # the suspension is not complete yet
    let_go: bool = False
    fenced: bool = False
    prepare_until: float | None = None
    hook_until: float | None = None
    hook_overran: bool = False  # it was killed because its time was over
    kill_at: float | None = None
    give_up_at: float | None = None
    lease_until: float | None = None  # of a lease that lists this run
    executed_at: float | None = None  # start of the current unfrozen period
    ran_s: float = 0.0
    exit: m.ExitRecord | None = None
    quarantined: bool = False

    @property
    def frozen(self) -> bool:
        """Whether the job's processes are frozen."""
        return self.suspended or (self.fenced and self.can_freeze)

    @property
    def needs_lease(self) -> bool:
        """Whether this run executes only under a lease that lists it."""
        return self.desired.fence is m.Fence.LEASE

    @property
    def phase(self) -> m.Phase:
        """The phase that the agent reports to the leader."""
        match self.stage:
            case Stage.PROLOG if self.stop is not None:
                return m.Phase.STOPPING
            case Stage.NEW | Stage.RESERVING | Stage.PROLOG:
                return m.Phase.STARTING
            case Stage.PREPARED | Stage.RELEASING:
                return m.Phase.PREPARED
            case Stage.RUNNING if self.fenced:
                return m.Phase.FENCED
            case Stage.RUNNING:
                stands = self.suspended and not self.settling
                return m.Phase.SUSPENDED if stands else m.Phase.RUNNING
            case _:
                return m.Phase.STOPPING

    def status(self) -> m.KeeperStatus:
        """The status for the agent; it contains an end only once that is durable."""
        durable = self.exit if self.stage in (Stage.ENDED, Stage.GONE) else None
        return m.KeeperStatus(
            desired=self.desired,
            phase=self.phase,
            exit=durable,
            quarantined=self.quarantined,
            suspension=self.suspension if self.suspended and not self.settling else 0,
            let_go=self.suspended and self.let_go,
        )

    def deadline(self) -> float | None:
        """When this keeper needs a `DeadlinePassed` next (now, if in the past); None: never."""
        times = [self.prepare_until, self.hook_until, self.kill_at, self.give_up_at]
        if self.needs_lease and self.stage in FENCEABLE and not self.fenced:
            times.append(self.lease_until)
        if self.executed_at is not None and self.stage is Stage.RUNNING:
            limit = self.desired.limits.time_s
            times.append(None if limit is None else self.executed_at + limit - self.ran_s)
        return min((time for time in times if time is not None), default=None)


def grace_of_peers_s(grace_s: float) -> float:
    """From TERM to KILL for the other ranks, in seconds, in place of their job's own grace."""
    return min(grace_s, PEER_GRACE_S)


def step(state: KeeperState, event: Event) -> tuple[KeeperState, list[Command]]:
    """The state after an event, and the commands to carry out, in order."""
    turn = _Turn(state, event.now)
    match event:
        case Began(covered_until=until):
            turn.begin(until)
        case Reserved(mine=mine):
            turn.reserved(mine)
        case ReleaseWritten():
            turn.released()
        case ExitWritten():
            turn.recorded()
        case HookEnded(failed=failed):
            turn.hook_ended(failed)
        case EpilogWritten():
            turn.move(Cause.RECORDED)
            turn.report()
        case OrderArrived(order=order):
            turn.obey(order)
        case LeaseChanged(until=until, covered=covered, by_leader=by_leader):
            turn.lease(until, covered, by_leader)
        case JobExited():
            turn.exited(event)
        case JobSuspended(let_go=let_go):
            turn.stood_still(let_go)
        case AgentAttached():
            turn.report()
        case DeadlinePassed():
            turn.wake()
    return turn.state, turn.commands


class _Turn:
    """The state and the commands that one step builds up."""

    def __init__(self, state: KeeperState, now: float) -> None:
        self.state = state
        self.now = now
        self.commands: list[Command] = []

    def change(self, **changes: object) -> None:
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]  # checked by tests

    def emit(self, *commands: Command) -> None:
        self.commands.extend(commands)

    def report(self) -> None:
        self.emit(Report(self.state.status()))

    def move(self, cause: Cause) -> None:
        target = TRANSITIONS.get((self.state.stage, cause))
        if target is None:
            raise InvariantBroken(
                f"keeper of {self.state.desired.key} is {self.state.stage.value}: {cause.value}?"
            )
        self.change(stage=target)

    # -- start ---------------------------------------------------------------------------------

    def begin(self, covered_until: float | None) -> None:
        wanted = self.state.desired.want is m.Want.RUNNING
        self.change(lease_until=covered_until, release_asked=wanted)
        self.move(Cause.BEGUN)
        self.emit(Reserve(released=False))

    def reserved(self, mine: bool) -> None:
        if not mine:
            self.move(Cause.TAKEN)
            self.emit(Leave())
            return
        if self.state.prolog_s is not None and self.state.stop is None:
            self.run_hook("prolog", self.state.prolog_s)
            return
        self.move(Cause.RESERVED)
        self.prepared()

    def prepared(self) -> None:
        self.change(prepare_until=self.now + self.state.timing.prepare_s)
        if self.state.stop is not None:
            self.give_up("stopped before release")
            return
        self.try_release()
        if self.state.stage is Stage.PREPARED:  # else it executes in a moment, and says so
            self.report()

    def try_release(self) -> None:
        state = self.state
        if not state.release_asked or state.stage is not Stage.PREPARED:
            return
        if state.needs_lease and (state.lease_until is None or self.now >= state.lease_until):
            return  # nothing runs without a lease: wait for one, or for the timer
        self.move(Cause.RELEASE)
        self.change(prepare_until=None)
        self.emit(WriteReleased())

    def released(self) -> None:
        state = self.state
        if state.stop is not None:
            self.give_up("stopped before it was executed")
            return
        if state.needs_lease and (state.lease_until is None or self.now >= state.lease_until):
            self.give_up("the node lease ended before it was executed")
            return
        self.move(Cause.RELEASED)
        self.change(executed_at=self.now)
        self.emit(Execute())
        self.report()

    def give_up(self, why: str, *, hook: str = "") -> None:
        end = JobExited(self.now, detail=why)
        self.record(m.ExitReason.NOT_STARTED, Cause.GIVEN_UP, end, hook=hook)

    # -- the site's hooks ------------------------------------------------------------------------

    def run_hook(self, name: Literal["prolog", "epilog"], limit_s: float) -> None:
        self.move(Cause.HOOK)
        self.change(hook_until=self.now + limit_s, hook_overran=False)
        self.emit(RunHook(name))
        self.report()

    def hook_ended(self, failed: str) -> None:
        state = self.state
        if state.hook_until is None or state.stage not in (Stage.PROLOG, Stage.EPILOG):
            return  # it was given up before
        limit_s = state.prolog_s if state.stage is Stage.PROLOG else state.epilog_s
        if state.hook_overran:
            failed = f"took longer than {limit_s:g} s"
        failed = f"{state.stage.value} {failed}" if failed else ""
        self.change(hook_until=None)
        if state.stage is Stage.EPILOG:
            self.epilog_ended(failed)
        elif state.stop is not None:
            self.give_up("stopped before release")  # the stop has killed it: that is no failure
        elif failed:
            self.give_up(failed, hook=failed)
        else:
            self.move(Cause.HOOK_ENDED)
            self.prepared()

    def recorded(self) -> None:
        """The end is durable: now comes the epilog, unless a process still uses the GPUs."""
        if self.state.epilog_s is None:
            self.move(Cause.RECORDED)
            self.report()
        elif self.state.quarantined:
            self.move(Cause.HOOK)
            self.epilog_ended("epilog not run: a process cannot be killed")
        else:
            self.run_hook("epilog", self.state.epilog_s)

    def epilog_ended(self, failed: str) -> None:
        end = self.state.exit
        if end is not None and failed:
            self.change(exit=replace(end, hook=failed))
        self.emit(WriteEpilog(failed))

    def kill_hook(self) -> None:
        """The hook has overrun its time: kill it, and give it up when that does not help."""
        if self.state.hook_overran:
            self.hook_ended("cannot be killed")
            return
        self.change(hook_overran=True, hook_until=self.now + self.state.timing.unkillable_s)
        self.emit(KillHook())

    # -- orders --------------------------------------------------------------------------------

    def obey(self, order: m.Order) -> None:
        state = self.state
        match order:
            case m.Release():
                self.change(release_asked=True)
                self.try_release()
            case m.Freeze(suspension=number) if state.stage is Stage.RUNNING:
                self.suspend(number)
            case m.Thaw() if state.stage is Stage.RUNNING and state.suspended:
                self.thaw(suspended=False)
            case m.Signal(number=number) if state.stage in _ALIVE:
                self.emit(SendSignal(number))
            case m.Adjust(limits=limits, grace_s=grace_s):
                self.adjust(replace(state.desired, limits=limits, grace_s=grace_s))
            case m.Stop(reason=reason, step=at, hand_over=where):
                self.stop(reason, at, where)
            case m.TakeOver() if state.desired.follows:
                self.change(desired=replace(state.desired, follows=m.RunId("")))
                self.emit(TellToTakeOver())
                self.report()
            case m.Kill(reason=reason):
                self.kill(reason)
            case m.Forget() if state.stage is Stage.ENDED and not state.quarantined:
                self.move(Cause.FORGET)
                self.emit(Leave())
            case _:
                pass  # repeated, or too late: the run has ended

    def adjust(self, desired: m.DesiredRun) -> None:
        """Adopt other limits; a stop that has begun keeps its grace."""
        if desired == self.state.desired or self.state.exit is not None:
            return
        before, now = self.state.desired.limits, desired.limits
        self.change(desired=desired)
        if (before.cpus, before.memory_bytes) != (now.cpus, now.memory_bytes):
            self.emit(ApplyLimits(now))
        self.report()

    def stop(self, reason: m.StopReason, at: int | None, hand_over: str = "") -> None:
        state = self.state
        if state.stage in (Stage.NEW, Stage.RESERVING, Stage.RELEASING):
            self.change(stop=reason)
        elif state.stage is Stage.PROLOG:
            self.change(stop=reason)
            self.emit(KillHook())
            self.report()
        elif state.stage is Stage.PREPARED:
            self.change(stop=reason)
            self.give_up("stopped before release")
        elif (
            reason is m.StopReason.OVER
            or state.fenced
            or (reason is m.StopReason.CANCEL and state.suspended)
        ):
            self.kill(reason)
        elif state.stage is Stage.RUNNING:
            if state.suspended:
                self.thaw(suspended=False)  # a frozen process cannot exit in good order
            grace_s = state.desired.grace_s
            if reason is m.StopReason.PEER:  # no checkpoint can be agreed upon any more
                grace_s = grace_of_peers_s(grace_s)
            self.change(stop=reason, kill_at=self.now + grace_s)
            self.move(Cause.STOP)
            self.emit(SendSignal(SIGTERM, at, hand_over))
            self.report()
        elif state.stage is Stage.STOPPING and reason is m.StopReason.CANCEL:
            self.change(stop=reason)

    def kill(self, reason: m.StopReason) -> None:
        state = self.state
        if state.stage in _BEFORE:
            self.stop(reason, None)
            return
        if state.stage not in (Stage.RUNNING, Stage.STOPPING):
            return
        self.move(Cause.KILL)
        self.change(
            stop=state.stop or reason,
            kill_at=None,
            give_up_at=self.now + state.timing.unkillable_s,
        )
        self.emit(SendSignal(SIGKILL))
        self.report()

    # -- freezing and the node lease -------------------------------------------------------------

    def suspend(self, number: int) -> None:
        """Suspend the job; a suspension with a number reports when its GPUs are unused."""
        state = self.state
        if state.suspended and number == state.suspension:
            return
        # a job that is frozen already still has to be checked for use of its GPUs
        check = number > 0 and not (state.suspended and state.suspension)
        again = check and state.frozen
        self.change(suspension=number, settling=check or (number > 0 and state.settling))
        if not state.suspended:
            self.change(let_go=False)
            self.freeze(suspended=True)
        else:
            self.report()
        if again:
            self.emit(FreezeJob())

    def stood_still(self, let_go: bool) -> None:
        if self.state.suspended and self.state.settling:
            self.change(settling=False, let_go=let_go)
            self.report()

    def freeze(self, *, suspended: bool = False, fenced: bool = False) -> None:
        state = self.state
        was = state.frozen
        self.change(suspended=state.suspended or suspended, fenced=state.fenced or fenced)
        if not was and self.state.frozen:
            self.emit(FreezeJob())
            self.stop_counting()
        self.report()

    def thaw(self, *, suspended: bool | None = None, fenced: bool | None = None) -> None:
        state = self.state
        was = state.frozen
        self.change(
            suspended=state.suspended if suspended is None else suspended,
            fenced=state.fenced if fenced is None else fenced,
        )
        if not self.state.suspended:
            self.change(suspension=0, settling=False, let_go=False)
        if was and not self.state.frozen:
            self.emit(ThawJob())
            self.change(executed_at=self.now)
        self.report()

    def stop_counting(self) -> None:
        state = self.state
        if state.executed_at is not None:
            self.change(ran_s=state.ran_s + self.now - state.executed_at, executed_at=None)

    def lease(self, until: float, covered: bool, by_leader: bool) -> None:
        state = self.state
        if not state.needs_lease:
            return
        self.change(lease_until=until if covered else None)
        if covered and self.now < until:
            if state.stage is Stage.PREPARED:
                self.try_release()
            elif state.stage in FENCEABLE and state.fenced and by_leader and state.can_freeze:
                self.thaw(fenced=False)
        elif state.stage in FENCEABLE and not state.fenced:
            self.fence()

    def fence(self) -> None:
        """The node lease has ended, or does not list this run."""
        if self.state.can_freeze:
            self.freeze(fenced=True)
            return
        kill_at = self.now + self.state.timing.kill_s  # instead of the job's own grace
        if self.state.stage is Stage.RUNNING:
            self.move(Cause.STOP)
            self.emit(SendSignal(SIGTERM))
        self.change(
            stop=self.state.stop or m.StopReason.OVER,
            fenced=True,
            kill_at=min(kill_at, self.state.kill_at or kill_at),
        )
        self.report()

    def wake(self) -> None:  # noqa: PLR0911  # one deadline a return
        state, now = self.state, self.now
        if state.prepare_until is not None and now >= state.prepare_until:
            self.change(prepare_until=None)
            if state.stage is Stage.PREPARED:
                self.give_up(m.NOT_RELEASED_IN_TIME)
            return
        if state.hook_until is not None and now >= state.hook_until:
            self.kill_hook()
            return
        if state.kill_at is not None and now >= state.kill_at:
            self.kill(state.stop or m.StopReason.OVER)
            return
        if state.give_up_at is not None and now >= state.give_up_at:
            self.change(give_up_at=None, quarantined=True)
            self.record(m.ExitReason.UNKILLABLE, Cause.GIVEN_UP, JobExited(now))
            return
        if state.stage not in FENCEABLE:
            return
        if state.needs_lease and not state.fenced and now >= (state.lease_until or 0.0):
            self.fence()
            return
        if state.stage is not Stage.RUNNING:
            return
        limit, since = state.desired.limits.time_s, state.executed_at
        if limit is not None and since is not None and state.ran_s + now - since >= limit:
            self.stop(m.StopReason.TIME_LIMIT, None)

    # -- the end -------------------------------------------------------------------------------

    def exited(self, event: JobExited) -> None:
        state = self.state
        if state.quarantined:  # the stuck process has exited at last
            self.change(quarantined=False)
            self.report()
            if state.stage is Stage.ENDED:
                self.move(Cause.FORGET)
                self.emit(Leave())
            return
        if state.stage is Stage.GONE:
            return  # it was told twice that the stuck process has exited
        if event.unasked:
            self.change(stop=None)
        if event.start_fault is not None and not event.executed:
            reason = m.ExitReason.NOT_STARTED
        elif event.code == 0 and event.signal == 0:
            reason = m.ExitReason.EXITED
        elif event.out_of_memory:
            reason = m.ExitReason.OUT_OF_MEMORY
        elif self.state.stop is m.StopReason.TIME_LIMIT:
            reason = m.ExitReason.TIME_LIMIT
        else:
            reason = m.ExitReason.SIGNALLED if event.signal else m.ExitReason.EXITED
        self.change(quarantined=event.stuck)
        self.record(reason, Cause.EXITED, event)

    def record(self, reason: m.ExitReason, cause: Cause, end: JobExited, *, hook: str = "") -> None:
        self.stop_counting()
        self.move(cause)
        desired = self.state.desired
        record = m.ExitRecord(
            key=desired.key,
            node=self.state.node,
            reason=reason,
            code=end.code,
            signal=end.signal,
            stop=self.state.stop,
            ran_s=self.state.ran_s,
            detail=end.detail,
            nodes=tuple(share.node for share in desired.layout),
            request_id=desired.request_id,
            told=end.told,
            checkpoint=end.checkpoint,
            term_s=end.term_s,
            at=end.at,
            hook=hook,
            steps=end.steps,
            cpu_s=end.cpu_s,
            peak_memory_bytes=end.peak_memory_bytes,
            script_cpu_s=end.script_cpu_s,
            script_peak_bytes=end.script_peak_bytes,
            stuck=self.state.quarantined,
            start_fault=end.start_fault if self.state.stop is None else None,
        )
        self.change(exit=record, kill_at=None, give_up_at=None, prepare_until=None)
        self.emit(WriteExit(record))
