"""How the store fails, one class for each thing that the caller does differently."""

from __future__ import annotations

from dlsched.core.errors import DlschedError

__all__ = ["Deposed", "SchemaMismatch", "StoreCorrupt", "StoreUnavailable"]


class StoreUnavailable(DlschedError):
    """The database cannot be reached or cannot store now; asking again later is right."""


class SchemaMismatch(DlschedError):
    """The database's tables are of another version than this program's."""

    def __init__(self, found: str, needed: str) -> None:
        super().__init__(
            f"database is at {found}, this program needs {needed}"
            + ("; `dlsched daemon --migrate` brings it there" if found < needed else "")
        )
        self.found, self.needed = found, needed


class StoreCorrupt(DlschedError):
    """A stored row cannot be understood; it is named and never skipped."""

    def __init__(self, table: str, row: object, why: str) -> None:
        super().__init__(f"database: {table} row {row}: {why}")
        self.table, self.row = table, row


class Deposed(DlschedError):
    """Another leader's epoch stands in the database: this one may write no more."""
