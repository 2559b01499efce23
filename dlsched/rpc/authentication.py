"""From the transport of a call to an identity.

What proves it depends on how the call came in: a certificate on mutual TLS, a remote token on TLS
without one, a local token on the unix socket. On the development ports (loopback only) it is what
the caller claims. Nothing here looks at the message.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from collections.abc import Mapping
from typing import Any

from dlsched.core.errors import BadInput, NotTrusted
from dlsched.rpc.identity import NOBODY, Identity, Role
from dlsched.rpc.metadata import BEARER, ROLE_KEY, TOKEN_KEY, UID_KEY, USER_KEY
from dlsched.rpc.tls import DenyList, PeerCertificate, read_certificate
from dlsched.rpc.tokens import LocalTokens, TokenStore, check_remote

__all__ = ["ROLE_KEY", "TOKEN_KEY", "UID_KEY", "USER_KEY", "Authenticator"]


def _account(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


class Authenticator:
    """Says who calls, or refuses."""

    def __init__(
        self,
        *,
        insecure_loopback: bool,
        local: LocalTokens | None,
        remote: TokenStore | None,
        denied: DenyList,
        operators: frozenset[str],
    ) -> None:
        """Take what identities are checked against.

        Args:
            insecure_loopback: believe what callers claim; the ports see to it that they are local.
            local: tokens of the login socket.
            remote: where tokens for users at a distance are recorded.
            denied: certificates.
            operators: names of users who are operators, beside root and the daemon's own user.
        """
        self._insecure = insecure_loopback
        self._local = local
        self._remote = remote
        self._denied = denied
        self._operators = operators

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    async def identify(self, context: Any) -> Identity:
        """Who calls.

        Raises:
            NotTrusted: when that is not proven.
        """
        security = context.auth_context()
        metadata = {
            key: value if isinstance(value, str) else ""
            for key, value in context.invocation_metadata() or ()
        }
        if certificates := security.get("x509_pem_cert"):
            return await self._certified(certificates[0], metadata)
        kind = security.get("transport_security_type")
        if list(kind or ()) == [b"ssl"]:
            return await self._at_a_distance(metadata)
        if self._insecure:
            return self._claimed(metadata)
        if context.peer().startswith("unix:"):
            return self._on_this_machine(metadata)
        raise NotTrusted("this port needs TLS")

    # -- certificates -----------------------------------------------------------------------------

    async def _certified(self, pem: bytes, metadata: Mapping[str, str]) -> Identity:
        found = read_certificate(pem)
        found.check(self.now())  # a connection may outlive its certificate
        if found.serial in self._denied:
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
        """A login node's word for one of its users, who is never an operator."""
        if USER_KEY not in metadata:
            return Identity(kind="login", name=found.role.name, via="certificate")
        name, uid = _told(metadata)
        if uid == 0 or uid in NOBODY:
            raise NotTrusted(f"{found.role} cannot speak for user id {uid}")
        here = await asyncio.to_thread(_account, name)
        if here != uid:
            known = "is not known here" if here is None else f"has user id {here} here"
            raise NotTrusted(f"{found.role} speaks for {name} with user id {uid}; {name} {known}")
        return Identity(kind="user", name=name, uid=uid, via=str(found.role))

    # -- tokens -----------------------------------------------------------------------------------

    async def _at_a_distance(self, metadata: Mapping[str, str]) -> Identity:
        if self._remote is None:
            raise NotTrusted("this server takes no tokens from a distance")
        record = await check_remote(_bearer(metadata), self._remote, self.now())
        uid = await asyncio.to_thread(_account, record.user)
        if uid == 0 or uid in NOBODY:
            raise NotTrusted(f"{record.user} cannot use dlsched from a distance")
        return Identity(
            kind="user",
            name=record.user,
            uid=uid,
            is_operator=record.user in self._operators,
            via="token",
        )

    def _on_this_machine(self, metadata: Mapping[str, str]) -> Identity:
        if self._local is None:
            raise NotTrusted("this server takes no local tokens")
        user = self._local.check(_bearer(metadata))
        return self._user(user.name, user.uid, "local")

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
        name, uid = _told(metadata)
        if uid in NOBODY:
            raise NotTrusted(f"user id {uid} is nobody in particular")
        return self._user(name, uid, "claimed")

    def _user(self, name: str, uid: int, via: str) -> Identity:
        operator = uid in {0, os.geteuid()} or name in self._operators
        return Identity(kind="user", name=name, uid=uid, is_operator=operator, via=via)


def _bearer(metadata: Mapping[str, str]) -> str:
    value = metadata.get(TOKEN_KEY, "")
    if not value.startswith(BEARER):
        raise NotTrusted("no token came with the call: log in first")
    return value.removeprefix(BEARER)


def _told(metadata: Mapping[str, str]) -> tuple[str, int]:
    """The name and user id that a trusted caller tells."""
    name, uid = metadata.get(USER_KEY, ""), metadata.get(UID_KEY, "")
    if not name or not (uid.isascii() and uid.isdigit()):
        raise NotTrusted(f"the call does not say for whom: {USER_KEY} and {UID_KEY}")
    return name, int(uid)
