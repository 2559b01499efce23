"""Tokens: short ones for local users, kept nowhere, and long ones for users at a distance.

A local token is good for minutes, for one user id, on one daemon process and its local sockets; the
key that signs it never leaves that process's memory. A remote token is random; only its digest is
stored. Standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dlsched.core.errors import BadInput, NotTrusted

__all__ = [
    "LOCAL_S",
    "LocalTokens",
    "LocalUser",
    "NewToken",
    "TokenRecord",
    "TokenStore",
    "check_remote",
    "new_remote",
]

LOCAL_S = 600.0
LOCAL, REMOTE = "dl1", "dr1"  # first part of a token: its kind and version
MAX_TOKEN = 2048


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalUser:
    """An account of this machine, as its kernel and its user database know it."""

    uid: int
    name: str


class LocalTokens:
    """Signs and checks the local tokens of one daemon process and one set of local sockets."""

    def __init__(
        self,
        listener: str = "local",
        *,
        lifetime_s: float = LOCAL_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a new key; tokens of earlier processes are worth nothing.

        Args:
            listener: what the tokens are bound to.
            lifetime_s: at most `LOCAL_S`.
            clock: seconds that only grow; the same process signs and checks, so no two clocks meet.
        """
        if not 0 < lifetime_s <= LOCAL_S:
            raise BadInput(f"a local token lives up to {LOCAL_S:.0f} s, not {lifetime_s:g}")
        self.lifetime_s = lifetime_s
        self._listener = listener
        self._clock = clock
        self._key = secrets.token_bytes(32)

    def issue(self, user: LocalUser) -> str:
        """A token for a user whom the kernel has named."""
        text = json.dumps([user.uid, user.name, self._clock() + self.lifetime_s]).encode()
        return f"{LOCAL}.{_encode(text)}.{_encode(self._sign(text))}"

    def check(self, token: str) -> LocalUser:
        """The user of a token.

        Raises:
            NotTrusted: when it is not one of this daemon's, or too old.
        """
        kind, _, rest = token[:MAX_TOKEN].partition(".")
        body, _, mac = rest.partition(".")
        if kind != LOCAL:
            raise NotTrusted("the local socket takes tokens of the login socket only")
        try:
            text, signed = _decode(body), _decode(mac)
        except ValueError:
            raise NotTrusted("the local token is malformed; log in again") from None
        if not hmac.compare_digest(signed, self._sign(text)):
            raise NotTrusted("the local token is not of this daemon; log in again")
        uid, name, until = json.loads(text)
        if self._clock() >= until:
            raise NotTrusted("the local token has expired; log in again")
        return LocalUser(uid=uid, name=name)

    def _sign(self, text: bytes) -> bytes:
        return hmac.digest(self._key, self._listener.encode() + b"\0" + text, "sha256")


# -- at a distance --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """What is stored of a remote token. Times are seconds since the epoch, UTC."""

    token_id: str  # public; names the token in lists
    digest: str  # SHA-256 of the whole token, hexadecimal
    user: str
    created_at: float
    expires_at: float
    revoked_at: float | None = None
    comment: str = ""


class TokenStore(Protocol):
    """Where records of remote tokens are kept; each answer is what the database says now."""

    async def add_token(self, record: TokenRecord) -> None:
        """Keep a new record."""

    async def find_token(self, token_id: str) -> TokenRecord | None:
        """The record of an id."""

    async def list_tokens(self, user: str | None) -> Sequence[TokenRecord]:
        """Records of one user or of all, oldest first."""

    async def revoke_token(self, token_id: str, at: float) -> bool:
        """Revoke one; false when there is none of that id. Again is harmless."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A token as it is shown once, and what is stored of it."""

    token: str
    record: TokenRecord


def new_remote(user: str, *, lifetime_s: float, now: float, comment: str = "") -> NewToken:
    """A random token; the caller stores the record and shows the token once."""
    if not user:
        raise BadInput("a token is for one user: name it")
    if not lifetime_s > 0:
        raise BadInput(f"a token's life is above 0 s, not {lifetime_s:g}")
    token_id = secrets.token_hex(6)
    token = f"{REMOTE}.{token_id}.{_encode(secrets.token_bytes(32))}"
    record = TokenRecord(
        token_id=token_id,
        digest=_digest(token),
        user=user,
        created_at=now,
        expires_at=now + lifetime_s,
        comment=comment,
    )
    return NewToken(token=token, record=record)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


async def check_remote(token: str, store: TokenStore, now: float) -> TokenRecord:
    """The record of a token that is good now.

    Raises:
        NotTrusted: when it is unknown, expired or revoked.
    """
    kind, _, rest = token.partition(".")
    token_id, _, _ = rest.partition(".")
    if kind == LOCAL:
        raise NotTrusted("a local token is good on the daemon's local socket only")
    if kind != REMOTE or len(token) > MAX_TOKEN:
        raise NotTrusted("the token is malformed")
    record = await store.find_token(token_id)
    if record is None or not hmac.compare_digest(record.digest, _digest(token)):
        raise NotTrusted("the token is not known here")
    if record.revoked_at is not None:
        raise NotTrusted(f"token {record.token_id} has been revoked")
    if now >= record.expires_at:
        raise NotTrusted(f"token {record.token_id} has expired")
    return record
