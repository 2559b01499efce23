"""HUG: the paper's examples, and what it promises."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.description import Cluster, Node
from dlsched.policies.fairness.hug import utilised, whole
from dlsched.policies.registry import make
from tests.policies.fairness_comparison import progress


def matrix(*rows: Any) -> list[list[Fraction]]:
    return [[Fraction(value) for value in row] for row in rows]


def test_the_papers_two_tenants() -> None:
    demands = matrix([".5", 1], [1, "1/6"])
    found = utilised(demands)
    assert found.guarantee == Fraction(2, 3)
    assert found.entitled == matrix(["1/3", "2/3"], ["2/3", "1/9"])
    assert found.ceiling == matrix(["1/3", "2/3"], ["2/3", "1/3"])
    assert [progress(d, c) for d, c in zip(demands, found.ceiling, strict=True)] == [
        Fraction(2, 3)
    ] * 2


def test_a_lie_that_pays_under_equal_splits_does_not_pay_here() -> None:
    honest, liar, other = matrix(["3/4", 1], [1, 1], [1, "1/4"])
    truth, lie = utilised([honest, other]), utilised([liar, other])
    assert truth.guarantee == Fraction(4, 7)
    assert progress(honest, truth.ceiling[0]) == Fraction(4, 7)
    assert progress(honest, lie.ceiling[0]) == Fraction(1, 2)


def test_on_one_link_it_is_an_equal_share() -> None:
    assert utilised(matrix([1], [1], [1])).ceiling == matrix(["1/3"], ["1/3"], ["1/3"])
    assert utilised(matrix([1], [0], [1])).ceiling == matrix(["1/2"], [0], ["1/2"])


def test_tenants_that_trust_each_other_use_everything() -> None:
    demands = matrix([1, "1/10"], [1, "1/10"])
    assert utilised(demands).ceiling == matrix(["1/2", "1/2"], ["1/2", "1/2"])
    three = matrix([1, 0], [1, "1/10"], [1, 0])
    assert utilised(three).ceiling[1] == [Fraction(1, 3), Fraction(1, 3)]
    assert utilised(three, cooperative=True).ceiling[1] == [Fraction(1, 3), 1]


def test_a_tenant_that_can_use_less_leaves_the_rest() -> None:
    demands = matrix([1, "1/2"], [1, "1/2"])
    found = utilised(demands, matrix([1, "1/4"], [1, 1]))
    assert found.guarantee == Fraction(1, 2)
    assert [row[1] for row in found.ceiling] == [Fraction(1, 4), Fraction(1, 2)]


def test_without_tenants() -> None:
    assert utilised([]).guarantee == 0
    assert utilised(matrix([0, 0])).ceiling == matrix([0, 0])


def test_whole_gpus_go_to_the_largest_fractions() -> None:
    shares = [Fraction(5, 2), Fraction(7, 4), Fraction(15, 4)]
    assert whole(shares, [Fraction(3), Fraction(9, 4), Fraction(4)]) == ([2, 2, 4], [3, 2, 4])
    assert whole([Fraction(1, 2)] * 2, [Fraction(1, 2)] * 2) == ([1, 0], [1, 0])


# -- properties -----------------------------------------------------------------------------------


@st.composite
def tenants(draw: Any) -> list[list[Fraction]]:
    links = draw(st.integers(1, 4))
    rows = []
    for _ in range(draw(st.integers(2, 5))):
        parts = draw(st.lists(st.integers(0, 6), min_size=links, max_size=links).filter(any))
        rows.append([Fraction(part, max(parts)) for part in parts])
    return rows


def use(shares: list[list[Fraction]]) -> list[Fraction]:
    return [sum(column, Fraction(0)) for column in zip(*shares, strict=True)]


@given(tenants())
def test_every_tenant_has_the_guarantee_and_none_more_of_a_link(demands: Any) -> None:
    found = utilised(demands)
    assert all(total <= 1 for total in use(found.ceiling))
    for demand, ceiling in zip(demands, found.ceiling, strict=True):
        assert progress(demand, ceiling) >= found.guarantee
        assert max(ceiling) <= found.guarantee


@given(tenants())
def test_no_allocation_guarantees_more(demands: Any) -> None:
    fullest = max(use(demands))
    assert utilised(demands).guarantee * fullest == 1


@given(tenants())
def test_each_stage_uses_more(demands: Any) -> None:
    found, trusting = utilised(demands), utilised(demands, cooperative=True)
    uses = [use(shares) for shares in (found.entitled, found.ceiling, trusting.ceiling)]
    for less, more in pairwise(uses):
        assert all(a <= b for a, b in zip(less, more, strict=True))


@given(tenants(), st.data())
def test_a_lie_never_pays(demands: Any, data: Any) -> None:
    links = len(demands[0])
    parts = data.draw(st.lists(st.integers(0, 6), min_size=links, max_size=links).filter(any))
    lie = [Fraction(part, max(parts)) for part in parts]
    honest = progress(demands[0], utilised(demands).ceiling[0])
    assert progress(demands[0], utilised([lie, *demands[1:]]).ceiling[0]) <= honest


@given(tenants())
def test_a_new_tenant_never_raises_the_guarantee(demands: Any) -> None:
    assert utilised(demands).guarantee <= utilised(demands[1:]).guarantee


# -- as a part ------------------------------------------------------------------------------------


def test_entitlements_and_ceilings_are_whole_gpus(lab: Any) -> None:
    """On 9 GPUs and 18 CPUs, a's GPUs bring 1 CPU each, b's 4.

    Parts of the cluster a GPU takes: a (1/9, 1/18), b (1/9, 2/9), so d = (1, 1/2) and (1/2, 1).
    M* = 2/3: a is entitled to 6 GPUs, b to 3, and no GPU is left to lend.
    """
    cluster = Cluster([Node(name="n1", gpus=9, cpus=18.0)])
    context = lab.context(cluster, [9, 9, 9])
    context.table.vc[:] = [0, 1, -1]
    context.table.cpus[:] = [9.0, 36.0, np.nan]
    context.table.names["vc"] = ("a", "b", "idle")
    found = make("fairness", "hug", {}).entitle(context.units, context)
    assert found.entitlement.tolist() == [6, 3, 0]
    assert found.ceiling.tolist() == [6, 3, np.inf]


def test_lending_is_bounded(lab: Any) -> None:
    """On 12 GPUs and 24 CPUs b and c are short of CPUs, and a alone could use all GPUs.

    d: a (1, 1/2), b and c (1/4, 1). CPUs add up to 5/2, so M* = 2/5: a has 24/5 of 12 GPUs, b and c
    6/5 each. a may not have more than 2/5 of them; in the cooperative mode it may.
    """
    cluster = Cluster([Node(name="n1", gpus=12, cpus=24.0)])
    context = lab.context(cluster, [12, 3, 3])
    context.table.vc[:] = [0, 1, 2]
    context.table.cpus[:] = [12.0, 24.0, 24.0]
    context.table.names["vc"] = ("a", "b", "c")

    def answer(mode: str) -> Any:
        found = make("fairness", "hug", {"mode": mode}).entitle(context.units, context)
        return found.entitlement.tolist(), found.ceiling.tolist()

    entitled, ceiling = answer("noncooperative")
    assert entitled == [5, 1, 1]
    assert ceiling == [5, 3, 3]
    assert answer("cooperative")[1] == [6, 3, 3]


def test_a_tenant_above_its_ceiling_waits_with_a_reason(lab: Any) -> None:
    trace = lab.trace([(0, 2, 100), (0, 2, 100), (0, 2, 50)], vc=["a", "a", "b"])
    run = lab.run(trace, "first-fit", cluster="1x4", fairness="hug")
    assert lab.spans(run) == {"A": (0, 100), "B": (50, 150), "C": (0, 50)}


def test_progress_of_a_tenant_without_demand_is_zero() -> None:
    assert progress([Fraction(0)], [Fraction(1)]) == pytest.approx(0)
