"""Leader election: a lock that ends with its holder, and an epoch that fences every write.

SQLite: a lock on a file beside the database. Postgres: an advisory lock of a dedicated session, and
a heartbeat on the database's own clock, so that the session of a paused or unreachable process can
be recognised and ended. Safety depends only on the epoch in the leader's row, which refuses the
writes of a deposed leader; the lock avoids useless contention.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, Engine, create_engine, select, text, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from dlsched.db import schema
from dlsched.db.engine import database_path, is_sqlite, reading, translated, writing
from dlsched.db.errors import StoreUnavailable
from dlsched.protocol.messages import Epoch, Term
from dlsched.protocol.timing import STALE_S

log = logging.getLogger(__name__)

LOCK = 0x646C7363  # "dlsc", of the database's advisory locks
LEADS, STANDS_BY = "dlsched leader", "dlsched standby "  # names of sessions in Postgres


class Leadership(Protocol):
    """A way to become and to stay the leader."""

    def contend(self, name: str) -> Term | None:
        """A new term; None while another process leads."""

    def confirm(self, epoch: Epoch) -> bool:
        """Whether the term still holds; `StoreUnavailable` is raised when that is unknown."""

    def standbys(self) -> list[str]:
        """The names of the processes that wait for the lead, as far as the database knows them."""

    def close(self) -> None:
        """Give up the leadership."""


def leadership_of(engine: Engine) -> Leadership:
    """The leadership for the kind of a database."""
    return FileLeadership(engine) if is_sqlite(engine) else SessionLeadership(engine)


def _begin_term(connection: Connection, name: str, session: int) -> Term:
    """Add 1 to the epoch in the leader's row; returns the new term."""
    table = schema.leader
    # waits for transactions of the last term, which lock the row for its key (`lock_term`)
    connection.execute(select(table.c.epoch).where(table.c.id == 1).with_for_update())
    beat = time.time() if connection.dialect.name == "sqlite" else _CLOCK
    row = connection.execute(
        update(table)
        .where(table.c.id == 1)
        .values(epoch=table.c.epoch + 1, name=name, session=session, beat_at=beat)
        .returning(table.c.epoch)
    ).one()
    done = schema.transactions
    connection.execute(done.delete().where(done.c.epoch < row.epoch - 1))
    return Term(Epoch(row.epoch))


_CLOCK = text("extract(epoch from clock_timestamp())")


def lock_term(connection: Connection, epoch: Epoch) -> bool:
    """Whether an epoch is current; if so, no other begins before this transaction ends.

    Heartbeats go on meanwhile: in Postgres they change no key of the row. In SQLite the transaction
    has the write lock already, and there are no heartbeats.
    """
    table = schema.leader
    query = select(table.c.epoch).where(table.c.id == 1, table.c.epoch == epoch)
    locked = connection.execute(query.with_for_update(read=True, key_share=True))
    return locked.one_or_none() is not None


