"""Who may call what: one rule a method, one door that all calls pass.

A method without a rule is refused. What a rule cannot see (whose job it is) the handler asks
`require_owner`; everything else is decided here, before the handler runs.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

import grpc
from grpc import aio

from dlsched.core.errors import NotAllowed, NotTrusted
from dlsched.rpc.authentication import Authenticator
from dlsched.rpc.identity import Identity, Kind, identity_of, remember

__all__ = [
    "RULES",
    "AuthorisationInterceptor",
    "Rule",
    "require_operator",
    "require_owner",
]

log = logging.getLogger(__name__)
EVERYBODY: frozenset[Kind] = frozenset({"user", "node", "daemon", "operator", "login"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Who may call a method.

    `speaks_as` names the field of the message that must be the caller's own name.
    """

    name: str
    kinds: frozenset[Kind]
    operators_only: bool = False
    has_account: bool = False  # on the daemon's machine: jobs run as somebody
    speaks_as: str = ""

    def refusal(self, identity: Identity, method: str, request: Any) -> str | None:
        """Why not, in one line; None: go on."""
        short = method.rpartition("/")[2]
        if identity.kind not in self.kinds:
            return f"{short} is not for {identity}: {self.name} only"
        if self.operators_only and not identity.is_operator:
            return f"{short} is for operators only; {identity} is none"
        if self.has_account and identity.uid is None:
            return f"{short} is for users of the cluster; {identity} has no account there"
        if self.speaks_as and getattr(request, self.speaks_as) != identity.name:
            return f"{identity} cannot speak for node {getattr(request, self.speaks_as)}"
        return None


ANYONE = Rule(name="anyone who is known", kinds=EVERYBODY)
USER = Rule(name="users", kinds=frozenset({"user", "operator"}))
ACCOUNT = Rule(name="users", kinds=frozenset({"user"}), has_account=True)
OWNER = Rule(name="owner or operator", kinds=frozenset({"user", "operator"}))  # + require_owner
OPERATOR = Rule(name="operators", kinds=frozenset({"user", "operator"}), operators_only=True)
NODE = Rule(name="nodes", kinds=frozenset({"node"}), speaks_as="node")
PEER = Rule(name="nodes", kinds=frozenset({"node"}), speaks_as="asker")
DAEMON = Rule(name="the daemon", kinds=frozenset({"daemon"}))

RULES: dict[str, Rule] = {
    "/dlsched.v1.Control/Submit": ACCOUNT,
    "/dlsched.v1.Control/Queue": USER,
    "/dlsched.v1.Control/Show": USER,
    "/dlsched.v1.Control/History": USER,
    "/dlsched.v1.Control/Act": OWNER,
    "/dlsched.v1.Control/Update": OWNER,
    "/dlsched.v1.Control/Wait": USER,
    "/dlsched.v1.Control/Logs": OWNER,
    "/dlsched.v1.Control/Nodes": USER,
    "/dlsched.v1.Control/SetNodes": OPERATOR,
    "/dlsched.v1.Control/Status": USER,
    "/dlsched.v1.Control/Usage": USER,
    "/dlsched.v1.Control/SetPolicy": OPERATOR,
    "/dlsched.v1.Control/Reload": OPERATOR,
    "/dlsched.v1.Control/Snapshot": OPERATOR,
    "/dlsched.v1.Control/Calibration": USER,
    "/dlsched.v1.Control/Tenants": USER,
    "/dlsched.v1.Control/SetTenant": OPERATOR,
    "/dlsched.v1.Control/RemoveTenant": OPERATOR,
    "/dlsched.v1.Control/Speeds": USER,
    "/dlsched.v1.Control/SetSpeeds": OPERATOR,
    "/dlsched.v1.Control/ForgetSpeeds": OPERATOR,
    "/dlsched.v1.Control/CreateToken": OWNER,
    "/dlsched.v1.Control/ListTokens": OWNER,
    "/dlsched.v1.Control/RevokeToken": OWNER,
    "/dlsched.v1.Leader/Sync": NODE,
    "/dlsched.v1.Leader/Describe": NODE,
    "/dlsched.v1.Runs/Launch": NODE,
    "/dlsched.v1.Runs/Report": NODE,
    "/dlsched.v1.Runs/CommitCheckpoint": NODE,
    "/dlsched.v1.Agent/Nudge": DAEMON,
    "/dlsched.v1.Agent/Witness": PEER,
    "/dlsched.v1.Agent/Output": DAEMON,
    "/dlsched.v1.Agent/SendSignal": DAEMON,
    "/dlsched.v1.Agent/StartRanks": PEER,
    "/dlsched.v1.Agent/SignalRanks": PEER,
    "/grpc.health.v1.Health/Check": ANYONE,
    "/grpc.health.v1.Health/List": ANYONE,
    "/grpc.health.v1.Health/Watch": ANYONE,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": OPERATOR,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": OPERATOR,
}


