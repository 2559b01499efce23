"""What `sacctmgr add`, `modify` and `delete` change, as changes of dlsched's tenants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlsched.cli.slurm.accounts.listed import ROOT, Tenants, accounts_of
from dlsched.client.daemon_client import Client
from dlsched.client.submission.durations import duration
from dlsched.client.submission.texts import whole_number
from dlsched.core.errors import BadInput, DlschedError, shorten
from dlsched.rpc.v1 import control_pb2

MOST = 1_000_000_000
NOT_KEPT = {"description", "organization"}  # in Slurm texts alone
Change = tuple[str, str, str]  # a name as typed, `=`, `+=` or `-=`, a value


@dataclass
class Tenant:
    """One tenant and what of it is set; a name without a value takes the value back."""

    kind: str
    message: Any
    create: bool
    fields: set[str] = field(default_factory=set)

    def set(self, name: str, value: Any) -> None:
        """Set a value; None takes it back."""
        self.fields.add(name)
        if isinstance(value, list):
            del getattr(self.message, name)[:]
            getattr(self.message, name).extend(value)
        elif value is None:
            self.message.ClearField(name)
        else:
            setattr(self.message, name, value)


class Changes:
    """Changes of tenants that are made one after another, once they are agreed to."""

    def __init__(self) -> None:
        self._steps: list[Callable[[Client], object]] = []
        self.noted: set[str] = set()  # words that are taken and not kept

    def put(self, tenant: Tenant) -> None:
        """Add or change a tenant."""
        whole = control_pb2.Tenant()
        getattr(whole, tenant.kind).CopyFrom(tenant.message)
        getattr(whole, tenant.kind).SetInParent()
        fields, create = sorted(tenant.fields), tenant.create
        if fields or create:
            self._steps.append(lambda cluster: cluster.set_tenant(whole, fields, create=create))

    def remove(self, kind: str, name: str) -> None:
        """Remove a tenant."""
        self._steps.append(lambda cluster: cluster.remove_tenant(kind, name))

    def __bool__(self) -> bool:
        return bool(self._steps)

    def make(self, cluster: Client) -> None:
        """Make the changes."""
        for step in self._steps:
            step(cluster)


def _whole(word: str, text: str) -> int | None:
    return None if text in ("-1", "") else whole_number(word, text, most=MOST)


def _number(word: str, text: str) -> float | None:
    if text in ("-1", ""):
        return None
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{word}: {shorten(text)!r} is not a number") from None


def _gpus(word: str, text: str) -> int | None:
    """The GPUs of `gres/gpu=4`, which is all that is limited here."""
    name, _, count = text.partition("=")
    if name.lower() != "gres/gpu":
        raise BadInput(f"{word}: {shorten(text)!r}: only gres/gpu=N is limited here")
    return _whole(word, count)


def _gpu_hours(word: str, text: str) -> float | None:
    minutes = _gpus(word, text)
    return None if minutes is None else minutes / 60


def _minutes(word: str, text: str) -> float | None:
    return None if text in ("-1", "") else duration(word, text)


def _seconds(word: str, text: str) -> float | None:
    return None if text in ("-1", "") else duration(word, text, bare="seconds")


def _text(word: str, text: str) -> str:
    return text


Reader = Callable[[str, str], Any]
# by Slurm's names in small letters: the field of a tenant, and how its value is read
_LIMITS: dict[str, tuple[str, Reader]] = {
    "grptres": ("gpus", _gpus),
    "grptresmins": ("gpu_hours", _gpu_hours),
    **dict.fromkeys(("grpsubmit", "grpsubmitjobs"), ("jobs", _whole)),
}
_OF_USER: dict[str, tuple[str, Reader]] = {"defaultaccount": ("account", _text)}
_LIMITS_OF_USER = _LIMITS | dict.fromkeys(("maxsubmit", "maxsubmitjobs"), ("jobs", _whole))
_OF_ACCOUNT: dict[str, tuple[str, Reader]] = {
    "parent": ("parent", lambda word, text: "" if text == ROOT else text),
    **dict.fromkeys(("fairshare", "share", "shares"), ("weight", _number)),
}
_OF_QOS: dict[str, tuple[str, Reader]] = {
    "priority": ("priority", _number),
    "gracetime": ("grace_s", _seconds),
    "preempt": ("preempts", _text),
    "grptres": ("gpus", _gpus),
    **dict.fromkeys(("grpsubmit", "grpsubmitjobs"), ("jobs", _whole)),
    **dict.fromkeys(("maxwall", "maxwalldurationperjob"), ("max_time_s", _minutes)),
    **dict.fromkeys(("maxtrespu", "maxtresperuser"), ("gpus_per_user", _gpus)),
    **dict.fromkeys(
        ("maxsubmitpu", "maxsubmitjobspu", "maxsubmitjobsperuser"), ("jobs_per_user", _whole)
    ),
}
_Table = Mapping[str, tuple[str, Reader]]
_FIELDS: Mapping[str, _Table] = {"user": _OF_USER, "account": _OF_ACCOUNT, "qos": _OF_QOS}
_QUOTAS: Mapping[str, _Table] = {"user": _LIMITS_OF_USER, "account": _LIMITS, "qos": {}}
_MESSAGES = {
    "user": ("user", control_pb2.TenantUser),
    "account": ("account", control_pb2.TenantAccount),
    "qos": ("class", control_pb2.TenantClass),
}


def settle(
    changes: Changes, tenants: Tenants, kind: str, name: str, wanted: Sequence[Change]
) -> Tenant:
    """Read what is set of one user, account or QOS, with its limits; return the tenant.

    The caller puts it; a quota that is to follow is returned by `quota_of`.

    Raises:
        BadInput: a name without a counterpart, or a malformed value.
    """
    of, message = _MESSAGES[kind]
    before = tenants.of(of).get(name)
    tenant = Tenant(of, message(name=name), create=before is None)
    for word, sign, value in wanted:
        low = word.lower()
        if low in _QUOTAS[kind]:
            continue
        if low in NOT_KEPT:
            changes.noted.add(word)
            continue
        if low not in _FIELDS[kind]:
            known = ", ".join(sorted({*_FIELDS[kind], *_QUOTAS[kind]}))
            raise BadInput(f"{word}: nothing here corresponds to it; known: {known}")
        target, read = _FIELDS[kind][low]
        if target == "preempts":
            tenant.set(target, _list(sign, value, [] if before is None else before.preempts))
        elif sign == "=":
            tenant.set(target, read(word, value))
        else:
            raise BadInput(f"{word}{sign}: only {word}= is known")
    return tenant


def _list(sign: str, value: str, before: Sequence[str]) -> list[str]:
    names = [name for name in value.split(",") if name]
    if sign == "+=":
        return list(dict.fromkeys((*before, *names)))
    return names if sign == "=" else [name for name in before if name not in names]


def put_quota(
    changes: Changes, tenants: Tenants, kind: str, name: str, wanted: Sequence[Change]
) -> None:
    """Change the limits of a user or account, as far as some are given."""
    key = f"{kind} {name}"
    before = tenants.of("quota").get(key)
    quota = Tenant("quota", control_pb2.TenantQuota(kind=kind, name=name), create=before is None)
    for word, _, value in wanted:
        if word.lower() in _QUOTAS[kind]:
            target, read = _QUOTAS[kind][word.lower()]
            quota.set(target, read(word, value))
    left = control_pb2.TenantQuota()
    if before is not None:
        left.CopyFrom(before)
    for name_ in quota.fields:
        left.ClearField(name_)
    left.MergeFrom(quota.message)
    if quota.fields and any(map(left.HasField, ("gpus", "jobs", "gpu_hours"))):
        changes.put(quota)
    elif quota.fields and before is not None:
        changes.remove("quota", key)  # a quota without a limit is none


def remove_user(changes: Changes, tenants: Tenants, name: str, accounts: Sequence[str]) -> None:
    """Remove a user, or only from some accounts.

    Raises:
        DlschedError: one of them is the usual account of a user that has others.
    """
    user = tenants.of("user")[name]
    left = [each for each in accounts_of(user) if each not in accounts]
    if accounts and left:
        if user.account in accounts:
            raise DlschedError(
                f"{name}: {user.account} is the default account; set DefaultAccount first"
            )
        tenant = Tenant("user", control_pb2.TenantUser(name=name), create=False)
        tenant.set("accounts", [each for each in left if each != user.account])
        changes.put(tenant)
        return
    if f"user {name}" in tenants.of("quota"):
        changes.remove("quota", f"user {name}")
    changes.remove("user", name)


def remove_account(changes: Changes, tenants: Tenants, name: str, together: Sequence[str]) -> None:
    """Remove an account that no user is in and no other account is below.

    Raises:
        DlschedError: there are some.
    """
    inside = [
        f"user {user.name}" for user in tenants.of("user").values() if name in accounts_of(user)
    ]
    inside += [
        f"account {each.name}"
        for each in tenants.of("account").values()
        if each.parent == name and each.name not in together
    ]
    if inside:
        raise DlschedError(f"account {name} has {', '.join(inside[:5])}; nothing is deleted")
    if f"account {name}" in tenants.of("quota"):
        changes.remove("quota", f"account {name}")
    changes.remove("account", name)
