"""Who speaks: the roles that certificates carry, and the identity behind one call.

An identity comes from what the transport proves (a certificate, a token, the peer of a socket),
never from a field of a message. A handler that asks for it outside an authorised call gets an
error, not a default.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from dlsched.core.errors import BadInput, InvariantBroken

__all__ = [
    "DAEMON",
    "NOBODY",
    "SUFFIX",
    "Identity",
    "Kind",
    "Role",
    "identity_of",
    "login",
    "node",
    "operator",
    "remember",
]

Kind = Literal["user", "node", "daemon", "operator", "login"]

SCHEME = "dlsched://"
SUFFIX = "dlsched.internal"  # `.internal` is never delegated; the names are for certificates only
NOBODY = frozenset({65534, 2**32 - 1})  # "nobody" and unmapped ids: no one in particular
NAMED = ("node", "login", "operator")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
LOWER = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Role:
    """What a certificate lets its holder be."""

    kind: Kind
    name: str = ""

    def __post_init__(self) -> None:
        if self.kind == "daemon" and not self.name:
            return
        # servers are told apart by a DNS name, which has no capitals
        wanted = LOWER if self.kind == "node" else NAME
        if self.kind not in NAMED or not wanted.fullmatch(self.name):
            small = "small letters" if self.kind == "node" else "letters"
            raise BadInput(
                f"{self.kind} name {self.name!r}: up to 63 {small}, digits, '.', '_' and '-', "
                "the first a letter or digit"
            )

    @property
    def uri(self) -> str:
        """As the certificate carries it, for the server to read."""
        return SCHEME + str(self)

    @property
    def host(self) -> str:
        """The name in the certificate that a client insists on; no address has it."""
        return f"{self.name}.{self.kind}.{SUFFIX}" if self.name else f"{self.kind}.{SUFFIX}"

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}" if self.name else self.kind

    @classmethod
    def parse(cls, uri: str) -> Role:
        """The role in a URI.

        Raises:
            BadInput: when it is none.
        """
        kind, slash, name = uri.removeprefix(SCHEME).partition("/")
        if uri.startswith(SCHEME):
            if kind == "daemon" and not slash:
                return DAEMON
            for known in NAMED:
                if kind == known:
                    return cls(known, name)  # type: ignore[arg-type]  # one of NAMED
        raise BadInput(f"{uri!r} is no role: dlsched://daemon or dlsched://node/NAME, …")


DAEMON = Role("daemon")


def node(name: str) -> Role:
    """The role of a node's agent."""
    return Role("node", name)


def login(name: str) -> Role:
    """The role of a login node, which vouches for its users."""
    return Role("login", name)


def operator(name: str) -> Role:
    """The role of an operator at a distance."""
    return Role("operator", name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who asks, as far as the transport proves it."""

    kind: Kind
    name: str
    uid: int | None = None  # on the daemon's machine; None: not a local account
    is_operator: bool = False
    via: str = ""  # how it was proven: local, token, certificate, login/NAME, claimed

    def __str__(self) -> str:
        return self.name if self.kind == "user" else f"{self.kind} {self.name}".rstrip()


_CURRENT: ContextVar[tuple[object, Identity] | None] = ContextVar("dlsched_identity", default=None)


def remember(context: object, identity: Identity) -> None:
    """Note who asks, for the rest of this call."""
    _CURRENT.set((context, identity))


def identity_of(context: Any) -> Identity:
    """Who asks in this call.

    Raises:
        InvariantBroken: when the call did not pass the authorisation interceptor.
    """
    held = _CURRENT.get()
    if held is None or held[0] is not context:
        raise InvariantBroken("a call reached its handler without passing authorisation")
    return held[1]
