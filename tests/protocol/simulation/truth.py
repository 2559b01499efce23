"""What is true in the simulated world: its database and the processes on its nodes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dlsched.protocol.leader import Persist
from dlsched.protocol.ledger import Ledger, apply_all
from dlsched.protocol.messages import DesiredRun, Epoch, JobId, NodeName
from dlsched.protocol.timing import STALE_S
from tests.protocol.simulation.scenario import Behaviour


def live_part(ledger: Ledger) -> Ledger:
    """What a new leader loads: jobs that have not ended, and what is alive of the others."""
    runs = {r: run for r, run in ledger.runs.items() if not run.is_over or run.stuck_on}
    busy = {run.key.job for run in runs.values()}
    jobs = {n: j for n, j in ledger.jobs.items() if not j.status.is_terminal or n in busy}
    return Ledger(
        epoch=ledger.epoch,
        leader=ledger.leader,
        next_job=ledger.next_job,
        jobs=jobs,
        runs=runs,
        nodes=ledger.nodes,
        orphans=ledger.orphans,
        requests={key: job for key, job in ledger.requests.items() if job in jobs},
    )


@dataclass(slots=True, kw_only=True)
class Database:
    """The simulated database."""

    ledger: Ledger = field(default_factory=Ledger)
    leader: str = ""
    beat_at: float = float("-inf")
    done: set[tuple[Epoch, int]] = field(default_factory=set)
    available: bool = True
    restored: int = 0
    backup: Ledger | None = None

    def contend(self, name: str, now: float, alive: bool) -> Ledger | None:
        """Make a contender the leader under a new epoch, unless another one leads.

        It loads what is alive; what has ended stays in the database.
        """
        free = not self.leader or not alive or now - self.beat_at > STALE_S
        if self.leader == name or not free:
            return None
        self.leader, self.beat_at = name, now
        self.ledger = replace(self.ledger, epoch=Epoch(self.ledger.epoch + 1), leader=name)
        return live_part(self.ledger)

    def confirm(self, name: str, now: float) -> bool:
        """Whether `name` still leads; renews its heartbeat."""
        if self.leader != name:
            return False
        self.beat_at = now
        return True

    def write(self, name: str, transaction: Persist) -> bool:
        """Store one transaction under the leader's epoch; a repeated number is stored once."""
        if (transaction.epoch, transaction.number) in self.done:
            return True
        if self.leader != name or self.ledger.epoch != transaction.epoch:
            return False
        self.ledger = apply_all(self.ledger, transaction.writes)
        self.done.add((transaction.epoch, transaction.number))
        return True

    def take_backup(self) -> None:
        """Keep a copy of the present ledger."""
        self.backup = self.ledger

    def restore(self) -> None:
        """Go back to the backup, as the restore tool does: no leader, job ids jump."""
        if self.backup is None:
            return
        self.ledger = replace(self.backup, next_job=JobId(self.backup.next_job + 1000))
        self.leader = ""
        self.done.clear()  # it is a table of the same database
        self.restored += 1


@dataclass(slots=True, kw_only=True, eq=False)
class Process:
    """A run's processes on one node, as they are; removed when they end."""

    desired: DesiredRun
    node: NodeName
    behaviour: Behaviour
    left_s: float  # work left; it counts while the gang is complete
    counting_from: float | None = None
    frozen: bool = False
    frozen_by_fence: bool = False
    let_go: bool = False  # frozen, and using no GPU
    again: bool = False
    ending: int = 0  # invalidates planned ends
    stopping: bool = False  # it ends because it was asked to
    term_at: float | None = None  # when it got TERM, on its node's clock
    killed: bool = False  # it was sent SIGKILL: it computes no more, and may take long to end
    unasked: bool = False  # that was its keeper's own decision, or its keeper's end
