"""What holds for HiveD's cells after any sequence of requests.

VC safety is stated as the paper defines it: a virtual cluster gets in the shared cluster whatever
it would get in a private one made of its cells, whatever the others do.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlsched.core.cluster.cells import CellPlan
from dlsched.policies.placement.hived.cells import FREE, Physical
from dlsched.policies.placement.hived.cluster_cells import ClusterCells
from dlsched.policies.placement.hived.gangs import Gang, Placed, Request, Waits, pod_sizes
from dlsched.policies.placement.hived.stored import restore, stored
from tests.policies.placement.test_hived_cells import cells_for

LARGE = {
    "cell_types": {
        "PAIR": {"child": "GPU", "count": 2},
        "NODE": {"child": "PAIR", "count": 2, "node": True},
        "RACK": {"child": "NODE", "count": 3},
        "ODD": {"child": "K80", "count": 3, "node": True},
    },
    "physical_cells": [{"type": "RACK", "nodes": "n[0-8]"}, {"type": "ODD", "nodes": "k[0-1]"}],
}
OWNED = {
    "A": {"RACK": 1, "RACK.NODE": 1},
    "B": {"RACK.NODE": 2, "RACK.NODE.PAIR": 2},
    "C": {"RACK.NODE.PAIR": 3, "ODD": 1},
}
NODES = [f"n{k}" for k in range(9)] + ["k0", "k1"]

asks = st.tuples(
    st.just("ask"),
    st.sampled_from("ABC"),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.sampled_from([-1, -1, 0, 0, 1, 5]),
    st.booleans(),
)
ends = st.tuples(st.just("end"), st.integers(0, 30))
machines = st.tuples(st.sampled_from(["bad", "healthy"]), st.sampled_from(NODES))
healthy_steps = st.lists(st.one_of(asks, asks, ends), max_size=40)
any_steps = st.lists(st.one_of(asks, asks, ends, machines), max_size=40)


def ask(cells: ClusterCells, request: Request) -> Placed | Waits:
    """A gang starts, and its victims end for it."""
    found = cells.find(request)
    if isinstance(found, Waits):
        return found
    for rival in found.rivals:
        cells.cancel(rival)
    if found.victims:
        gang = cells.reserve(request, found)
        for victim in cells.victims_of(gang):
            cells.release(victim)
        cells.start(gang)
    else:
        cells.commit(request, found)
    return found


def carry_out(cells: ClusterCells, step: tuple[Any, ...], number: int) -> None:
    match step:
        case ("ask", vc, pods, priority, lazy):
            name = f"g{number}"
            ask(
                cells, Request(name=name, vc=vc, priority=priority, pods=pod_sizes(pods), lazy=lazy)
            )
        case ("end", which):
            gangs = list(cells.gangs.values())
            if gangs:
                cells.release(gangs[which % len(gangs)])
        case ("bad", node):
            cells.set_bad(node)
        case ("healthy", node):
            cells.set_healthy(node)


def check(cells: ClusterCells) -> None:
    """Every invariant of the cells."""
    users: dict[Physical, Gang] = {}
    claimants: dict[Physical, Gang] = {}
    for gang in cells.gangs.values():
        waits = gang.state == "Preempting"
        for gpu in gang.gpus:
            found = claimants if waits else users
            assert gpu not in found, "a GPU is used, or reserved, twice"
            found[gpu] = gang
            assert (gpu.claimant if waits else gpu.user) is gang
    users |= claimants
    for name, ledger in cells.ledgers.items():
        gpus = 0
        for top in cells.tops[name]:
            gpus += _check_tree(top, ledger)
            for cell in top.everything():
                _check_cell(cell, users)
        assert ledger.is_safe(), (ledger.left, ledger.all_vc_free)
        for level in range(1, ledger.chain.top + 1):
            free = ledger.free[level]
            assert len(free) == len(set(free))
            for cell in free:
                siblings = cell.parent.children if cell.parent is not None else []
                assert not siblings or not all(s in free for s in siblings), "buddies not merged"
            splits = sum(
                len(ledger.free[k]) * ledger.chain.gpus[k - 1] // ledger.chain.gpus[level - 1]
                for k in range(level, ledger.chain.top + 1)
            )
            assert ledger.left[level] == splits
        for vc, counts in ledger.vc_free.items():
            for level, count in enumerate(counts):
                idle = [r for r in cells.roots[vc] if r.chain is ledger.chain and r.level == level]
                assert count == sum(root.bound is None for root in idle)


def _check_tree(cell: Physical, ledger: Any) -> int:
    """Each cell is free, stands for a granted cell, or is split: exactly one of them."""
    is_free = cell in ledger.free[cell.level]
    is_root = cell.bound is not None and cell.bound.parent is None
    assert is_free + is_root + cell.split == 1, cell
    if is_free or is_root:
        return cell.gpus
    return sum(_check_tree(child, ledger) for child in cell.children)


def _check_cell(cell: Physical, users: dict[Physical, Gang]) -> None:
    if cell.bound is not None:
        assert cell.bound.bound is cell
        assert cell.bound.level == cell.level
        if cell.bound.parent is not None:
            assert cell.parent is not None
            assert cell.parent.bound is cell.bound.parent
    assert cell.healthy == all(gpu.healthy for gpu in cell.leaves())
    if not cell.children:
        assert (cell.priority == FREE) == (cell not in users)
    else:
        assert cell.priority == max(child.priority for child in cell.children)
    assert sum(cell.used.values()) == sum(gpu in users for gpu in cell.leaves())


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(steps=any_steps)
def test_cells_stay_whole_and_no_gpu_is_used_twice(steps: list[Any]) -> None:
    cells = cells_for(OWNED, document=LARGE)
    for number, step in enumerate(steps):
        carry_out(cells, step, number)
        check(cells)
    for gang in list(cells.gangs.values()):
        cells.release(gang)
    for node in list(cells.bad):
        cells.set_healthy(node)
    check(cells)
    for name, ledger in cells.ledgers.items():
        assert sorted(map(str, ledger.free[ledger.chain.top])) == sorted(map(str, cells.tops[name]))


def private(cells: ClusterCells, vc: str) -> ClusterCells:
    """A cluster with a whole top-level cell for each cell that a virtual cluster owns."""
    grants, pinned = cells.owned[vc]
    tops = [
        next(each for each in cells.plan.tops if each[0] == grant.chain)
        for grant in grants
        for _ in range(grant.count)
    ]
    chains = {name: chain for name, chain in cells.plan.chains.items() if name in dict(tops)}
    return ClusterCells(CellPlan(chains=chains, tops=tuple(tops)), {vc: (grants, pinned)})


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(steps=healthy_steps)
@pytest.mark.parametrize("vc", "ABC")
def test_a_virtual_cluster_gets_what_it_would_get_in_a_private_one(
    vc: str, steps: list[Any]
) -> None:
    shared = cells_for(OWNED, document=LARGE)
    alone = private(shared, vc)
    for number, step in enumerate(steps):
        if step[0] != "ask":
            names = list(shared.gangs)
            carry_out(shared, step, number)
            for name in set(names) - set(shared.gangs):
                if name in alone.gangs:
                    alone.release(alone.gangs[name])
            continue
        _, owner, pods, priority, _ = step
        request = Request(name=f"g{number}", vc=owner, priority=priority, pods=pod_sizes(pods))
        found = ask(shared, request)
        if owner == vc and priority >= 0:
            there = ask(alone, request)
            assert isinstance(found, Waits) == isinstance(there, Waits), (found, there)
            mine = {n for n, g in shared.gangs.items() if g.request.vc == vc and g.virtual}
            assert mine == set(alone.gangs), "the same gangs had to leave"


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(steps=any_steps, more=any_steps)
def test_a_stored_state_goes_on_as_if_nothing_had_happened(
    steps: list[Any], more: list[Any]
) -> None:
    cells = cells_for(OWNED, document=LARGE)
    for number, step in enumerate(steps):
        carry_out(cells, step, number)
    again = cells_for(OWNED, document=LARGE)
    assert restore(again, stored(cells))
    check(again)
    for number, step in enumerate(more, 100):
        carry_out(cells, step, number)
        carry_out(again, step, number)
        assert stored(again) == stored(cells)
