"""Limits on the GPUs that jobs may have at once which belong together: of a class, of a user in it.

A limit has a holder: what it is a limit of, and its name. The GPUs of jobs that have some, or that
a policy may give some, count against all their holders. A job comes before the policy once each of
its holders has room for it, in the order of submission; one that needs less may pass one that needs
more. So no policy can give more than the limit, and none has to know of it.

Both worlds count by these rules: a live cluster before each round, a replay as jobs come and end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from dlsched.core.cluster.site_rules import PriorityClass
from dlsched.core.errors import plural

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


def limits_of(classes: Iterable[PriorityClass]) -> dict[Holder, int]:
    """The most GPUs of each class, and of each user in it, where it has a limit."""
    found = {("class", each.name): each.gpus for each in classes}
    found |= {(EACH_USER, each.name): each.gpus_per_user for each in classes}
    return {holder: most for holder, most in found.items() if most is not None}


class GpusInUse(defaultdict[Holder, float]):
    """The GPUs that count against each holder's limit."""

    def __init__(self, most: Callable[[Holder], float | None]) -> None:
        """Begin with none; `most` is a holder's limit, None where it has none on GPUs."""
        super().__init__(float)
        self._most = most

    def add(self, holders: Iterable[Holder], gpus: float) -> None:
        """So many GPUs count from now on; fewer: negative."""
        for holder in dict.fromkeys(holders):
            self[holder] += gpus

    def full(self, holders: Iterable[Holder], gpus: float) -> Holder | None:
        """The first holder that has no room for so many GPUs more; None: all have."""
        for holder in holders:
            most = self._most(holder)
            if most is not None and self[holder] + gpus > most + ROUNDED:
                return holder
        return None

    def why(self, holder: Holder, gpus: float) -> str:
        """Why a job that needs so many GPUs waits for a holder."""
        most = self._most(holder) or 0
        if gpus > most + ROUNDED:
            return f"{REASONS[holder[0]]}: {too_many(holder, gpus, most)}"
        has = f"{in_words(holder)} has {self[holder]:.9g} of {plural(int(most), 'GPU')}"
        return f"{REASONS[holder[0]]}: {has}, needs {gpus:.9g}"


@dataclass(frozen=True, slots=True)
class RowLimits:
    """The limits that rows of a table count against.

    Attributes:
        most: GPUs, by holder; of each user in a class under the class's name.
        holders: of each row that has any.
    """

    most: Mapping[Holder, int] = field(default_factory=dict)
    holders: Mapping[int, tuple[Holder, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.holders)

    def take(self, renumbered: Mapping[int, int]) -> RowLimits:
        """Those of some rows, by their new numbers."""
        kept = {renumbered[r]: h for r, h in self.holders.items() if r in renumbered}
        return RowLimits(self.most, kept)

    def in_use(self) -> GpusInUse:
        """Nothing in use of any of them."""
        return GpusInUse(lambda holder: limit_of(holder, self.most))
