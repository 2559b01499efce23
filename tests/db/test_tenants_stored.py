"""Users, accounts, virtual clusters, partitions and quotas: kept, replaced, read as they were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from dlsched.db import schema
from dlsched.db.reading.queries import RunUsage
from dlsched.db.records import TenantRemoved, TenantsConfigured, TenantSet
from dlsched.db.store import Store
from dlsched.protocol.ledger import Attach
from dlsched.protocol.messages import Epoch, RunId
from dlsched.tenants.fields import (
    FILE,
    Account,
    Partition,
    PriorityClass,
    Quota,
    Reservation,
    Tenant,
    User,
    Vc,
    key_of,
)
from tests.db.ledgers import assign, ended, key, node, received, submit


def persist(store: Store, epoch: Epoch, number: int, *rows: object) -> None:
    store.persist(epoch, number, [Attach(row) for row in rows], 100.0)


def put(tenant: Tenant, **more: Any) -> TenantSet:
    return TenantSet(tenant=tenant, **{"actor": "root", "at": 7.0, **more})


def gone(kind: str, name: str) -> TenantRemoved:
    return TenantRemoved(kind=kind, name=name, actor="root", at=8.0)


def known(store: Store) -> dict[tuple[str, str], TenantSet]:
    return {key_of(row.tenant): row for row in store.load().tenants}


EVERY = (
    User(name="ann", account="lab", vc="speech", accounts=("lab", "other")),
    Account(name="lab", parent="all", weight=2.5, vc="speech"),
    Vc(name="speech", gpus=16, guaranteed=8, borrow=True),
    Vc(name="vision", nodes="n[1-4]"),
    PriorityClass(
        name="urgent",
        priority=2.5,
        preempts=("normal", "idle"),
        grace_s=60.0,
        max_time_s=3600.0,
        gpus=8,
        gpus_per_user=2,
        jobs=10,
        jobs_per_user=3,
        users=("ann",),
        accounts=("lab",),
        is_default=True,
    ),
    Reservation(
        name="course",
        nodes="n[1-2]",
        start_at=10.0,
        end_at=99.5,
        users=("ann",),
        accounts=("lab",),
        maintenance=True,
        reason="talk",
    ),
    Quota(kind="user", name="*", gpus=4, jobs=100),
    Quota(kind="vc", name="speech", gpu_hours=12.5, window_s=86400.0),
)


@pytest.mark.parametrize("tenant", EVERY, ids=lambda tenant: f"{tenant.name}")
def test_what_is_set_is_loaded_replaced_and_removed(
    store: Store, epoch: Epoch, tenant: Tenant
) -> None:
    key = key_of(tenant)
    persist(store, epoch, 1, put(tenant))
    assert known(store) == {key: put(tenant)}
    bare = type(tenant)(**{n: getattr(tenant, n) for n in ("kind", "name") if hasattr(tenant, n)})
    persist(store, epoch, 2, put(bare, actor="ops", at=9.0))
    assert known(store) == {key: put(bare, actor="ops", at=9.0)}
    persist(store, epoch, 3, gone(*key), gone(*key))
    assert known(store) == {}


def test_the_configuration_is_replaced_as_a_whole_and_nothing_else(
    store: Store, epoch: Epoch
) -> None:
    mine, ann = Vc(name="mine", gpus=2), User(name="ann", accounts=("lab",))
    lab = Account(name="lab", users=("bob", "ann"))
    main = Partition(
        name="main", max_time_s=60.0, is_default=True, default_time_s=30.0, users=("ann",),
        accounts=("lab",), groups=("staff", "g2"), cpus_per_gpu=4, memory_gb_per_gpu=1.5,
    )  # fmt: skip
    persist(store, epoch, 1, put(mine), put(ann))
    persist(store, epoch, 2, TenantsConfigured(tenants=(lab, main, Vc(name="a")), at=5.0))
    found = known(store)
    assert found["account", "lab"].tenant == replace(lab, users=("ann", "bob"))
    assert found["partition", "main"] == put(main, actor="", at=5.0, source=FILE)
    assert found["user", "ann"].tenant == ann
    persist(store, epoch, 3, TenantsConfigured(tenants=(Vc(name="b"),), at=6.0))
    assert set(known(store)) == {("vc", "mine"), ("vc", "b"), ("user", "ann")}
    assert known(store)["user", "ann"].tenant == ann


def test_a_user_is_met_once_and_keeps_what_operators_said(store: Store, epoch: Epoch) -> None:
    ann = User(name="ann", account="lab", accounts=("lab",))
    persist(store, epoch, 1, put(ann))
    store.persist(epoch, 2, [submit(1)], 50.0)
    store.persist(epoch, 3, [submit(2, user="bob")], 60.0)
    store.persist(epoch, 4, [submit(3)], 70.0)
    assert {row.tenant.name for row in store.load().tenants} == {"ann"}  # bob was never added
    persist(store, epoch, 5, gone("user", "ann"))
    table = schema.users
    with store.engine.connect() as connection:
        rows = connection.execute(
            select(table.c.name, table.c.uid, table.c.first_seen_at, table.c.account)
        ).all()
    assert sorted(tuple(row) for row in rows) == [("ann", 1000, 50.0, ""), ("bob", 1000, 60.0, "")]


def test_use_by_account_counts_from_a_moment_on(store: Store, epoch: Epoch) -> None:
    writes = [node("n1", 4), submit(1, gang=(2,), account="lab", vc="x"), submit(2, account="b")]
    store.persist(epoch, 1, writes, 100.0)
    store.persist(epoch, 2, [assign(1, ("n1", (0, 1)))], 100.0)
    store.persist(epoch, 3, [assign(2, ("n1", (2,)))], 180.0)
    store.persist(epoch, 4, [ended(1, "n1"), received(1, held_s=100.0, gpus=2)], 200.0)
    store.persist(epoch, 5, [ended(2, "n1"), received(2, held_s=20.0)], 200.0)
    whole = {each.name: each.gpu_s for each in store.usage(by="account")[0]}
    assert whole["lab"] == 10 * whole["b"] > 0
    half = {each.name: each.gpu_s for each in store.usage(by="account", since=150.0)[0]}
    assert half == {"lab": whole["lab"] / 2, "b": whole["b"]}
    assert store.usage(by="vc", since=201.0, live=[key(1).run_id, RunId("other")]) == (
        [],
        frozenset({key(1).run_id}),
    )
    spent = sorted(store.run_usage(150.0), key=lambda each: each.account)
    assert spent[1] == RunUsage(
        run_id=key(1).run_id, user="ann", account="lab", vc="x", began_at=100.0, ended_at=200.0,
        gpu_s=whole["lab"],
    )  # fmt: skip
    assert [each.account for each in spent] == ["b", "lab"]
