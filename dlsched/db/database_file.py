"""Whether the file of a SQLite database is still the one that was opened.

A process goes on with a file that was removed or replaced, and what it then stores is lost with it.
"""

from __future__ import annotations

import os

from dlsched.db.errors import StoreUnavailable

_REPLACED = "is another file now: put the file of before back, or restart the daemon"
_REMOVED = (
    "was removed: put it, or a backup, back before the daemon is restarted, which would begin an "
    "empty database"
)


class DatabaseFile:
    """One database file; its path is empty where the database is no file."""

    def __init__(self, path: str) -> None:
        """Look at the file when it is checked first."""
        self._path = path
        self._opened: tuple[int, int] | None = None

    def check(self) -> None:
        """Refuse to go on without the file.

        Raises:
            StoreUnavailable: it was removed or replaced.
        """
        if not self._path:
            return
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            now = None
        except OSError as error:
            raise StoreUnavailable(f"{self._path}: {error.strerror}") from None
        else:
            now = found.st_dev, found.st_ino
        self._opened = self._opened or now
        if now != self._opened:
            raise StoreUnavailable(f"{self._path} {_REMOVED if now is None else _REPLACED}")
