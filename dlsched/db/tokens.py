"""Records of remote tokens: digests, never tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sqlalchemy import Connection, Engine, RowMapping, func, select, update

from dlsched.db import schema
from dlsched.db.engine import reading, writing
from dlsched.db.rows import record_of
from dlsched.db.statements import add
from dlsched.protocol.json_form import plain
from dlsched.rpc.tokens import TokenRecord

_TABLE = schema.tokens


class StoredTokens:
    """The `dlsched.rpc.tokens.TokenStore` of the database, without a cache."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def add_token(self, record: TokenRecord) -> None:
        """Store a new record."""
        await asyncio.to_thread(self._add, record)

    async def find_token(self, token_id: str) -> TokenRecord | None:
        """The record of an id; None: there is none."""
        return await asyncio.to_thread(self._find, token_id)

    async def list_tokens(self, user: str | None) -> Sequence[TokenRecord]:
        """Records of one user or of all, oldest first."""
        return await asyncio.to_thread(self._list, user)

    async def revoke_token(self, token_id: str, at: float) -> bool:
        """Revoke a token; false when the id is unknown. A second time changes nothing."""
        return await asyncio.to_thread(self._revoke, token_id, at)

    def _add(self, record: TokenRecord) -> None:
        row = plain(record)
        row["user_name"] = row.pop("user")
        with writing(self.engine) as connection:
            add(connection, _TABLE, [row])

    def _find(self, token_id: str) -> TokenRecord | None:
        query = select(_TABLE).where(_TABLE.c.token_id == token_id)
        with reading(self.engine) as connection:
            row = connection.execute(query).mappings().one_or_none()
        return _record(row) if row is not None else None

    def _list(self, user: str | None) -> Sequence[TokenRecord]:
        query = select(_TABLE).order_by(_TABLE.c.created_at, _TABLE.c.token_id)
        if user is not None:
            query = query.where(_TABLE.c.user_name == user)
        with reading(self.engine) as connection:
            return [_record(row) for row in connection.execute(query).mappings()]

    def _revoke(self, token_id: str, at: float) -> bool:
        with writing(self.engine) as connection:
            return _revoked(connection, token_id, at)


def _revoked(connection: Connection, token_id: str, at: float) -> bool:
    row = update(_TABLE).where(_TABLE.c.token_id == token_id)
    return (
        connection.execute(row.values(revoked_at=func.coalesce(_TABLE.c.revoked_at, at))).rowcount
        == 1
    )


def _record(row: RowMapping) -> TokenRecord:
    return record_of(TokenRecord, row, user=row["user_name"])
