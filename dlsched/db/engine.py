"""Database engines with durable commits, made from a URL.

SQLite: WAL with `synchronous=FULL`, so that a commit survives power loss; writers start with the
write lock, and readers never wait for them. Postgres: psycopg 3 with sessions that cannot block
others for ever. Errors of the driver become the store's own errors here.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from dlsched.core.errors import BadInput, InvariantBroken, NotTrusted
from dlsched.db.errors import StoreCorrupt, StoreUnavailable
from dlsched.system.files import OWNER_ONLY

log = logging.getLogger(__name__)

BUSY_S = 5.0
NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afs", "ceph", "lustre", "gpfs"}
    | {"beegfs", "glusterfs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph-fuse", "fuse.s3fs"}
)
TRANSIENT = frozenset({"40001", "40P01", "55P03"})  # serialization, deadlock, lock timeout
# connection, operator, resources (a full disk among them), access, no such database; read-only
UNAVAILABLE = frozenset({"08", "57", "53", "58", "28", "3D", "25006", "25P03"})


def parse_url(url: str) -> URL:
    """The URL of a database that the store can use.

    Raises:
        BadInput: it is of another kind.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise BadInput(
            "database: not a URL; sqlite:////path/to.db and postgresql+psycopg://… are"
        ) from None
    backend = parsed.get_backend_name()
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if backend == "postgres":
        raise BadInput(
            f"database: {shown(parsed)}: Postgres' URLs begin with postgresql+psycopg://"
        )
    if backend != "sqlite" or not parsed.database or parsed.database == ":memory:":
        raise BadInput(f"database: {shown(parsed)}: neither a SQLite file nor Postgres")
    return parsed


def has_password(url: str) -> bool:
    """Whether a database's URL has a password in it."""
    parsed = parse_url(url)
    return bool(parsed.password) or "password" in parsed.query


def shown(url: URL) -> str:
    """A URL without its password."""
    return url.render_as_string(hide_password=True)


def is_sqlite(engine: Engine) -> bool:
    """Whether an engine's database is a SQLite file."""
    return engine.dialect.name == "sqlite"


def database_path(url: URL) -> Path:
    """The file of a SQLite database."""
    return Path(url.database or "").absolute()


def open_engine(url: str, *, readers: int = 4) -> Engine:
    """An engine for one writer and some readers; nothing is connected yet.

    Raises:
        BadInput: a URL of another kind, or a file on a file system without working locks.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite(parsed, readers)
    options = f"-c idle_in_transaction_session_timeout=20000 -c lock_timeout={int(BUSY_S * 1000)}"
    return create_engine(
        parsed,
        pool_size=readers + 2,
        max_overflow=4,
        pool_timeout=BUSY_S,
        pool_pre_ping=False,  # the user of a lost connection retries
        pool_use_lifo=True,
        connect_args={
            "application_name": "dlsched",
            "connect_timeout": 5,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "options": options,
        },
    )


def _sqlite(url: URL, readers: int) -> Engine:
    path = database_path(url)
    if not path.parent.is_dir():
        raise BadInput(f"database: {path.parent} is not a folder")
    _check_file_system(path)
    engine = create_engine(
        url.set(database=str(path)),
        pool_size=readers + 2,
        max_overflow=4,
        pool_timeout=BUSY_S,
        connect_args={"check_same_thread": False, "timeout": BUSY_S},
    )

    @event.listens_for(engine, "do_connect")
    def keep_private(*_arguments: object) -> None:
        make_private(path)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # `begin` below starts transactions
        cursor = connection.cursor()
        _begin_wal(cursor)
        for pragma in ("synchronous=FULL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("dlsched_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def make_private(path: Path) -> None:
    """Create the file of a SQLite database that only its owner can read, unless it is there.

    SQLite gives the files beside it the same mode.

    Raises:
        NotTrusted: other users can read the file, or one beside it.
    """
    with suppress(OSError):  # SQLite says why it cannot be
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    for suffix in ("", "-wal", "-shm"):
        file = f"{path}{suffix}"
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(os.stat(file).st_mode)
            if mode & 0o077:
                raise NotTrusted(
                    f"database: {file} can be read by others (mode {mode:04o}): chmod 600 {file}"
                )


def _check_file_system(path: Path) -> None:
    kind = file_system(path.parent)
    if kind in NETWORK:
        raise BadInput(
            f"database: {path} is on a network file system ({kind}), where SQLite's locks do not "
            "hold; use a local folder, or Postgres"
        )
    if kind.startswith("fuse"):
        log.warning("database: %s is on %s: make sure that its locks and fsync work", path, kind)


def file_system(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """The type of the file system of a folder; empty when it is unknown."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    wanted, found, longest = os.path.realpath(folder), "", -1
    for line in lines:
        where, kind = line.split(" ")[1:3]
        where = where.replace("\\040", " ")
        inside = wanted == where or wanted.startswith(where.rstrip("/") + "/")
        if inside and len(where) >= longest:
            found, longest = kind, len(where)
    return found


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """One transaction that may write; in SQLite it holds the write lock from the start."""
    with translated(engine), engine.connect() as connection:
        write = connection.execution_options(dlsched_write=True)
        with write.begin():
            yield write


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """One short read transaction, which sees one state."""
    with translated(engine), engine.connect() as connection:
        if connection.dialect.name == "postgresql":  # else each statement sees a newer state
            connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            yield connection


