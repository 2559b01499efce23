"""What root does to the daemon's database is done as the daemon's user.

A file that root leaves beside a SQLite database, or a database that root has put back, shuts the
daemon out; Postgres may know the daemon by its user of the system alone.
"""

from __future__ import annotations

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

from dlsched.core.errors import NotTrusted
from dlsched.db.engine import database_path, parse_url
from dlsched.system.files import OWNER_ONLY

STATE = Path("/var/lib/dlsched/daemon")  # its owner is the daemon's user, where there is no file


def become_owner(url: str) -> None:
    """Go on, for good, as the user whose database it is, if this is root and that another one.

    The files of a SQLite database get the owner of their folder, readable by this one only.

    Raises:
        NotTrusted: one of them is a link, or has a second name: it may be another user's file.
    """
    parsed = parse_url(url)
    is_file = parsed.get_backend_name() == "sqlite"
    path = database_path(parsed)
    folder = path.parent if is_file else STATE
    if os.geteuid() != 0 or not folder.is_dir():
        return
    owner = folder.stat()
    if owner.st_uid == 0:
        return
    for suffix in ("", "-wal", "-shm", ".leader") if is_file else ():
        with suppress(FileNotFoundError):
            _give(f"{path}{suffix}", owner)
    with suppress(KeyError):
        known = pwd.getpwuid(owner.st_uid)
        os.initgroups(known.pw_name, owner.st_gid)
        os.environ["HOME"] = known.pw_dir  # where Postgres' library looks for passwords
    os.setgid(owner.st_gid)
    os.setuid(owner.st_uid)


def _give(path: str, owner: os.stat_result) -> None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise NotTrusted(f"database: {path}: {error.strerror}") from None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise NotTrusted(f"database: {path} is not a plain file with one name")
        os.fchown(file, owner.st_uid, owner.st_gid)
        os.fchmod(file, OWNER_ONLY)
    finally:
        os.close(file)
