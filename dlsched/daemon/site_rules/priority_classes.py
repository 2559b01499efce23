"""Priority classes: which one a job is in, which jobs may be in it, and what it limits.

A class limits the GPUs and jobs of all its jobs and of each user in it, as quotas do, and time
limits and grace times when a job is submitted. What it counts in the order and which classes it may
preempt is the policy's part.
"""

from __future__ import annotations

from collections.abc import Mapping

from dlsched.client.submission.durations import duration_text
from dlsched.core.errors import BadInput, NotAllowed, not_known
from dlsched.tenants.fields import PriorityClass

NORMAL = "normal"  # the class that is always there, as in Slurm


def default_class(classes: Mapping[str, PriorityClass]) -> str:
    """The class of a job that names none; empty where none is the default."""
    return next((each.name for each in classes.values() if each.is_default), "")


def check_class(wanted: PriorityClass, classes: Mapping[str, PriorityClass]) -> None:
    """Refuse a second default.

    Raises:
        BadInput: one line that says which is the default already.
    """
    other = default_class({n: each for n, each in classes.items() if n != wanted.name})
    if wanted.is_default and other:
        raise BadInput(f"class {wanted.name}: class {other} is the default already")


def class_for(
    classes: Mapping[str, PriorityClass], wanted: str, *, user: str, account: str, operator: bool
) -> PriorityClass:
    """The class of a job; a nameless one where it names none and none is the default.

    On a site that has no class of its own, any name is one without limits, as in Slurm.

    Args:
        classes: by name.
        wanted: what the job says; empty: the default.
        user: whose job it is.
        account: its account.
        operator: may use any class.

    Raises:
        BadInput: there is no class of that name.
        NotAllowed: it is not for this user or account.
    """
    name = wanted or default_class(classes)
    if not name:
        return PriorityClass(name="")
    if name not in classes and classes.keys() <= {NORMAL}:
        return PriorityClass(name=name)
    if name not in classes:
        raise not_known("InvalidQOS: priority class", name, classes)
    found = classes[name]
    listed = bool(found.users or found.accounts)
    if listed and user not in found.users and account not in found.accounts and not operator:
        whose = [f"user {each}" for each in found.users]
        whose += [f"account {each}" for each in found.accounts]
        raise NotAllowed(f"InvalidQOS: priority class {name} is for {', '.join(whose)} only")
    return found


def check_time(found: PriorityClass, limit_s: float | None) -> float | None:
    """A job's time limit within its class, which is also the limit of a job that names none.

    Raises:
        BadInput: it is longer than the class allows.
    """
    most = found.max_time_s
    if most is not None and limit_s is not None and limit_s > most:
        raise BadInput(
            f"QOSMaxWallDurationPerJobLimit: time limit {duration_text(limit_s)} is above priority "
            f"class {found.name}'s, {duration_text(most)}"
        )
    return most if limit_s is None else limit_s


def check_grace(found: PriorityClass, grace_s: float | None) -> float | None:
    """A job's grace time within its class, whose own it is where the job names none.

    Raises:
        BadInput: it is longer than the class gives.
    """
    most = found.grace_s
    if most is not None and grace_s is not None and grace_s > most:
        raise BadInput(f"grace: {grace_s:g} s is above priority class {found.name}'s, {most:g} s")
    return most if grace_s is None else grace_s
