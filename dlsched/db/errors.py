"""The store's errors, one class for each reaction of a caller."""

from __future__ import annotations

from dlsched.core.errors import DlschedError


class StoreUnavailable(DlschedError):
    """The database cannot be reached or cannot store now; the caller tries again later."""


class SchemaMismatch(DlschedError):
    """The database's tables are of another version than this program's."""

    def __init__(self, found: str, needed: str, first: str) -> None:
        hint = ""
        if found < first:
            hint = (
                f" and converts {first} or later; docs/database.md says what brings it to {first}"
            )
        elif found < needed:
            hint = "; `dlsched daemon --migrate` brings it there"
        super().__init__(f"database is at {found}, this program needs {needed}{hint}")
        self.found, self.needed = found, needed


class StoreCorrupt(DlschedError):
    """A stored row cannot be read; the error names it, and it is never skipped."""

    def __init__(self, table: str, row: object, why: str) -> None:
        super().__init__(f"database: {table} row {row}: {why}")
        self.table, self.row = table, row


class Deposed(DlschedError):
    """The database has another leader's epoch, so this leader must not write any more."""
