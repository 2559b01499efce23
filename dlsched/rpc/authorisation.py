"""Authorisation: one rule for each method, applied to every call before its handler.

A method without a rule is refused. Only a handler knows the owner of a job, so it calls
`require_owner`; everything else is decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dlsched.core.errors import NotAllowed
from dlsched.rpc.identity import Identity, Kind

EVERY_KIND: frozenset[Kind] = frozenset({"user", "node", "daemon", "operator", "login"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The callers that may use a method.

    `speaks_as` names the field of the message that must contain the caller's own name.
    """

    name: str
    kinds: frozenset[Kind]
    operators_only: bool = False
    has_account: bool = False  # on the daemon's machine, as which jobs run
    speaks_as: str = ""

    def refusal(self, identity: Identity, method: str) -> str | None:
        """Why a call is refused, in one line; None: its message may be read."""
        short = method.rpartition("/")[2]
        if identity.kind not in self.kinds:
            return f"{short} is not for {identity}: {self.name} only"
        if self.operators_only and not identity.is_operator:
            return f"{short} is for operators only; {identity} is none"
        if self.has_account and identity.uid is None:
            return f"{short} is for users of the cluster; {identity} has no account there"
        return None

    def misspoken(self, identity: Identity, request: Any) -> str | None:
        """Why a message is refused, in one line: it names another speaker; None: it is allowed."""
        if self.speaks_as and getattr(request, self.speaks_as) != identity.name:
            return f"{identity} cannot speak for node {getattr(request, self.speaks_as)}"
        return None


ANYONE = Rule(name="anyone who is known", kinds=EVERY_KIND)
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
    "/dlsched.v1.Control/Attach": OWNER,
    "/dlsched.v1.Control/Forward": OWNER,
    "/dlsched.v1.Control/Metrics": OWNER,
    "/dlsched.v1.Control/Sweep": OWNER,
    "/dlsched.v1.Control/Tasks": OWNER,
    "/dlsched.v1.Control/Nodes": USER,
    "/dlsched.v1.Control/SetNodes": OPERATOR,
    "/dlsched.v1.Control/Status": USER,
    "/dlsched.v1.Control/Usage": USER,
    "/dlsched.v1.Control/Checkpoints": USER,
    "/dlsched.v1.Control/SetPolicy": OPERATOR,
    "/dlsched.v1.Control/Reload": OPERATOR,
    "/dlsched.v1.Control/Snapshot": OPERATOR,
    "/dlsched.v1.Control/WhatIf": USER,
    "/dlsched.v1.Control/SetShadow": OPERATOR,
    "/dlsched.v1.Control/Shadow": USER,
    "/dlsched.v1.Control/Calibration": USER,
    "/dlsched.v1.Control/Orphans": OPERATOR,
    "/dlsched.v1.Control/ConfirmOver": OPERATOR,
    "/dlsched.v1.Control/Audit": OPERATOR,
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
    "/dlsched.v1.Runs/ExchangeTasks": NODE,
    "/dlsched.v1.Agent/Nudge": DAEMON,
    "/dlsched.v1.Agent/Witness": PEER,
    "/dlsched.v1.Agent/Output": DAEMON,
    "/dlsched.v1.Agent/SendSignal": DAEMON,
    "/dlsched.v1.Agent/Attach": DAEMON,
    "/dlsched.v1.Agent/Forward": DAEMON,
    "/dlsched.v1.Agent/DeleteCheckpoints": DAEMON,
    "/dlsched.v1.Agent/StartRanks": PEER,
    "/dlsched.v1.Agent/SignalRanks": PEER,
    "/grpc.health.v1.Health/Check": ANYONE,
    "/grpc.health.v1.Health/List": ANYONE,
    "/grpc.health.v1.Health/Watch": ANYONE,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": OPERATOR,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": OPERATOR,
}


def require_owner(identity: Identity, owner: str, subject: str) -> None:
    """Refuse all but the owner of a job and operators; the message has `subject` ("job 17").

    Raises:
        NotAllowed: naming the owner.
    """
    if identity.is_operator or (identity.kind == "user" and identity.name == owner):
        return
    raise NotAllowed(f"{subject} belongs to {owner}, not to {identity}")


def require_reader(identity: Identity, owner: str, subject: str, *, shared: bool) -> None:
    """Refuse those who may not use what a job has saved: all but its owner and operators.

    `shared` says that the site lets the caller use it, too.

    Raises:
        NotAllowed: naming the owner.
    """
    if not shared:
        require_owner(identity, owner, subject)