class FileLeadership:
    """Leadership over a SQLite database: an exclusive lock on `FILE.leader`."""

    def __init__(self, engine: Engine) -> None:
        path = database_path(engine.url)
        self.engine = engine
        self.path = path.with_name(path.name + ".leader")
        self.file: int | None = None

    def contend(self, name: str) -> Term | None:
        """A new term; None while another process has the lock."""
        if self.file is None and not self._lock():
            return None
        try:
            with writing(self.engine) as connection:
                return _begin_term(connection, name, 0)
        except BaseException:
            self.close()
            raise

    def _lock(self) -> bool:
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            if os.geteuid() == 0:  # as SQLite does with its own files: else the owner is shut out
                owner = database_path(self.engine.url).stat()
                os.fchown(file, owner.st_uid, owner.st_gid)
        except OSError as error:
            raise StoreUnavailable(f"cannot store: {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        if not _is_at(file, self.path):  # it was replaced between opening and locking
            os.close(file)
            return False
        self.file = file
        return True

    def confirm(self, epoch: Epoch) -> bool:
        """Whether this process holds the lock on the present file, and its epoch is current."""
        if self.file is None or not _is_at(self.file, self.path):
            return False
        with reading(self.engine) as connection:
            found = connection.execute(select(schema.leader.c.epoch)).scalar_one()
        return bool(found == epoch)

    def standbys(self) -> list[str]:
        """None: contenders for a file leave no name."""
        return []

    def close(self) -> None:
        """Release the lock."""
        if self.file is not None:
            os.close(self.file)
            self.file = None


def _is_at(file: int, path: Path) -> bool:
    try:
        there = path.stat()
    except OSError:
        return False
    mine = os.fstat(file)
    return (mine.st_ino, mine.st_dev) == (there.st_ino, there.st_dev)


class SessionLeadership:
    """Leadership over a Postgres database: an advisory lock of one session."""

    def __init__(self, engine: Engine) -> None:
        self.readers = engine
        _, given = engine.dialect.create_connect_args(engine.url)
        self.engine = create_engine(
            engine.url,
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            connect_args={
                **given,
                "application_name": LEADS,
                "connect_timeout": 5,
                "keepalives_idle": 5,
                "keepalives_interval": 2,
                "keepalives_count": 3,
                "tcp_user_timeout": 5000,
                "options": "-c lock_timeout=5000 -c statement_timeout=5000",
            },
        )
        self.session: Connection | None = None
        self.name = ""

    def contend(self, name: str) -> Term | None:
        """A new term; None while another session holds the lock and sends heartbeats."""
        try:
            return self._contend(name)
        except BaseException:
            self.close()
            raise

    def _contend(self, name: str) -> Term | None:
        with translated(self.engine):
            session = self._connected()
            if not self._locked(session) and not (
                self._ended_stale(session) and self._locked(session)
            ):
                self._name_session(session, STANDS_BY + name)
                return None
            self.name = name
            self._name_session(session, LEADS)
            pid = session.execute(text("SELECT pg_backend_pid()")).scalar_one()
            session.execute(text("BEGIN"))
            term = _begin_term(session, name, pid)
            session.execute(text("COMMIT"))
            return term

    def _connected(self) -> Connection:
        if self.session is None or self.session.closed or self.session.invalidated:
            self.close()
            self.session = self.engine.connect()
        return self.session

    @staticmethod
    def _name_session(session: Connection, name: str) -> None:
        session.execute(text("SELECT set_config('application_name', :name, false)"), {"name": name})

    @staticmethod
    def _locked(session: Connection) -> bool:
        return bool(
            session.execute(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": LOCK}).scalar_one()
        )

    def _ended_stale(self, session: Connection) -> bool:
        """End the sessions that hold the lock if the leader's heartbeat is too old."""
        quiet = session.execute(
            text("SELECT extract(epoch from clock_timestamp()) - beat_at FROM leader WHERE id = 1")
        ).scalar_one()
        if quiet < STALE_S:
            return False
        holders = session.execute(
            text(
                "SELECT pid, pg_terminate_backend(pid, 2000) AS ended FROM pg_locks "
                "WHERE locktype = 'advisory' AND granted AND classid = 0 AND objid = :lock "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                " AND pid <> pg_backend_pid()"
            ),
            {"lock": LOCK},
        ).all()
        for pid, ended in holders:
            log.warning(
                "database: no heartbeat of the leader for %.0f s: its session %d %s",
                *(quiet, pid, "is ended" if ended else "could not be ended"),
            )
        return all(ended for _, ended in holders)

    def confirm(self, epoch: Epoch) -> bool:
        """Whether this session has the lock and the epoch is current; renews the heartbeat."""
        with translated(self.engine):
            try:
                session = self._connected()
                table, me = schema.leader, text("pg_backend_pid()")
                row = (table.c.id == 1, table.c.epoch == epoch, table.c.name == self.name)
                beat = update(table).where(*row).values(beat_at=_CLOCK, session=me)
                # the session that began the term has the lock for as long as it lives
                if session.execute(beat.where(table.c.session == me)).rowcount == 1:
                    return True
                held = self._holds(session)
                if not held and not self._locked(session):
                    return False
                mine = bool(session.execute(beat).rowcount == 1)
                if not (mine or held):  # an unused lock would keep other daemons from leading
                    self.close()
                return mine
            except BaseException:
                self.close()
                raise

    def standbys(self) -> list[str]:
        """The processes that wait for the lead; each keeps a session with its name."""
        query = text(
            "SELECT DISTINCT application_name FROM pg_stat_activity "
            "WHERE datname = current_database() AND starts_with(application_name, :mark) ORDER BY 1"
        )
        with reading(self.readers) as connection:
            names = connection.execute(query, {"mark": STANDS_BY}).scalars().all()
        return [name.removeprefix(STANDS_BY) for name in names]

    @staticmethod
    def _holds(session: Connection) -> bool:
        query = text(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted "
            "AND classid = 0 AND objid = :lock AND pid = pg_backend_pid()"
        )
        return bool(session.execute(query, {"lock": LOCK}).scalar_one())

    def close(self) -> None:
        """Release the lock at once, if the session still answers, and end the session."""
        session, self.session = self.session, None
        if session is None:
            return
        with suppress(SQLAlchemyError):
            if not session.invalidated:
                session.execute(text("SELECT pg_advisory_unlock_all()"))
        session.invalidate()
        session.close()
