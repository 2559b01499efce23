"""Fair-share factors of a tree of tenants: Slurm's classic formula.

Source: Slurm's documentation, "Classic Fairshare Algorithm" (priority/multifactor, before Fair
Tree). Tenants form a tree; siblings share by weight. With the shares w of siblings, the share S of
a tenant is the product of w / Σw from the root down to it. U is the tenant's part of all usage. Its
effective usage counts what its group has used, too:

    E = U                                  for a tenant below the root
    E = U + (E_parent − U) · w / Σw        for all others

and its factor is F = 2^(−E/S), from 1 (it and its groups have used nothing) to 0. A tenant below
the root that has used its share has 1/2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.core.cluster.description import VirtualCluster
from dlsched.core.cluster.site_rules import Level, SiteRules
from dlsched.core.sharing.decayed_usage import Owner
from dlsched.core.sums import ordered_sum

NOTHING = 1.0  # GPU-seconds: a user who has used less and has no job is no sibling any more


@dataclass(slots=True, kw_only=True)
class Share:
    """A tenant of the tree.

    Attributes:
        kind: account, vc or user.
        name: of the tenant.
        parent: number of the group above it; -1 for the root.
        weight: among its siblings.
        share: its part of the whole, as a fraction.
        used: GPU-seconds, as they count now.
        usage: its part of all usage.
        effective: what counts of its group's usage, too.
        factor: its fair-share factor, from 0 to 1.
    """

    kind: str
    name: str
    parent: int
    weight: float
    share: float = 0.0
    used: float = 0.0
    usage: float = 0.0
    effective: float = 0.0
    factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The tree, groups before their members.

    Attributes:
        rows: the tenants.
        of_owner: the number of each owner's user in `rows`; -1: it is not there.
    """

    rows: list[Share]
    of_owner: Ints

    @property
    def factors(self) -> Floats:
        """The factor of each owner; 1 for an owner that is not in the tree."""
        found = np.array([row.factor for row in self.rows] + [1.0])
        factors: Floats = found[self.of_owner]
        return factors


def fair_shares(
    rules: SiteRules,
    vcs: Mapping[str, VirtualCluster],
    owners: Sequence[Owner],
    used: Floats,
    has_jobs: Bools,
    level: Level | None = None,
) -> Shares:
    """The tree of the tenants that share now.

    Args:
        rules: accounts, and the level unless it is given.
        vcs: virtual clusters by name; their weights are their guaranteed GPUs.
        owners: user, account and virtual cluster of each.
        used: decayed GPU-seconds of each owner.
        has_jobs: which owners have jobs now.
        level: in which groups users share.
    """
    level = level or rules.level
    tree = _Tree(_groups(rules, vcs, level))
    of_owner = np.full(len(owners), -1, np.int64)
    group_at = {"account": 1, "vc": 2}.get(level)
    for number, (owner, seconds) in enumerate(zip(owners, used.tolist(), strict=True)):
        if seconds < NOTHING and not has_jobs[number]:
            continue
        group = owner[group_at] if group_at is not None else ""
        of_owner[number] = tree.user(level, group, owner[0])
        tree.use(int(of_owner[number]), seconds)
    tree.finish()
    return Shares(rows=tree.rows, of_owner=of_owner)


def _groups(
    rules: SiteRules, vcs: Mapping[str, VirtualCluster], level: Level
) -> list[tuple[str, str, float]]:
    """Names, parents and weights of the groups of a level."""
    if level == "account":
        return [(each.name, each.parent, each.weight) for each in rules.accounts]
    if level == "vc":
        return [
            (vc.name, vc.parent, float(vc.guaranteed if vc.guaranteed > 0 else max(vc.gpus, 1)))
            for vc in vcs.values()
        ]
    return []


class _Tree:
    """Tenants, each after the one above it."""

    def __init__(self, groups: Sequence[tuple[str, str, float]]) -> None:
        self.rows: list[Share] = []
        self._parents = {name: parent for name, parent, _ in groups}
        self._weights = {name: weight for name, _, weight in groups}
        self._numbers: dict[tuple[str, str, str], int] = {}
        self._kind = ""
        self._groups = [name for name, _, _ in groups]

    def user(self, kind: str, group: str, name: str) -> int:
        """The number of a user in a group."""
        self._name_groups(kind)
        above = self._group(kind, group) if group else -1
        return self._number(("user", group, name), "user", name or "-", above, 1.0)

    def _name_groups(self, kind: str) -> None:
        """The groups that are named share, whether or not they have users."""
        if not self._kind:
            self._kind = kind
            for name in self._groups:
                self._group(kind, name)

    def _group(self, kind: str, name: str) -> int:
        parent = self._parents.get(name, "")
        above = self._group(kind, parent) if parent in self._parents else -1
        weight = self._weights.get(name, 1.0)
        return self._number((kind, "", name), kind, name, above, weight)

    def _number(
        self, key: tuple[str, str, str], kind: str, name: str, above: int, weight: float
    ) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.rows)
            self.rows.append(Share(kind=kind, name=name, parent=above, weight=weight))
        return self._numbers[key]

    def use(self, number: int, seconds: float) -> None:
        """A user has used so much; it counts for all groups above, too."""
        while number >= 0:
            self.rows[number].used += seconds
            number = self.rows[number].parent

    def finish(self) -> None:
        """Work out shares, usage and factors, from the root down."""
        rows = self.rows
        total = ordered_sum(row.used for row in rows if row.parent < 0)
        weights: dict[int, float] = {}
        for row in rows:
            weights[row.parent] = weights.get(row.parent, 0.0) + row.weight
        for row in rows:
            part = row.weight / weights[row.parent] if weights[row.parent] else 0.0
            row.usage = row.effective = row.used / total if total else 0.0
            row.share = part
            if row.parent >= 0:
                above = rows[row.parent]
                row.share = above.share * part
                row.effective = row.usage + (above.effective - row.usage) * part
            if row.share > 0:
                row.factor = float(2.0 ** -(row.effective / row.share))
            else:
                row.factor = 0.0
