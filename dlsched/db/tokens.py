"""Records of remote tokens: digests, never tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sqlalchemy import Connection, Engine, RowMapping, func, select, update

from dlsched.db import schema
from dlsched.db.engine import reading, writing
from dlsched.db.statements import add
from dlsched.rpc.tokens import TokenRecord

__all__ = ["StoredTokens"]

_TABLE = schema.tokens


class StoredTokens:
    """What `dlsched.rpc.tokens.TokenStore` asks for, from the database and each time anew."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def add_token(self, record: TokenRecord) -> None:
        """Keep a new record."""
        await asyncio.to_thread(self._add, record)

    async def find_token(self, token_id: str) -> TokenRecord | None:
        """The record of an id."""
        return await asyncio.to_thread(self._find, token_id)

    async def list_tokens(self, user: str | None) -> Sequence[TokenRecord]:
        """Records of one user or of all, oldest first."""
        return await asyncio.to_thread(self._list, user)

    async def revoke_token(self, token_id: str, at: float) -> bool:
        """Revoke one; false when there is none of that id. Again is harmless."""
        return await asyncio.to_thread(self._revoke, token_id, at)

    def _add(self, record: TokenRecord) -> None:
        row = {
            "token_id": record.token_id,
            "digest": record.digest,
            "user_name": record.user,
            "created_at": record.created_at,
            "expires_at": record.expires_at,
            "revoked_at": record.revoked_at,
            "comment": record.comment,
        }
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
    return TokenRecord(
        token_id=row["token_id"],
        digest=row["digest"],
        user=row["user_name"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        comment=row["comment"],
    )
