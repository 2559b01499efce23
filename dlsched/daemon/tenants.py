"""The tenants of the cluster: users, accounts, virtual clusters, partitions, classes, quotas.

Some come from the configuration, others from operators; what the configuration names can only be
changed there. Invariant: a tenant that another one names exists, and accounts are a forest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dlsched.core.cluster import reservations as kept
from dlsched.core.cluster.description import VirtualCluster
from dlsched.core.cluster.host_lists import expand
from dlsched.core.cluster.site_rules import SiteRules, for_rounds, refuse_mutual
from dlsched.core.errors import BadInput, NotAllowed, not_known, plural
from dlsched.core.sharing.gpu_limits import Holder
from dlsched.daemon.live.tenant_limits import limits_of_classes
from dlsched.daemon.settings import Settings
from dlsched.daemon.site_rules.priority_classes import NORMAL, check_class, class_for
from dlsched.daemon.site_rules.vc_tree import check_tree
from dlsched.db.records import TenantRemoved, TenantsConfigured, TenantSet
from dlsched.tenants.field import rows_of
from dlsched.tenants.fields import (
    FILE,
    Account,
    PriorityClass,
    Quota,
    Reservation,
    Tenant,
    TenantKey,
    User,
    Vc,
    key_of,
)

log = logging.getLogger("dlsched.daemon")


def virtual_cluster(vc: Vc) -> VirtualCluster:
    """A virtual cluster in the form that rounds use."""
    gpus = -1 if vc.gpus is None else vc.gpus
    return VirtualCluster(
        name=vc.name,
        gpus=gpus,
        nodes=tuple(expand("nodes", vc.nodes)) if vc.nodes else (),
        guaranteed=gpus if vc.guaranteed is None else vc.guaranteed,
        borrow=vc.borrow,
        parent=vc.parent,
    )


class Tenants:
    """All tenants, by kind and name."""

    def __init__(self, settings: Settings) -> None:
        """Begin with the tenants of the configuration."""
        self.rows: dict[TenantKey, TenantSet] = {}
        self.take(TenantsConfigured(tenants=settings.tenants(), at=0.0))

    @classmethod
    def stored(cls, rows: Iterable[TenantSet]) -> Tenants:
        """Those that a database has, whatever the configuration says now."""
        found = cls(Settings())
        found.rows = {key_of(row.tenant): row for row in rows}
        return found

    # -- following what is stored ------------------------------------------------------------------

    def load(self, stored: Iterable[TenantSet], settings: Settings) -> bool:
        """Begin anew from what the database has; returns whether it lacks what is configured."""
        rows = list(stored)
        said = settings.tenants()
        self.rows = {key_of(row.tenant): row for row in rows if row.source != FILE}
        before = {key_of(row.tenant): row.tenant for row in rows if row.source == FILE}
        self.take(TenantsConfigured(tenants=said, at=0.0))
        return before != {key_of(each): each for each in said}

    def take(self, row: object) -> bool:
        """Follow a stored row; returns whether it is about tenants."""
        match row:
            case TenantSet(tenant=tenant):
                self.rows[key_of(tenant)] = row
            case TenantRemoved(kind=kind, name=name):
                self.rows.pop((kind, name), None)
            case TenantsConfigured(tenants=tenants, at=at):
                self.rows = {k: r for k, r in self.rows.items() if r.source != FILE}
                for each in tenants:
                    self.rows[key_of(each)] = TenantSet(tenant=each, actor="", at=at, source=FILE)
            case _:
                return False
        return True

    # -- questions ---------------------------------------------------------------------------------

    def vcs(self) -> dict[str, Vc]:
        """Virtual clusters by name."""
        return {r.tenant.name: r.tenant for r in self.rows.values() if isinstance(r.tenant, Vc)}

    def in_force(self) -> tuple[VirtualCluster, ...]:
        """The virtual clusters in the form that rounds use.

        A changed configuration may no longer fit what operators set; then parts stand alone.
        """
        vcs = self.vcs()
        try:
            check_tree(vcs)
        except BadInput as error:
            log.warning("event=vcs-apart why=%r", str(error))
            vcs = {name: replace(vc, parent="") for name, vc in vcs.items()}
        return tuple(map(virtual_cluster, vcs.values()))

    def site_rules(self, settings: Settings) -> SiteRules:
        """Accounts and priority classes in the form that rounds use, and how usage fades.

        On a site without accounts users share all together: there they may name any, and a new
        name must not be worth a share.
        """
        accounts = tuple(map(for_rounds, self.accounts().values()))
        level = settings.fair_share.level
        return SiteRules(
            accounts=accounts,
            classes=tuple(self.classes().values()),
            half_life_s=settings.fair_share.half_life_s,
            level="user" if level == "account" and not accounts else level,
        )

    def reservations(self) -> dict[str, Reservation]:
        """Reservations by name."""
        rows = (row.tenant for row in self.rows.values())
        return {each.name: each for each in rows if isinstance(each, Reservation)}

    def kept_nodes(self) -> tuple[kept.Reservation, ...]:
        """Reservations in the form that rounds use; the policy's clock counts as the epoch's."""
        return tuple(
            kept.Reservation(
                name=each.name,
                nodes=tuple(expand("nodes", each.nodes)),
                start=each.start_at,
                end=each.end_at,
                maintenance=each.maintenance,
            )
            for each in self.reservations().values()
        )

    def accounts(self) -> dict[str, Account]:
        """Accounts by name."""
        rows = self.rows.values()
        return {r.tenant.name: r.tenant for r in rows if isinstance(r.tenant, Account)}

    def users(self) -> dict[str, User]:
        """Users with settings of their own, by name."""
        return {r.tenant.name: r.tenant for r in self.rows.values() if isinstance(r.tenant, User)}

    def quotas(self) -> dict[Holder, Quota]:
        """Quotas, by kind and name of their holder."""
        rows = (row.tenant for row in self.rows.values())
        found = {(q.kind, q.name): q for q in rows if isinstance(q, Quota)}
        return found | limits_of_classes(self.classes().values())

    def classes(self) -> dict[str, PriorityClass]:
        """Priority classes by name; `normal` is always one."""
        rows = (row.tenant for row in self.rows.values())
        found = {each.name: each for each in rows if isinstance(each, PriorityClass)}
        return {NORMAL: PriorityClass(name=NORMAL)} | found

    def parents(self) -> dict[str, str]:
        """The parents of accounts that have one."""
        return {name: a.parent for name, a in self.accounts().items() if a.parent}

    def members(self, account: str) -> frozenset[str]:
        """The users of an account."""
        mine = {name for name, u in self.users().items() if account in (u.account, *u.accounts)}
        return frozenset(mine | set(self.accounts()[account].users))

    def resolve(self, user: str, wanted: str, *, operator: bool = False) -> tuple[str, str]:
        """The account and the virtual cluster of a job, from the name that it gives.

        `wanted` is an account or a virtual cluster, empty for the user's default; an operator may
        use any account. On a site that has neither, any name is an account, as in Slurm.

        Raises:
            BadInput: neither has that name.
            NotAllowed: the user does not belong to the account.
        """
        accounts, vcs = self.accounts(), self.vcs()
        mine = self.users().get(user, User(name=user))
        if not wanted:
            account = mine.account
        elif wanted in accounts:
            account = wanted
            members = self.members(wanted)
            if members and user not in members and not operator:
                raise NotAllowed(f"account {wanted}: {user} is no member of it")
        elif wanted in vcs:
            return mine.account, wanted
        elif accounts or vcs:
            raise not_known("vc", wanted, (*accounts, *vcs))
        else:
            return wanted, ""
        at, seen = account, set()
        while at in accounts and at not in seen:
            seen.add(at)
            if accounts[at].vc:
                return account, accounts[at].vc
            at = accounts[at].parent
        return account, wanted if wanted in vcs else mine.vc

    # -- changing ----------------------------------------------------------------------------------

    def check_set(self, tenant: Tenant, *, create: bool) -> TenantSet | None:
        """Refuse a tenant that cannot be set; returns the row of before, if any.

        With `create` it must be new, else it must exist.

        Raises:
            BadInput: one line that says why.
            NotAllowed: the configuration names it.
        """
        kind, name = key_of(tenant)
        before = self.rows.get((kind, name))
        subject = f"{kind} {name}"
        if before is not None and before.source == FILE:
            raise NotAllowed(f"{subject} is set in the configuration; change it there")
        if create and before is not None:
            raise BadInput(f"{subject} is there already; change it with `set`")
        if not create and before is None:
            raise BadInput(f"there is no {subject}; add it")
        kinds: dict[str, Mapping[str, object]] = {
            "account": self.accounts(),
            "vc": self.vcs(),
            "class": self.classes(),
        }
        for of, what, other in named(tenant):
            if other not in kinds[of]:
                raise not_known(f"{subject}: {what}", other, kinds[of])
        if isinstance(tenant, Account):
            self._refuse_circle(tenant)
        if isinstance(tenant, Vc):
            self._check_vc(tenant)
        if isinstance(tenant, PriorityClass):
            check_class(tenant, self.classes())
            others = self.classes() | {tenant.name: tenant}
            refuse_mutual({name: each.preempts for name, each in others.items()})
        if isinstance(tenant, Quota) and not any(_limits(tenant)):
            raise BadInput(f"{subject}: has no limit; give one, or remove the quota")
        return before

    def _refuse_circle(self, account: Account) -> None:
        parents = {**self.parents(), account.name: account.parent}
        at, seen = account.name, set()
        while at:
            if at in seen:
                raise BadInput(f"account {account.name}: would be below itself, through {at}")
            seen.add(at)
            at = parents.get(at, "")

    def _check_vc(self, vc: Vc) -> None:
        if vc.gpus is not None and vc.nodes:
            raise BadInput(f"vc {vc.name}: gpus or nodes, not both")
        if vc.gpus is not None and (vc.guaranteed or 0) > vc.gpus:
            raise BadInput(f"vc {vc.name}: guarantees {vc.guaranteed} of {plural(vc.gpus, 'GPU')}")
        if vc.guaranteed is not None and vc.gpus is None:
            raise BadInput(f"vc {vc.name}: a guarantee needs a number of gpus")
        mine = set(expand("nodes", vc.nodes)) if vc.nodes else set()
        for other in self.vcs().values():
            if other.name != vc.name and other.nodes:
                both = mine & set(expand("nodes", other.nodes))
                if both:
                    raise BadInput(f"vc {vc.name}: node {min(both)} is vc {other.name}'s")
        check_tree({**self.vcs(), vc.name: vc})

    def check_remove(self, kind: str, name: str) -> TenantSet:
        """Refuse to remove a tenant that does not exist or that others name; returns its row.

        Raises:
            BadInput: one line that says why.
            NotAllowed: the configuration names it.
        """
        row = self.rows.get((kind, name))
        if row is None:
            raise BadInput(f"there is no {kind} {name[:128]}")
        if row.source == FILE:
            raise NotAllowed(f"{kind} {name} is set in the configuration; change it there")
        for key, other in self.rows.items():
            names = {(of, each) for of, _, each in named(other.tenant)}
            if key != (kind, name) and (kind, name) in names:
                raise BadInput(f"{kind} {name}: {' '.join(key)} names it")
        return row


@dataclass(frozen=True, slots=True)
class TenantsOfUser:
    """What a user's jobs may name of the tenants.

    Attributes:
        tenants: all.
        user: whose jobs they are.
        operator: may use any account, priority class and partition.
        groups: of Unix, where a partition asks for them.
    """

    tenants: Tenants
    user: str
    operator: bool = False
    groups: frozenset[str] = frozenset()

    def account_and_vc(self, wanted: str) -> tuple[str, str]:
        """See `Tenants.resolve`."""
        return self.tenants.resolve(self.user, wanted, operator=self.operator)

    def priority_class(self, wanted: str, account: str) -> PriorityClass:
        """See `class_for`."""
        return class_for(
            self.tenants.classes(),
            wanted,
            user=self.user,
            account=account,
            operator=self.operator,
        )


def named(tenant: Tenant) -> dict[tuple[str, str, str], None]:
    """What a tenant names of others: their kind, what errors call them, and the name."""
    if isinstance(tenant, Quota):
        return {} if tenant.kind == "user" else {(tenant.kind, tenant.kind, tenant.name): None}
    found: dict[tuple[str, str, str], None] = {}
    for name, row in rows_of(type(tenant)).items():
        if row.names:
            value = getattr(tenant, name)
            for each in value if row.form == "names" else (value,):
                found[row.names, row.label, each] = None
    return {key: None for key in found if key[2]}


def _limits(quota: Quota) -> Iterable[bool]:
    return (value is not None for value in (quota.gpus, quota.jobs, quota.gpu_hours))


def with_window(quota: Quota, window_s: float) -> Quota:
    """A quota whose GPU-hours have a window, by default this one."""
    if quota.gpu_hours is None or quota.window_s is not None:
        return quota
    return replace(quota, window_s=window_s)
