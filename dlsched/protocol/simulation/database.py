"""The database of the simulated world: one ledger, one leader row, epochs in every WHERE."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dlsched.protocol.leader import Persist
from dlsched.protocol.ledger import Ledger, apply_all
from dlsched.protocol.messages import Epoch, JobId

STALE_S = 15.0  # the database's own clock: after this a leader's session may be ended


@dataclass(slots=True, kw_only=True)
class Database:
    """Durable truth; `ledger` is what a new leader would load."""

    ledger: Ledger = field(default_factory=Ledger)
    leader: str = ""
    beat_at: float = float("-inf")
    done: set[tuple[Epoch, int]] = field(default_factory=set)
    available: bool = True
    restored: int = 0
    backup: Ledger | None = None

    def contend(self, name: str, now: float, alive: bool) -> Ledger | None:
        """Give the lead to a contender when nobody holds it; a new epoch each time."""
        free = not self.leader or not alive or now - self.beat_at > STALE_S
        if self.leader == name or not free:
            return None
        self.leader, self.beat_at = name, now
        self.ledger = replace(self.ledger, epoch=Epoch(self.ledger.epoch + 1), leader=name)
        return self.ledger

    def confirm(self, name: str, now: float) -> bool:
        """Whether `name` still leads; beats in its row."""
        if self.leader != name:
            return False
        self.beat_at = now
        return True

    def write(self, name: str, transaction: Persist) -> bool:
        """One transaction under the leader's epoch; a repeated number is done once."""
        if (transaction.epoch, transaction.number) in self.done:
            return True
        if self.leader != name or self.ledger.epoch != transaction.epoch:
            return False
        self.ledger = apply_all(self.ledger, transaction.writes)
        self.done.add((transaction.epoch, transaction.number))
        return True

    def take_backup(self) -> None:
        """Keep the ledger of this moment."""
        self.backup = self.ledger

    def restore(self) -> None:
        """Go back to the backup, as the restore tool does: no leader, job ids jump."""
        if self.backup is None:
            return
        self.ledger = replace(self.backup, next_job=JobId(self.backup.next_job + 1000))
        self.leader = ""
        self.done.clear()  # it is a table of the same database
        self.restored += 1
