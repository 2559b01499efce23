"""Limits on the GPUs that jobs may have at once which belong together: of a class, of a user in it.

A limit has a holder: what it is a limit of, and its name. The GPUs of jobs that run count against
all their holders, those of jobs that wait against none. A round gives a job GPUs only if each of
its holders has room for it then (`core/walk/room_under_limits.py`); one that needs less may pass
one that needs more. Both worlds decide by the same rounds, so both keep limits in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.errors import plural
from dlsched.tenants.fields import PriorityClass

T = TypeVar("T")
Holder = tuple[str, str]  # kind (user, account, vc, class) and name
EACH_USER = "class user"  # the kind of a limit on each user in a class: "urgent ann" has the name
EVERY_USER = "*"  # the name of a limit on every user that has none of its own
ROUNDED = 1e-9  # of a GPU: ten tenths must make one
REASONS = {  # in Slurm's words
    "user": "QOSMaxGRESPerUser",
    "account": "AssocGrpGRES",
    "vc": "QOSGrpGRES",
    "class": "QOSGrpGRES",
    EACH_USER: "QOSMaxGRESPerUser",
}


def holders_of(
    limits: Container[Holder],
    parents: Mapping[str, str],
    user: str,
    account: str,
    vc: str,
    priority_class: str,
) -> tuple[Holder, ...]:
    """The holders of all limits that a job counts against.

    Args:
        limits: by holder; of each user in a class under the class's name.
        parents: of accounts; a limit holds for all below.
        user: of the job.
        account: likewise.
        vc: likewise, its virtual cluster.
        priority_class: likewise.
    """
    found: list[Holder] = []
    if ("user", user) in limits or ("user", EVERY_USER) in limits:
        found.append(("user", user))
    seen: set[str] = set()
    while account and account not in seen:
        seen.add(account)
        if ("account", account) in limits:
            found.append(("account", account))
        account = parents.get(account, "")
    if ("vc", vc) in limits:
        found.append(("vc", vc))
    if ("class", priority_class) in limits:
        found.append(("class", priority_class))
    if (EACH_USER, priority_class) in limits:
        found.append((EACH_USER, f"{priority_class} {user}"))
    return tuple(found)


def in_words(holder: Holder) -> str:
    """A holder as reasons name it: `account vision`, `user ann in class urgent`."""
    kind, name = holder
    if kind != EACH_USER:
        return f"{kind} {name}"
    class_, _, user = name.partition(" ")
    return f"user {user} in class {class_}"


def too_many(holder: Holder, gpus: float, most: float) -> str:
    """Why a job is refused, or waits, that needs more GPUs than its holder may ever have."""
    needs = f"{gpus:,.9g} GPU{'' if gpus == 1 else 's'}"
    return f"needs {needs}, and {in_words(holder)} may have {most:g}"


def limit_of(holder: Holder, limits: Mapping[Holder, T]) -> T:
    """A holder's own limit, or else that of every user."""
    kind, name = holder
    if kind == EACH_USER:
        return limits[kind, name.partition(" ")[0]]
    own = limits.get(holder)
    return own if own is not None else limits["user", EVERY_USER]


def limits_of(classes: Collection[PriorityClass]) -> dict[Holder, int]:
    """The most GPUs of each class, and of each user in it, where it has a limit."""
    found = {("class", each.name): each.gpus for each in classes}
    found |= {(EACH_USER, each.name): each.gpus_per_user for each in classes}
    return {holder: most for holder, most in found.items() if most is not None}


def why_over(holder: Holder, has: float, needs: float, most: float) -> str:
    """Why a job that needs so many GPUs waits for a holder that has so many."""
    if needs > most + ROUNDED:
        return f"{REASONS[holder[0]]}: {too_many(holder, needs, most)}"
    told = f"{in_words(holder)} has {has:.9g} of {plural(int(most), 'GPU')}"
    return f"{REASONS[holder[0]]}: {told}, needs {needs:.9g}"


@dataclass(frozen=True, slots=True, eq=False)
class RowLimits:
    """The limits that rows of a table count against, as columns.

    Attributes:
        holders: whose limits these are; each user of a limit on every user is one.
        most: GPUs of each holder.
        sets: the holders that some rows count against together, by their numbers.
        set_of: the number of each row's set, -1 for a row without any; empty without limits.
    """

    holders: tuple[Holder, ...] = ()
    most: Floats = field(default_factory=lambda: np.zeros(0))
    sets: tuple[tuple[int, ...], ...] = ()
    set_of: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def of(
        cls, most: Mapping[Holder, float], sets: Sequence[tuple[Holder, ...]], set_of: Ints
    ) -> RowLimits:
        """Those of rows by their sets; `most` is by holder, of all users or each user too."""
        number = {holder: k for k, holder in enumerate(dict.fromkeys(h for s in sets for h in s))}
        return cls(
            tuple(number),
            np.array([limit_of(holder, most) for holder in number], np.float64),
            tuple(tuple(number[holder] for holder in each) for each in sets),
            set_of,
        )

    @classmethod
    def of_columns(cls, columns: Mapping[str, Any]) -> RowLimits:
        """The limits of `columns`; none where these are empty."""
        if not columns:
            return cls()
        return cls(
            tuple((kind, name) for kind, name in columns["holders"]),
            columns["most"],
            tuple(map(tuple, columns["sets"])),
            columns["set_of"],
        )

    def columns(self) -> dict[str, Any]:
        """As plain values; empty without limits."""
        if not self:
            return {}
        return {name: getattr(self, name) for name in ("holders", "most", "sets", "set_of")}

    def __bool__(self) -> bool:
        return len(self.sets) > 0

    def take(self, rows: Rows) -> RowLimits:
        """Those of some rows, in this order."""
        if not self:
            return self
        return RowLimits(self.holders, self.most, self.sets, self.set_of[rows])