def require_operator(context: Any, what: str) -> Identity:
    """The caller, who must be an operator.

    Raises:
        NotAllowed: naming what was refused.
    """
    identity = identity_of(context)
    if not identity.is_operator:
        raise NotAllowed(f"{what} is for operators only; {identity} is none")
    return identity


def require_owner(identity: Identity, owner: str, subject: str) -> None:
    """Refuse all but the owner of a job and operators.

    Args:
        identity: who asks.
        owner: the job's user.
        subject: as the user names it: "job 17".

    Raises:
        NotAllowed: saying whose it is.
    """
    if identity.is_operator or (identity.kind == "user" and identity.name == owner):
        return
    raise NotAllowed(f"{subject} belongs to {owner}, not to {identity}")


class AuthorisationInterceptor(aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """The one door: says who calls, applies the method's rule, and only then lets it in."""

    def __init__(self, authenticator: Authenticator, rules: Mapping[str, Rule] = RULES) -> None:
        """Take the means to tell callers apart, and the rules."""
        self._authenticator = authenticator
        self._rules = rules
        self._doors: dict[str, tuple[Any, Any]] = {}

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """The method's handler behind the door."""
        method = handler_call_details.method
        handler = await continuation(handler_call_details)
        if handler is None:
            return None  # not known here; gRPC says so
        held = self._doors.get(method)
        if held is None or held[0] is not handler:
            held = self._doors[method] = (handler, self._behind_door(method, handler))
        return held[1]

    def _behind_door(self, method: str, handler: Any) -> Any:
        codecs = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }

        async def one(request: Any, context: Any) -> Any:
            await self._admit(method, request, context)
            answer = inner(request, context)
            return await answer if isawaitable(answer) else answer

        async def many(request: Any, context: Any) -> AsyncIterator[Any]:
            await self._admit(method, request, context)
            answers = inner(request, context)
            if isawaitable(answers):  # it writes by itself
                await answers
                return
            async with aclosing(answers):
                async for answer in answers:
                    yield answer

        if handler.request_streaming and self._rules.get(method, ANYONE).speaks_as:
            raise TypeError(f"{method}: a stream of requests has no one message to speak in")
        if handler.request_streaming and handler.response_streaming:
            inner = handler.stream_stream
            return grpc.stream_stream_rpc_method_handler(many, **codecs)
        if handler.request_streaming:
            inner = handler.stream_unary
            return grpc.stream_unary_rpc_method_handler(one, **codecs)
        if handler.response_streaming:
            inner = handler.unary_stream
            return grpc.unary_stream_rpc_method_handler(many, **codecs)
        inner = handler.unary_unary
        return grpc.unary_unary_rpc_method_handler(one, **codecs)

    async def _admit(self, method: str, request: Any, context: Any) -> None:
        rule = self._rules.get(method)
        if rule is None:
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED, f"{method} has no authorisation rule"
            )
            return
        try:
            identity = await self._authenticator.identify(context)
        except NotTrusted as error:
            log.warning("call-refused method=%s peer=%s why=%s", method, context.peer(), error)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, str(error))
            return
        why = rule.refusal(identity, method, request)
        if why is not None:
            log.warning("call-refused method=%s caller=%s why=%s", method, identity, why)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        remember(context, identity)
