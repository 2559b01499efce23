"""Tokens: short-lived ones for local users, which are not stored, and ones for remote users.

A local token is valid for minutes, for one user id, and for one daemon process; the signing key
never leaves that process's memory. A remote token is random, and only its digest is stored.
Standard library only.
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

LOCAL_S = 600.0
LOCAL, REMOTE = "dl1", "dr1"  # first part of a token: its kind and version
MAX_TOKEN = 2048


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalUser:
    """An account of this machine."""

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
        """Make a new key; tokens of earlier processes are not valid.

        They are bound to `listener`, a set of sockets, for at most `LOCAL_S`; the clock is
        monotonic.
        """
        if not 0 < lifetime_s <= LOCAL_S:
            raise BadInput(f"a local token lives up to {LOCAL_S:.0f} s, not {lifetime_s:g}")
        self.lifetime_s = lifetime_s
        self._listener = listener
        self._clock = clock
        self._key = secrets.token_bytes(32)

    def issue(self, user: LocalUser) -> str:
        """A token for a user that the kernel has identified."""
        text = json.dumps([user.uid, user.name, self._clock() + self.lifetime_s]).encode()
        return f"{LOCAL}.{_encode(text)}.{_encode(self._sign(text))}"

    def check(self, token: str) -> LocalUser:
        """The user of a token.

        Raises:
            NotTrusted: it is not of this daemon, or it has expired.
        """
        kind, _, rest = token[:MAX_TOKEN].partition(".")
        body, _, mac = rest.partition(".")
        if kind != LOCAL:
            raise NotTrusted("the local socket accepts only tokens of the login socket")
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


# -- remote tokens --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecord:
    """The stored part of a remote token. Times are seconds since the epoch, UTC."""

    token_id: str  # public; names the token in lists
    digest: str  # SHA-256 of the whole token, hexadecimal
    user: str
    created_at: float
    expires_at: float
    revoked_at: float | None = None
    comment: str = ""


class TokenStore(Protocol):
    """The store of remote tokens' records; each answer is the present content of the database."""

    async def add_token(self, record: TokenRecord) -> None:
        """Store a new record."""

    async def find_token(self, token_id: str) -> TokenRecord | None:
        """The record of an id; None: there is none."""

    async def list_tokens(self, user: str | None) -> Sequence[TokenRecord]:
        """Records of one user or of all, oldest first."""

    async def revoke_token(self, token_id: str, at: float) -> bool:
        """Revoke a token; false when the id is unknown. A second time changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """A new token, which is shown once, and its record."""

    token: str
    record: TokenRecord


def new_remote(user: str, *, lifetime_s: float, now: float, comment: str = "") -> NewToken:
    """A random token; the caller stores the record and shows the token once.

    Args:
        user: the user that the token identifies.
        lifetime_s: its validity in seconds.
        now: seconds since the epoch.
        comment: for lists of tokens.
    """
    if not user:
        raise BadInput("a token is for one user: name it")
    if not lifetime_s > 0:
        raise BadInput(f"a token's lifetime must be above 0 s, not {lifetime_s:g}")
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
    """The record of a valid token.

    Raises:
        NotTrusted: it is unknown, expired or revoked.
    """
    kind, _, rest = token.partition(".")
    token_id, _, _ = rest.partition(".")
    if kind == LOCAL:
        raise NotTrusted("a local token is valid only on the daemon's local socket")
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
