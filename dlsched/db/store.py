"""The store: one database, written by one leader and read from any thread.

Invariants: a transaction is stored wholly or not at all, and once, even if it is sent repeatedly. A
write under an old epoch is refused. A row that cannot be read stops the program.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeVar

from sqlalchemy import Connection, Engine, delete, select

from dlsched.db import schema
from dlsched.db.database_file import DatabaseFile
from dlsched.db.engine import (
    Conflict,
    check_integrity,
    database_path,
    is_sqlite,
    open_engine,
    reading,
    shown,
    writing,
)
from dlsched.db.errors import Deposed, StoreUnavailable
from dlsched.db.leadership import leadership_of, lock_term
from dlsched.db.reading import queries as reads
from dlsched.db.reading.loading import Loaded, load
from dlsched.db.statements import add_unless_there
from dlsched.db.tokens import StoredTokens
from dlsched.db.versions import prepare
from dlsched.db.writing.attached import store_attached
from dlsched.db.writing.transaction import carry_out
from dlsched.protocol.ledger import Attach, Write
from dlsched.protocol.messages import Epoch, Term

log = logging.getLogger(__name__)
T = TypeVar("T")

ATTEMPTS = 8  # of a transaction that conflicts with another one
PATIENCE_S = 10.0  # for all of them
LONGEST_WAIT_S = 0.5
REMEMBERED = 256  # transactions of an epoch that may still be repeated


def _file_of(engine: Engine) -> str:
    """The path of a SQLite database; empty: the database is no file of this machine."""
    return str(database_path(engine.url)) if is_sqlite(engine) and engine.url.database else ""


class Store(reads.Reads):
    """One database. Only one thread calls `persist`; any thread reads."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.leadership = leadership_of(engine)
        self._file = DatabaseFile(_file_of(engine))
        self.transactions = 0  # that this store has committed
        self._leading = threading.Lock()
        self._chance = random.Random()

    @staticmethod
    def open(url: str, *, check: bool = True) -> Store:
        """Open a database; an empty one gets its tables.

        Args:
            url: sqlite:////path/to.db or postgresql+psycopg://…
            check: check the whole of a SQLite file.

        Raises:
            BadInput: a URL of another kind, or a file on a file system without working locks.
            SchemaMismatch: the tables are of another version.
            StoreCorrupt: the file is damaged.
            StoreUnavailable: the database cannot be reached; try again later.
        """
        engine = open_engine(url)
        try:
            if check:
                check_integrity(engine)
            prepare(engine)
        except BaseException:
            engine.dispose()
            raise
        return Store(engine)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up the leadership and close every connection."""
        with self._leading:
            self.leadership.close()
        self.engine.dispose()

    @property
    def kind(self) -> str:
        """`SQLite` or `Postgres`, for messages."""
        return "SQLite" if is_sqlite(self.engine) else "Postgres"

    @property
    def where(self) -> str:
        """The database's URL without its password."""
        return shown(self.engine.url)

    def disk_room(self) -> tuple[int, int] | None:
        """Bytes that are left on the database's disk, and all of it; None where that is unknown.

        So it is on another machine, and where the disk itself does not answer.
        """
        if not is_sqlite(self.engine):
            return None
        try:
            disk = os.statvfs(database_path(self.engine.url).parent)
        except OSError:
            return None
        return disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize

    @property
    def tokens(self) -> StoredTokens:
        """Records of remote tokens."""
        return StoredTokens(self.engine)

    # -- leadership -------------------------------------------------------------------------------

    def contend(self, name: str) -> Term | None:
        """Become the leader under a new epoch; None while another process leads.

        Raises:
            StoreUnavailable: the database does not answer now.
        """
        with self._leading:
            return self._patiently(lambda: self.leadership.contend(name))

    def confirm(self, epoch: Epoch) -> bool:
        """Whether this process still leads under an epoch; called about once a second.

        Raises:
            StoreUnavailable: the database does not answer now.
        """
        self._file.check()
        with self._leading:
            return self._patiently(lambda: self.leadership.confirm(epoch))

    def standbys(self) -> list[str]:
        """The names of the daemons that wait for the lead, as far as the database knows them."""
        return self._patiently(self.leadership.standbys)

    def load(self) -> Loaded:
        """Everything that is live, for a new leader.

        Raises:
            StoreCorrupt: naming a row that cannot be read.
            StoreUnavailable: try again later.
        """
        return self._read(load)

    # -- writing ----------------------------------------------------------------------------------

    def persist(self, epoch: Epoch, number: int, writes: Sequence[Write], at: float) -> None:
        """Store a leader's changes in one transaction; a repeated number is stored once.

        Args:
            epoch: the leader's epoch.
            number: of the transaction in that epoch.
            writes: the changes.
            at: seconds since the epoch, for display.

        Raises:
            Deposed: another epoch has begun.
            StoreUnavailable: it was not stored, or that is unknown; send it again under its number.
            InvariantBroken: the changes are not possible; a defect.
        """
        self._file.check()
        self._patiently(lambda: self._persist(epoch, number, writes, at))
        self._file.check()  # else it may be stored where no later process finds it

    def _persist(self, epoch: Epoch, number: int, writes: Sequence[Write], at: float) -> None:
        done = schema.transactions
        with writing(self.engine) as connection:
            if not lock_term(connection, epoch):
                self._was_done_or_deposed(connection, epoch, number)
                return
            row = {"epoch": epoch, "number": number, "at": at}
            if not add_unless_there(connection, done, row):
                return
            if number % REMEMBERED == 0:
                old = done.c.number < number - REMEMBERED
                connection.execute(delete(done).where(done.c.epoch == epoch, old))
            carried = carry_out(connection, epoch, writes, at)
            rows = [write.row for write in writes if isinstance(write, Attach)]
            told = (*carried.events, *carried.notices)
            store_attached(connection, carried.epoch, [*rows, *told], at)
        self.transactions += 1

    @staticmethod
    def _was_done_or_deposed(connection: Connection, epoch: Epoch, number: int) -> None:
        leader, done = schema.leader, schema.transactions
        known = select(done.c.at).where(done.c.epoch == epoch, done.c.number == number)
        if connection.execute(known).scalar_one_or_none() is not None:
            return
        now = connection.execute(select(leader.c.epoch, leader.c.name)).one()
        raise Deposed(f"epoch {epoch} is over: {now.name} leads with epoch {now.epoch}")

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """Repeat an attempt that conflicts with another transaction, a bounded number of times."""
        until = time.monotonic() + PATIENCE_S
        for k in range(ATTEMPTS):
            try:
                return attempt()
            except Conflict as error:
                if k == ATTEMPTS - 1 or time.monotonic() > until:
                    raise StoreUnavailable(str(error)) from error
                log.info("%s (attempt %d)", error, k + 1)
                time.sleep(self._chance.uniform(0, min(LONGEST_WAIT_S, 0.01 * 2**k)))
            except StoreUnavailable:
                # an idle connection may have been lost: try once with a new one
                if k > 0:
                    raise
                self.engine.dispose()
        raise AssertionError("unreachable")

    def _read(self, query: Callable[[Connection], T]) -> T:
        def attempt() -> T:
            with reading(self.engine) as connection:
                return query(connection)

        return self._patiently(attempt)
