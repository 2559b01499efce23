"""Authorisation: one rule for each method, applied to every call before its handler.

A method without a rule is refused. Only a handler knows the owner of a job, so it calls
`require_owner`; everything else is decided here.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.core.errors import NotAllowed
from dlsched.rpc.identity import Identity, Kind

EVERY_KIND: frozenset[Kind] = frozenset({"user", "node", "daemon", "operator", "login"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The callers that may use a method.

    `speaks_as` names the field of the message that must contain the caller's own name, `what`
    says what the method does, as a refused user reads it.
    """

    name: str
    kinds: frozenset[Kind]
    operators_only: bool = False
    has_account: bool = False  # on the daemon's machine, as which jobs run
    speaks_as: str = ""
    what: str = ""  # empty: the name of the method

    def refusal(self, identity: Identity, method: str) -> str | None:
        """Why a call is refused, in one line; None: its message may be read."""
        what = self.what or method.rpartition("/")[2]
        if identity.kind not in self.kinds:
            return f"{what} is not for {identity}: {self.name} only"
        if self.operators_only and not identity.is_operator:
            return f"{what} is for operators only; {identity} is none"
        if self.has_account and identity.uid is None:
            return f"{what} is for users of the cluster; {identity} has no account there"
        return None

    def misspoken(self, identity: Identity, request: object) -> str | None:
        """Why a message is refused, in one line: it names another speaker; None: it is allowed."""
        if self.speaks_as and getattr(request, self.speaks_as) != identity.name:
            return f"{identity} cannot speak for node {getattr(request, self.speaks_as)}"
        return None


ANYONE = Rule(name="anyone who is known", kinds=EVERY_KIND)
USER = Rule(name="users", kinds=frozenset({"user", "operator"}))
SUBMIT = Rule(name="users", kinds=frozenset({"user"}), has_account=True, what="submitting jobs")
OWNER = Rule(name="owner or operator", kinds=frozenset({"user", "operator"}))  # + require_owner
NODE = Rule(name="nodes", kinds=frozenset({"node"}), speaks_as="node")
PEER = Rule(name="nodes", kinds=frozenset({"node"}), speaks_as="asker")
DAEMON = Rule(name="the daemon", kinds=frozenset({"daemon"}))


def _operators(what: str) -> Rule:
    """For operators only; others are told so of `what`."""
    kinds: frozenset[Kind] = frozenset({"user", "operator"})
    return Rule(name="operators", kinds=kinds, operators_only=True, what=what)


RULES: dict[str, Rule] = {
    "/dlsched.v1.Control/Submit": SUBMIT,
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
    "/dlsched.v1.Control/SetNodes": _operators("changing nodes"),
    "/dlsched.v1.Control/Status": USER,
    "/dlsched.v1.Control/Usage": USER,
    "/dlsched.v1.Control/Checkpoints": USER,
    "/dlsched.v1.Control/SetPolicy": _operators("changing the policy"),
    "/dlsched.v1.Control/Reload": _operators("reloading the configuration"),
    "/dlsched.v1.Control/Snapshot": _operators("taking a snapshot"),
    "/dlsched.v1.Control/WhatIf": USER,
    "/dlsched.v1.Control/SetShadow": _operators("changing the shadow policy"),
    "/dlsched.v1.Control/Shadow": USER,
    "/dlsched.v1.Control/Calibration": USER,
    "/dlsched.v1.Control/Orphans": _operators("listing orphans"),
    "/dlsched.v1.Control/ConfirmOver": _operators("confirming that jobs are over"),
    "/dlsched.v1.Control/Audit": _operators("reading the audit"),
    "/dlsched.v1.Control/Tenants": USER,
    "/dlsched.v1.Control/SetTenant": _operators("changing tenants"),
    "/dlsched.v1.Control/RemoveTenant": _operators("removing tenants"),
    "/dlsched.v1.Control/Speeds": USER,
    "/dlsched.v1.Control/SetSpeeds": _operators("changing known speeds"),
    "/dlsched.v1.Control/ForgetSpeeds": _operators("forgetting known speeds"),
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
    "/dlsched.v1.Agent/HoldRanks": PEER,
    "/dlsched.v1.Agent/SignalRanks": PEER,
    "/grpc.health.v1.Health/Check": ANYONE,
    "/grpc.health.v1.Health/List": ANYONE,
    "/grpc.health.v1.Health/Watch": ANYONE,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": _operators("listing methods"),
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": _operators("listing methods"),
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
