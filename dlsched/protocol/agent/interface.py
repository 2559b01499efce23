"""What an agent's step takes and gives: its records on disk, its events and its commands."""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.protocol import messages as m

# -- records on disk -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRecord:
    """The content of the agent's own file, which is replaced atomically."""

    term: m.Term = m.Term()
    incarnation: m.Incarnation = m.Incarnation(0)
    starts: tuple[str, ...] = ()  # random names of the last starts; newest last


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """The content of a run's file on the node: from its reservation to its recorded end."""

    desired: m.DesiredRun
    boot_id: m.BootId
    released: bool = False
    exit: m.ExitRecord | None = None
    released_at: float | None = None  # by the node's clock, in seconds since the epoch


# -- events --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Event:
    """What has happened, at `now` on the clock of this machine since its boot."""

    now: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(Event):
    """The agent process starts, with what the disk and the keepers' sockets say."""

    boot_id: m.BootId
    start: str  # a random name of this start
    record: AgentRecord
    runs: tuple[RunRecord, ...]
    keepers: tuple[m.KeeperStatus, ...]  # alive
    lease_until: float | None = None  # of the lease file, which a reboot deletes


@dataclass(frozen=True, slots=True)
class Tick(Event):
    """The time between two syncs has passed."""


@dataclass(frozen=True, slots=True)
class SyncDue(Event):
    """The time of a `SyncLater` has come."""


@dataclass(frozen=True, slots=True)
class ReplyArrived(Event):
    """The leader answered a sync."""

    reply: m.Reply


@dataclass(frozen=True, slots=True)
class Nudged(Event):
    """The leader asks for a sync."""

    nudge: m.Nudge


@dataclass(frozen=True, slots=True)
class Persisted(Event):
    """The agent's own file is durable with this content."""

    record: AgentRecord


@dataclass(frozen=True, slots=True)
class KeeperReported(Event):
    """A keeper's status has changed."""

    status: m.KeeperStatus


@dataclass(frozen=True, slots=True)
class KeeperGone(Event):
    """A keeper's process has died, or could not be started for the reason `why`.

    `fault` says whose fault it is that its run cannot start; None: no fault at all.
    """

    run_id: m.RunId
    why: str = ""
    fault: m.StartFault | None = m.StartFault.NODE


@dataclass(frozen=True, slots=True)
class HealthChanged(Event):
    """GPUs have become unhealthy, or healthy again."""

    unhealthy: tuple[m.GpuId, ...]


@dataclass(frozen=True, slots=True)
class LeftoversGone(Event):
    """No process of the run is left; `record` is the run's file as it is now.

    `at` is the time by the node's clock, in seconds since the epoch.
    """

    run_id: m.RunId
    record: RunRecord | None
    at: float | None = None


@dataclass(frozen=True, slots=True)
class EndWritten(Event):
    """An end that the agent wrote for a lost keeper is durable."""

    exit: m.ExitRecord


@dataclass(frozen=True, slots=True)
class WitnessAsked(Event):
    """Another agent asks this one as a witness."""

    query: m.WitnessQuery


@dataclass(frozen=True, slots=True)
class WitnessAnswered(Event):
    """A witness has answered."""

    answer: m.WitnessAnswer


# -- commands ------------------------------------------------------------------------------------


class Command:
    """What the agent's shell is to do."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class SendSync(Command):
    """Send a sync to the leader."""

    sync: m.Sync


@dataclass(frozen=True, slots=True)
class SyncLater(Command):
    """Take a `SyncDue` at this time, in place of one that was planned before."""

    at: float


@dataclass(frozen=True, slots=True)
class Persist(Command):
    """Make the agent's own file durable."""

    record: AgentRecord


@dataclass(frozen=True, slots=True)
class WriteEnd(Command):
    """Write the end of a run that has no keeper, unless its file has an end already."""

    exit: m.ExitRecord


@dataclass(frozen=True, slots=True)
class DropRecord(Command):
    """Delete the files of a run after the leader has committed its end.

    When the run is to be started again all the same, its end is told again: the leader's database
    was replaced by an older one.
    """

    run_id: m.RunId
    exit: m.ExitRecord


@dataclass(frozen=True, slots=True)
class Spawn(Command):
    """Start a keeper; `covered_until` is the end of the node lease if that lists the run."""

    desired: m.DesiredRun
    covered_until: float | None = None


@dataclass(frozen=True, slots=True)
class OrderKeeper(Command):
    """Send an order to a keeper."""

    run_id: m.RunId
    order: m.Order


@dataclass(frozen=True, slots=True)
class KillKeeper(Command):
    """Kill a keeper that does not obey; its end is an event."""

    run_id: m.RunId


@dataclass(frozen=True, slots=True)
class KillLeftovers(Command):
    """Kill the processes that a lost keeper may have left, then read the run's file."""

    run_id: m.RunId


@dataclass(frozen=True, slots=True)
class WriteLease(Command):
    """Replace the lease file, which keepers watch."""

    until: float
    covers: frozenset[m.RunId]
    by_leader: bool


@dataclass(frozen=True, slots=True)
class QueryWitness(Command):
    """Send a query to a witness."""

    query: m.WitnessQuery


@dataclass(frozen=True, slots=True)
class AnswerWitness(Command):
    """Answer another agent's query as a witness."""

    answer: m.WitnessAnswer


@dataclass(frozen=True, slots=True)
class LogLine(Command):
    """Write a line to the log."""

    text: str
