"""Whose jobs may be in which partitions, as lists and Unix groups say it now.

A job is judged when it is submitted, and again while it waits: after its partition's lists or its
user's groups have changed, it waits with the reason and is not cancelled, as with Slurm.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from dlsched.db.records import JobSpec
from dlsched.tenants.fields import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessLists:
    """The lists of one partition; a job must be on one of them."""

    partition: str
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()  # of Unix

    @classmethod
    def of(cls, found: Partition) -> AccessLists | None:
        """Those of a partition; None: it is for all."""
        if not (found.users or found.accounts or found.groups):
            return None
        return cls(
            partition=found.name, users=found.users, accounts=found.accounts, groups=found.groups
        )

    def refusal(self, user: str, account: str, groups: Collection[str] | None) -> str:
        """Why a job may not be in the partition; empty if it may.

        `groups` are those of the user; None: they are not known yet.
        """
        if user in self.users or account in self.accounts:
            return ""
        if self.groups and groups is None:
            return f"AccountNotAllowed: the groups of {user} are not known yet"
        if not set(self.groups).isdisjoint(groups or ()):
            return ""
        lists = {"user": self.users, "account": self.accounts, "group": self.groups}
        allowed = [f"{kind} {name}" for kind, names in lists.items() for name in names]
        return f"AccountNotAllowed: partition {self.partition} is for {', '.join(allowed)} only"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAccess:
    """The partitions that are not for all, with what is known of users.

    Attributes:
        lists: by partition.
        operators: names of users whose jobs may be in any partition.
        operator_uids: their user ids.
        groups: of users, as far as they were looked up.
    """

    lists: Mapping[str, AccessLists] = field(default_factory=dict)
    operators: frozenset[str] = frozenset()
    operator_uids: frozenset[int] = frozenset()
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def refusal(self, spec: JobSpec, *, partition: str | None = None) -> str:
        """Why a job may not be in its partition, or in another one; empty if it may."""
        named = spec.body.partition if partition is None else partition
        found = self.lists.get(named)
        if found is None or spec.user in self.operators or spec.uid in self.operator_uids:
            return ""
        return found.refusal(spec.user, spec.body.account, self.groups.get(spec.user))

    def users_to_look_up(self, specs: Iterable[JobSpec]) -> set[str]:
        """The users of jobs in partitions that are for groups."""
        named = {name for name, lists in self.lists.items() if lists.groups}
        return {spec.user for spec in specs if spec.body.partition in named}
