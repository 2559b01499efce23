"""Authentication: from the transport of a call to an identity.

The proof depends on the port: a certificate on mutual TLS, a remote token on TLS without a client
certificate, a local token or the kernel's peer credentials on unix sockets. On development ports
(loopback only) the caller's claim is believed. The message of the call is never read.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlsched.core.errors import BadInput, NotTrusted
from dlsched.rpc.identity import (
    BEARER,
    ROLE_KEY,
    TOKEN_KEY,
    UID_KEY,
    UNMAPPED_UIDS,
    USER_KEY,
    Identity,
    Role,
    claimed_name,
)
from dlsched.rpc.login import name_of
from dlsched.rpc.tls import DenyList, PeerCertificate, read_certificate
from dlsched.rpc.tokens import LocalTokens, TokenStore, check_remote

__all__ = ["ROLE_KEY", "TOKEN_KEY", "UID_KEY", "USER_KEY", "Authenticator"]


def _account(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


@dataclass(eq=False, slots=True, kw_only=True)
class Authenticator:
    """Identifies the caller of each call, or refuses it."""

    insecure_loopback: bool  # believe the claims of callers; the ports accept local ones only
    local: LocalTokens | None  # checks tokens of the login socket; None: they are refused
    remote: TokenStore | None  # of remote tokens; None: they are refused
    denied: DenyList
    operators: frozenset[str]  # beside root and the daemon's own user

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    async def identify(self, context: Any) -> Identity:
        """The identity of the caller.

        Raises:
            NotTrusted: the caller has not proven an identity.
        """
        uid = getattr(context, "peer_uid", None)  # only of a local call
        if uid is not None:
            return await self._peer(uid)
        security = context.auth_context()
        metadata = {
            key: value if isinstance(value, str) else ""
            for key, value in context.invocation_metadata() or ()
        }
        if certificates := security.get("x509_pem_cert"):
            return await self._certified(certificates[0], metadata)
        kind = security.get("transport_security_type")
        if list(kind or ()) == [b"ssl"]:
            return await self._remote_user(metadata)
        if self.insecure_loopback:
            return self._claimed(metadata)
        if context.peer().startswith("unix:"):
            return self._local_user(metadata)
        raise NotTrusted("this port needs TLS")

    # -- certificates -----------------------------------------------------------------------------

    async def _certified(self, pem: bytes, metadata: Mapping[str, str]) -> Identity:
        found = read_certificate(pem)
        found.check(self.now())  # a connection may outlive its certificate
        if found.serial in self.denied:
            raise NotTrusted(
                f"the certificate of {found.role} (serial {found.serial_text}) has been denied"
            )
        role = found.role
        if role.kind == "login":
            return await self._vouched(found, metadata)
        return Identity(
            kind=role.kind,
            name=role.name,
            is_operator=role.kind == "operator",
            via="certificate",
        )

    async def _vouched(self, found: PeerCertificate, metadata: Mapping[str, str]) -> Identity:
        """A user that a login node vouches for; such a user is never an operator."""
        if USER_KEY not in metadata:
            return Identity(kind="login", name=found.role.name, via="certificate")
        name, uid = _claimed_user(metadata)
        if uid == 0 or uid in UNMAPPED_UIDS:
            raise NotTrusted(f"{found.role} cannot speak for user id {uid}")
        here = await asyncio.to_thread(_account, name)
        if here != uid:
            known = "is not known here" if here is None else f"has user id {here} here"
            raise NotTrusted(f"{found.role} speaks for {name} with user id {uid}; {name} {known}")
        return Identity(kind="user", name=name, uid=uid, via=str(found.role))

    # -- tokens -----------------------------------------------------------------------------------

    async def _remote_user(self, metadata: Mapping[str, str]) -> Identity:
        if self.remote is None:
            raise NotTrusted("this server accepts no remote tokens")
        record = await check_remote(_bearer(metadata), self.remote, self.now())
        uid = await asyncio.to_thread(_account, record.user)
        if uid == 0 or uid in UNMAPPED_UIDS:
            raise NotTrusted(f"{record.user} cannot use dlsched with a remote token")
        return Identity(
            kind="user",
            name=record.user,
            uid=uid,
            is_operator=record.user in self.operators,
            via="token",
        )

    def _local_user(self, metadata: Mapping[str, str]) -> Identity:
        if self.local is None:
            raise NotTrusted("this server accepts no local tokens")
        user = self.local.check(_bearer(metadata))
        return self._user(user.name, user.uid, "local")

    async def _peer(self, uid: int) -> Identity:
        """The user at the other end of a unix socket, as the kernel noted it."""
        if uid in UNMAPPED_UIDS:
            raise NotTrusted(f"user id {uid} is not a real account and gets no token")
        name = await asyncio.to_thread(name_of, uid)
        if name is None:
            raise NotTrusted(f"user id {uid} has no name on this machine")
        return self._user(name, uid, "claimed" if self.insecure_loopback else "local")

    # -- development ------------------------------------------------------------------------------

    def _claimed(self, metadata: Mapping[str, str]) -> Identity:
        if uri := metadata.get(ROLE_KEY):
            try:
                role = Role.parse(uri)
            except BadInput as error:
                raise NotTrusted(str(error)) from None
            return Identity(
                kind=role.kind, name=role.name, is_operator=role.kind == "operator", via="claimed"
            )
        name, uid = _claimed_user(metadata)
        if uid in UNMAPPED_UIDS:
            raise NotTrusted(f"user id {uid} is not a real account")
        return self._user(name, uid, "claimed")

    def _user(self, name: str, uid: int, via: str) -> Identity:
        operator = uid in {0, os.geteuid()} or name in self.operators
        return Identity(kind="user", name=name, uid=uid, is_operator=operator, via=via)


def _bearer(metadata: Mapping[str, str]) -> str:
    value = metadata.get(TOKEN_KEY, "")
    if not value.startswith(BEARER):
        raise NotTrusted("the call has no token: log in first")
    return value.removeprefix(BEARER)


def _claimed_user(metadata: Mapping[str, str]) -> tuple[str, int]:
    """The user name and id that a trusted caller claims."""
    name, uid = claimed_name(metadata), metadata.get(UID_KEY, "")
    if not name or not (uid.isascii() and uid.isdigit()):
        raise NotTrusted(f"the call does not name its user: {USER_KEY} and {UID_KEY}")
    return name, int(uid)
