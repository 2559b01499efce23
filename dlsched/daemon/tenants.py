"""Who shares the cluster: what the configuration says of tenants, and what operators have said.

The configuration's word stands: what it names is changed there. Invariant: names that one tenant
says of another exist, and accounts are a forest.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dlsched.core.cluster import VirtualCluster, expand_hosts
from dlsched.core.errors import BadInput, NotAllowed
from dlsched.daemon.round.tenant_limits import Ward
from dlsched.daemon.settings import Settings
from dlsched.daemon.vc_tree import check_tree
from dlsched.db.records import TenantRemoved, TenantsConfigured, TenantSet
from dlsched.db.tenants import (
    FILE,
    Account,
    Partition,
    Quota,
    Tenant,
    TenantKey,
    User,
    Vc,
    key_of,
)

__all__ = ["Tenants", "configured", "virtual_cluster"]

log = logging.getLogger("dlsched.daemon")


def configured(settings: Settings) -> tuple[Tenant, ...]:
    """What the configuration says of tenants."""
    vcs = [
        Vc(
            name=vc.name,
            gpus=vc.gpus,
            nodes=vc.nodes,
            guaranteed=vc.guaranteed,
            borrow=vc.borrow,
            parent=vc.parent,
        )
        for vc in settings.vcs
    ]
    partitions = [
        Partition(name=p.name, nodes=p.nodes, max_time_s=p.max_time_s, default=p.default)
        for p in settings.partitions
    ]
    return (*vcs, *partitions)


def virtual_cluster(vc: Vc) -> VirtualCluster:
    """As rounds know it."""
    gpus = -1 if vc.gpus is None else vc.gpus
    return VirtualCluster(
        name=vc.name,
        gpus=gpus,
        nodes=tuple(expand_hosts(vc.nodes)) if vc.nodes else (),
        guaranteed=gpus if vc.guaranteed is None else vc.guaranteed,
        borrow=vc.borrow,
        parent=vc.parent,
    )


class Tenants:
    """All tenants, by kind and name."""

    def __init__(self, settings: Settings) -> None:
        """Those of the configuration."""
        self.rows: dict[TenantKey, TenantSet] = {}
        self.take(TenantsConfigured(tenants=configured(settings), at=0.0))

    # -- following what is stored ------------------------------------------------------------------

    def load(self, stored: Iterable[TenantSet], settings: Settings) -> bool:
        """Begin anew from what the database has; does it lack what the configuration says?"""
        rows = list(stored)
        said = configured(settings)
        self.rows = {key_of(row.tenant): row for row in rows if row.source != FILE}
        before = {key_of(row.tenant): row.tenant for row in rows if row.source == FILE}
        self.take(TenantsConfigured(tenants=said, at=0.0))
        return before != {key_of(each): each for each in said}

    def take(self, row: object) -> bool:
        """Follow a stored row; is it about tenants?"""
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

    # -- asking ------------------------------------------------------------------------------------

    def vcs(self) -> dict[str, Vc]:
        """Virtual clusters by name."""
        return {r.tenant.name: r.tenant for r in self.rows.values() if isinstance(r.tenant, Vc)}

    def in_force(self) -> tuple[VirtualCluster, ...]:
        """Virtual clusters as rounds are to know them.

        The configuration may have changed below what operators said; parts then stand alone.
        """
        vcs = self.vcs()
        try:
            check_tree(vcs)
        except BadInput as error:
            log.warning("event=vcs-apart why=%r", str(error))
            vcs = {name: replace(vc, parent="") for name, vc in vcs.items()}
        return tuple(map(virtual_cluster, vcs.values()))

    def accounts(self) -> dict[str, Account]:
        """Accounts by name."""
        rows = self.rows.values()
        return {r.tenant.name: r.tenant for r in rows if isinstance(r.tenant, Account)}

    def users(self) -> dict[str, User]:
        """Users of whom something was said, by name."""
        return {r.tenant.name: r.tenant for r in self.rows.values() if isinstance(r.tenant, User)}

    def quotas(self) -> dict[Ward, Quota]:
        """Quotas, by whose they are."""
        rows = (row.tenant for row in self.rows.values())
        return {(q.kind, q.name): q for q in rows if isinstance(q, Quota)}

    def parents(self) -> dict[str, str]:
        """Of accounts, where they have one."""
        return {name: a.parent for name, a in self.accounts().items() if a.parent}

    def members(self, account: str) -> frozenset[str]:
        """Who belongs to an account."""
        mine = {name for name, u in self.users().items() if account in (u.account, *u.accounts)}
        return frozenset(mine | set(self.accounts()[account].users))

    def resolve(self, user: str, wanted: str, *, operator: bool = False) -> tuple[str, str]:
        """Account and virtual cluster of a job, from the name that it gives.

        Args:
            user: whose job it is.
            wanted: an account or a virtual cluster; empty: as the user has it.
            operator: may use any account.

        Raises:
            BadInput: neither is called so.
            NotAllowed: an account of others.
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
        else:
            known = ", ".join(dict.fromkeys((*accounts, *vcs))) or "none"
            raise BadInput(f"vc {wanted[:64]!r} is not known; known: {known}")
        at, seen = account, set()
        while at in accounts and at not in seen:
            seen.add(at)
            if accounts[at].vc:
                return account, accounts[at].vc
            at = accounts[at].parent
        return account, wanted if wanted in vcs else mine.vc

    # -- changing ----------------------------------------------------------------------------------

    def check_set(self, tenant: Tenant, *, create: bool) -> TenantSet | None:
        """Refuse what cannot be set; what was there before.

        Raises:
            BadInput: in one line, why.
            NotAllowed: it is the configuration's.
        """
        kind, name = key_of(tenant)
        before = self.rows.get((kind, name))
        told = f"{kind} {name}"
        if isinstance(tenant, Partition):
            raise NotAllowed("partitions are set in the configuration")
        if before is not None and before.source == FILE:
            raise NotAllowed(f"{told} is set in the configuration; change it there")
        if create and before is not None:
            raise BadInput(f"{told} is there already; change it with `set`")
        if not create and before is None:
            raise BadInput(f"there is no {told}; add it")
        for what, named, known in self._named(tenant):
            if named and named not in known:
                there = ", ".join(known) or "none"
                raise BadInput(f"{told}: {what} {named[:64]!r} is not known; known: {there}")
        if isinstance(tenant, Account):
            self._refuse_circle(tenant)
        if isinstance(tenant, Vc):
            self._check_vc(tenant)
        if isinstance(tenant, Quota) and not any(_limits(tenant)):
            raise BadInput(f"{told}: says nothing; give a limit, or remove it")
        return before

    def _named(self, tenant: Tenant) -> list[tuple[str, str, Mapping[str, object]]]:
        """Who else a tenant speaks of."""
        accounts, vcs = self.accounts(), self.vcs()
        match tenant:
            case User():
                named = dict.fromkeys((tenant.account, *tenant.accounts))
                return [("vc", tenant.vc, vcs), *(("account", a, accounts) for a in named)]
            case Account():
                return [("parent", tenant.parent, accounts), ("vc", tenant.vc, vcs)]
            case Vc():
                return [("parent vc", tenant.parent, vcs)]
            case Quota(kind="account"):
                return [("account", tenant.name, accounts)]
            case Quota(kind="vc"):
                return [("vc", tenant.name, vcs)]
        return []

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
            raise BadInput(f"vc {vc.name}: guarantees {vc.guaranteed} of {vc.gpus} GPUs")
        if vc.guaranteed is not None and vc.gpus is None:
            raise BadInput(f"vc {vc.name}: a guarantee needs a number of gpus")
        mine = set(expand_hosts(vc.nodes)) if vc.nodes else set()
        for other in self.vcs().values():
            if other.name != vc.name and other.nodes:
                both = mine & set(expand_hosts(other.nodes))
                if both:
                    raise BadInput(f"vc {vc.name}: node {min(both)} is vc {other.name}'s")
        check_tree({**self.vcs(), vc.name: vc})

    def check_remove(self, kind: str, name: str) -> TenantSet:
        """Refuse to take away what is not there or what others speak of.

        Raises:
            BadInput: in one line, why.
            NotAllowed: it is the configuration's.
        """
        row = self.rows.get((kind, name))
        if row is None:
            raise BadInput(f"there is no {kind} {name[:128]}")
        if row.source == FILE:
            raise NotAllowed(f"{kind} {name} is set in the configuration; change it there")
        what = {"account": ("account", "parent"), "vc": ("vc", "parent vc")}.get(kind, ())
        for key, other in self.rows.items():
            for field, named, _ in self._named(other.tenant):
                if key != (kind, name) and field in what and named == name:
                    raise BadInput(f"{kind} {name}: {' '.join(key)} speaks of it")
        return row


def _limits(quota: Quota) -> Iterable[bool]:
    return (value is not None for value in (quota.gpus, quota.jobs, quota.gpu_hours))


def with_window(quota: Quota, window_s: float) -> Quota:
    """A quota of GPU-hours has a window."""
    if quota.gpu_hours is None or quota.window_s is not None:
        return quota
    return replace(quota, window_s=window_s)
