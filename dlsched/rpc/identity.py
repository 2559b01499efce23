"""The roles in certificates, and the identity of a call's caller.

An identity comes from what the transport proves (a certificate, a token, the peer of a socket),
never from a field of a message. Outside an authorised call there is none, and asking is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from dlsched.core.errors import BadInput, InvariantBroken

if TYPE_CHECKING:
    import grpc

Kind = Literal["user", "node", "daemon", "operator", "login"]

# the metadata that identifies the caller of a call
TOKEN_KEY = "authorization"
USER_KEY = "dlsched-user"
UID_KEY = "dlsched-uid"
ROLE_KEY = "dlsched-role"
BEARER = "Bearer "

SCHEME = "dlsched://"
SUFFIX = "dlsched.internal"  # `.internal` is never delegated; the names are for certificates only
UNMAPPED_UIDS = frozenset(
    {65534, 2**32 - 1}
)  # the account of that purpose, and ids without a mapping
NAMED = ("node", "login", "operator")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
LOWER = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Role:
    """The role of a certificate's holder."""

    kind: Kind
    name: str = ""

    def __post_init__(self) -> None:
        if self.kind == "daemon" and not self.name:
            return
        # a server's role is also a DNS name, which has no capitals
        wanted = LOWER if self.kind == "node" else NAME
        if self.kind not in NAMED or not wanted.fullmatch(self.name):
            small = "small letters" if self.kind == "node" else "letters"
            raise BadInput(
                f"{self.kind} name {self.name!r}: up to 63 {small}, digits, '.', '_' and '-', "
                "the first a letter or digit"
            )

    @property
    def uri(self) -> str:
        """The URI in the certificate, which the server reads."""
        return SCHEME + str(self)

    @property
    def host(self) -> str:
        """The DNS name in the certificate, which a client requires; it has no address."""
        return f"{self.name}.{self.kind}.{SUFFIX}" if self.name else f"{self.kind}.{SUFFIX}"

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}" if self.name else self.kind

    @classmethod
    def parse(cls, uri: str) -> Role:
        """The role in a URI.

        Raises:
            BadInput: it is not a role.
        """
        kind, slash, name = uri.removeprefix(SCHEME).partition("/")
        if uri.startswith(SCHEME):
            if kind == "daemon" and not slash:
                return DAEMON
            for known in NAMED:
                if kind == known:
                    return cls(known, name)  # type: ignore[arg-type]  # one of NAMED
        raise BadInput(f"{uri!r} is not a role: dlsched://daemon or dlsched://node/NAME, …")


DAEMON = Role("daemon")


def node(name: str) -> Role:
    """The role of a node's agent."""
    return Role("node", name)


def login(name: str) -> Role:
    """The role of a login node, which vouches for its users."""
    return Role("login", name)


def operator(name: str) -> Role:
    """The role of an operator on another machine."""
    return Role("operator", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The caller of a call, as the transport proves it."""

    kind: Kind
    name: str
    uid: int | None = None  # on the daemon's machine; None: not a local account
    is_operator: bool = False
    via: str = ""  # how it was proven: local, token, certificate, login/NAME, claimed

    def __str__(self) -> str:
        return self.name if self.kind == "user" else f"{self.kind} {self.name}".rstrip()


class Call(Protocol):
    """What is known of a call that is answered: gRPC's context, or that of a local call."""

    def peer(self) -> str:
        """The other end, as gRPC names it."""

    def add_done_callback(self, callback: Callable[[object], None], /) -> None:
        """Call this with the call when it has ended."""

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """End the call with one line."""


_CURRENT: ContextVar[tuple[object, Identity] | None] = ContextVar("dlsched_identity", default=None)


def user_claim(name: str, uid: int) -> tuple[tuple[str, str], ...]:
    """The metadata in which a trusted caller names its user; gRPC takes only ASCII there."""
    if not name.isascii() or "%" in name:
        from urllib.parse import quote  # noqa: PLC0415  # few names need it

        name = quote(name, errors="replace")
    return (USER_KEY, name), (UID_KEY, str(uid))


def claimed_name(metadata: Mapping[str, str]) -> str:
    """The name of the user in such metadata; empty: there is none."""
    name = metadata.get(USER_KEY, "")
    if "%" in name:
        from urllib.parse import unquote  # noqa: PLC0415  # few names need it

        name = unquote(name)
    return name


def remember(context: object, identity: Identity) -> None:
    """Store the caller for the rest of this call."""
    _CURRENT.set((context, identity))


def current_caller() -> str:
    """The user whose call this is, or the node; empty outside of calls."""
    held = _CURRENT.get()
    return "" if held is None else str(held[1])


def identity_of(context: object) -> Identity:
    """The caller of this call.

    Raises:
        InvariantBroken: the call did not pass the authorisation interceptor.
    """
    held = _CURRENT.get()
    if held is None or held[0] is not context:
        raise InvariantBroken("a call reached its handler without passing authorisation")
    return held[1]