class Conflict(StoreUnavailable):
    """The transaction lost against another one and may be repeated at once."""


@contextmanager
def translated(engine: Engine) -> Iterator[None]:
    """Turn errors of the driver into errors of the store."""
    try:
        yield
    except PoolTimeout as error:
        where = shown(engine.url)
        raise StoreUnavailable(f"cannot store: {where}: all connections are busy") from error
    except DBAPIError as error:
        raise from_driver(error, shown(engine.url)) from error
    except SQLAlchemyError as error:
        raise InvariantBroken(f"database: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """The first line of a driver's message, without the statement."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def from_driver(error: DBAPIError, where: str) -> Exception:
    """The store's error for an error of the driver."""
    cause = error.orig
    said = one_line(cause) if cause is not None else one_line(error)
    if isinstance(error, IntegrityError):
        return InvariantBroken(f"database: {said}")
    if isinstance(cause, sqlite3.Error):
        return _from_sqlite(cause, said, where)
    state = str(getattr(cause, "sqlstate", None) or "")
    if state in TRANSIENT:
        return Conflict(f"cannot store: {where}: {said}")
    if (
        error.connection_invalidated
        or not state
        or state in UNAVAILABLE
        or state[:2] in UNAVAILABLE
    ):
        return StoreUnavailable(f"cannot store: {where}: {said}")
    damaged = state[:2] == "XX"
    return StoreCorrupt("Postgres", "?", said) if damaged else InvariantBroken(f"database: {said}")


def _from_sqlite(cause: sqlite3.Error, said: str, where: str) -> Exception:
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Conflict(f"cannot store: {where}: {said}")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreCorrupt(where, "?", said)
    if code in (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
    ):
        return StoreUnavailable(f"cannot store: {where}: {said}")
    return InvariantBroken(f"database: {said}")


def _begin_wal(cursor: sqlite3.Cursor) -> None:
    """Have SQLite write ahead; of several programs that do so at once, it lets only one wait."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)


def check_integrity(engine: Engine) -> None:
    """Check a whole SQLite file, or warn of Postgres settings that can lose commits.

    Raises:
        StoreCorrupt: when the file is damaged.
        StoreUnavailable: when the database cannot be reached.
    """
    with reading(engine) as connection:
        if is_sqlite(engine):
            said: Any = connection.execute(text("PRAGMA quick_check(1)")).scalar_one()
            if said != "ok":
                raise StoreCorrupt(shown(engine.url), "?", one_line(ValueError(said)))
            return
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            value = connection.execute(text(f"SHOW {setting}")).scalar_one()
            if value == "off":
                log.warning(
                    "database: Postgres runs with %s=off: accepted jobs can be lost", setting
                )
