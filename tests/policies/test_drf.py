"""Dominant resource fairness: the paper's examples, and the properties that it is known for."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dlsched.core.cluster.description import Cluster, Node, VirtualCluster
from dlsched.core.context import RoundContext
from dlsched.policies.fairness.drf import dominant_share, filled
from dlsched.policies.registry import make
from tests.policies.fairness_comparison import asset_fair, competitive, precedence, served


def fractions(*values: Any) -> list[Fraction]:
    return [Fraction(value) for value in values]


def tasks(capacity: Any, demands: Any, weights: Any = None, caps: Any = None) -> list[Fraction]:
    """Continuous DRF from plain numbers."""
    count = len(demands)
    return filled(
        fractions(*capacity),
        [fractions(*demand) for demand in demands],
        fractions(*(weights or [1] * count)),
        caps or [None] * count,
    )


PAPER = ([9, 18], [[1, 4], [3, 1]])


def test_the_papers_example() -> None:
    assert tasks(*PAPER) == [3, 2]
    capacity, demands = fractions(*PAPER[0]), [fractions(*demand) for demand in PAPER[1]]
    discrete = served(capacity, demands, [1, 1], [None, None])
    assert discrete.tasks == [3, 2]
    assert discrete.sequence == [0, 1, 0, 1, 0]
    assert dominant_share(fractions(3, 12), capacity) == Fraction(2, 3)


def test_the_papers_example_with_weights() -> None:
    assert tasks(*PAPER, weights=[2, 1]) == fractions("54/13", "18/13")


def test_the_papers_example_under_the_rules_it_is_compared_with() -> None:
    capacity, demands = fractions(*PAPER[0]), [fractions(*demand) for demand in PAPER[1]]
    assert asset_fair(capacity, demands) == fractions("63/25", "54/25")
    found = competitive(np.array(PAPER[0], float), np.array(PAPER[1], float))
    assert found.tolist() == pytest.approx([45 / 11, 18 / 11], rel=1e-7)


def test_asset_fairness_can_leave_less_than_an_equal_cut() -> None:
    capacity, demands = [30, 30], [[1, 3], [1, 1]]
    assert asset_fair(fractions(*capacity), [fractions(*d) for d in demands]) == [6, 12]
    assert tasks(capacity, demands) == [5, 15]


def test_ceei_rewards_a_lie_and_drf_does_not() -> None:
    truth, lie = [[16, 1], [1, 2]], [[16, 8], [1, 2]]

    def ceei(demands: Any) -> list[float]:
        found: list[float] = competitive(np.full(2, 100.0), np.array(demands, float)).tolist()
        return found

    assert ceei(truth) == pytest.approx([100 / 31, 1500 / 31], rel=1e-7)
    assert ceei(lie) == pytest.approx([25 / 6, 100 / 3], rel=1e-7)
    assert tasks([100, 100], truth) == tasks([100, 100], lie) == fractions("25/6", "100/3")


def test_more_of_a_resource_can_leave_a_user_with_less() -> None:
    demands = [[2, 1], [1, 2]]
    assert tasks([12, 12], demands) == [4, 4]
    assert tasks([24, 12], demands) == [6, 3]


def test_a_user_that_needs_no_full_resource_goes_on() -> None:
    assert tasks([10, 10], [[1, 0], [1, 1]]) == [5, 5]
    three = [[1, 0], [1, 1], [0, 1]]
    assert tasks([10, 10], three) == [5, 5, 5]
    assert tasks([10, 10], three, weights=[3, 1, 1]) == fractions("15/2", "5/2", "15/2")


def test_a_user_that_needs_a_missing_resource_gets_nothing() -> None:
    assert tasks([10, 0], [[1, 0], [1, 1]]) == [10, 0]
    assert served(fractions(10, 0), [fractions(1, 0), fractions(1, 1)], [1, 1], [2, 2]).tasks == [
        2,
        0,
    ]


def test_a_task_that_does_not_fit_stops_all_or_only_its_account() -> None:
    capacity, demands = fractions(8), [fractions(5), fractions(1)]
    assert served(capacity, demands, [1, 1], [None, None], misfit="stop").tasks == [1, 3]
    assert served(capacity, demands, [9, 1], [None, None], misfit="stop").sequence == [0, 1]
    assert served(capacity, demands, [9, 1], [None, None], misfit="skip").tasks == [1, 3]


def test_equal_dominant_shares_are_told_apart_by_the_next_largest() -> None:
    capacity = fractions(8, 8)
    assert precedence(fractions(4, 1), capacity) < precedence(fractions(2, 4), capacity)


# -- properties -----------------------------------------------------------------------------------

AMOUNT = st.integers(0, 8)


@st.composite
def economies(draw: Any, *, weighted: bool = False, positive: bool = False) -> Any:
    """Capacity, demands and weights of two to four accounts."""
    kinds, count = draw(st.integers(1, 3)), draw(st.integers(2, 4))
    low = 1 if positive else 0
    capacity = fractions(*draw(st.lists(st.integers(1, 60), min_size=kinds, max_size=kinds)))
    amounts = st.lists(st.integers(low, 8), min_size=kinds, max_size=kinds).filter(any)
    demands = [fractions(*draw(amounts)) for _ in range(count)]
    weights = [Fraction(draw(st.integers(1, 4)) if weighted else 1) for _ in range(count)]
    return capacity, demands, weights


def bundle(demand: Any, x: Fraction) -> list[Fraction]:
    return [d * x for d in demand]


def runnable(demand: Any, held: Any) -> Fraction:
    """Tasks that a bundle is enough for."""
    return min(h / d for d, h in zip(demand, held, strict=True) if d > 0)


@given(economies(weighted=True))
def test_no_user_does_worse_than_with_an_equal_part_of_everything(economy: Any) -> None:
    capacity, demands, weights = economy
    found = filled(capacity, demands, weights, [None] * len(demands))
    for x, demand, weight in zip(found, demands, weights, strict=True):
        cut = [r * weight / sum(weights) for r in capacity]
        assert x >= runnable(demand, cut)


@given(economies())
def test_no_user_envies_another(economy: Any) -> None:
    capacity, demands, weights = economy
    found = filled(capacity, demands, weights, [None] * len(demands))
    for x, demand in zip(found, demands, strict=True):
        for other, theirs in zip(found, demands, strict=True):
            assert runnable(demand, bundle(theirs, other)) <= x


@given(economies(weighted=True), st.lists(st.none() | st.integers(1, 5), min_size=4, max_size=4))
def test_every_user_is_limited_by_a_full_resource(economy: Any, caps: Any) -> None:
    capacity, demands, weights = economy
    found = filled(capacity, demands, weights, caps[: len(demands)])
    used = [
        sum(d[j] * x for d, x in zip(demands, found, strict=True)) for j in range(len(capacity))
    ]
    assert all(u <= r for u, r in zip(used, capacity, strict=True))
    for x, demand, cap in zip(found, demands, caps, strict=False):
        full = [d > 0 and u == r for d, u, r in zip(demand, used, capacity, strict=True)]
        assert x == cap or any(full)


@given(economies(), st.data())
def test_a_lie_about_ones_demand_never_pays(economy: Any, data: Any) -> None:
    capacity, demands, weights = economy
    caps = [None] * len(demands)
    liar = data.draw(st.integers(0, len(demands) - 1))
    lie = fractions(*data.draw(st.lists(AMOUNT, min_size=len(capacity), max_size=len(capacity))))
    assume(any(lie))
    honest = filled(capacity, demands, weights, caps)[liar]
    told = [lie if k == liar else demand for k, demand in enumerate(demands)]
    gained = bundle(lie, filled(capacity, told, weights, caps)[liar])
    assert runnable(demands[liar], gained) <= honest


@given(economies(weighted=True, positive=True), st.data())
def test_a_user_that_leaves_takes_nothing_from_the_others(economy: Any, data: Any) -> None:
    capacity, demands, weights = economy
    gone = data.draw(st.integers(0, len(demands) - 1))
    caps = [None] * len(demands)
    before = filled(capacity, demands, weights, caps)
    stay = [k for k in range(len(demands)) if k != gone]
    after = filled(capacity, [demands[k] for k in stay], [weights[k] for k in stay], caps[1:])
    assert all(now >= before[k] for now, k in zip(after, stay, strict=True))


@given(economies(positive=True), st.integers(2, 9))
def test_units_do_not_matter(economy: Any, factor: int) -> None:
    capacity, demands, weights = economy
    caps = [None] * len(demands)
    larger = [capacity[0] * factor, *capacity[1:]]
    scaled = [[demand[0] * factor, *demand[1:]] for demand in demands]
    assert filled(capacity, demands, weights, caps) == filled(larger, scaled, weights, caps)


@given(economies(weighted=True))
def test_with_one_resource_it_is_weighted_max_min(economy: Any) -> None:
    capacity, demands, weights = economy
    one = [[Fraction(1)] for _ in demands]
    found = filled(capacity[:1], one, weights, [None] * len(demands))
    assert found == [capacity[0] * weight / sum(weights) for weight in weights]


# -- as a part ------------------------------------------------------------------------------------


CPUS = Cluster([Node(name="n1", gpus=8, cpus=64.0, memory_gb=512.0)])


def snapshot(lab: Any, gangs: list[int], vcs: list[int], cpus: list[float]) -> RoundContext:
    context: RoundContext = lab.context(CPUS, gangs)
    context.table.vc[:] = vcs
    context.table.cpus[:] = cpus
    context.table.names["vc"] = ("a", "b", "c")
    return context


def test_virtual_clusters_get_equal_dominant_shares(lab: Any) -> None:
    """A GPU of a's brings 2 CPUs and is 1/8 of the GPUs; one of b's brings 16, 1/4 of the CPUs."""
    context = snapshot(lab, [4, 4, 6, 1], [0, 1, 0, 1], [8.0, 64.0, 12.0, 16.0])
    found = make("fairness", "drf", {}).entitle(context.units, context)
    assert found.entitlement.tolist() == pytest.approx([16 / 3, 8 / 3, 0])
    assert np.isinf(found.ceiling).all()


def test_an_account_is_entitled_to_no_more_than_it_can_use(lab: Any) -> None:
    context = snapshot(lab, [1, 8, 8], [0, 1, 1], [np.nan, np.nan, np.nan])
    found = make("fairness", "drf", {}).entitle(context.units, context)
    assert found.entitlement.tolist() == [1, 7, 0]


def test_jobs_of_no_account_are_bound_by_nothing(lab: Any) -> None:
    context = snapshot(lab, [1, 8], [-1, -1], [np.nan, np.nan])
    assert make("fairness", "drf", {}).entitle(context.units, context) is None


def test_guarantees_may_weigh(lab: Any) -> None:
    context = snapshot(lab, [8, 8], [0, 1], [np.nan, np.nan])
    quotas = [VirtualCluster(name=n, gpus=g, guaranteed=g) for n, g in (("a", 6), ("b", 2))]
    context.occupancy.cluster = Cluster(CPUS.nodes, quotas)
    part = make("fairness", "drf", {"weights": "guaranteed"})
    assert part.entitle(context.units, context).entitlement.tolist() == [6, 2, 0]


def test_entitled_jobs_come_before_those_that_borrow(lab: Any) -> None:
    trace = lab.trace([(0, 2, 100), (0, 2, 100), (0, 2, 100), (0, 2, 50)], vc=["a", "a", "a", "b"])
    plain = lab.run(trace, "first-fit", cluster="1x4")
    fair = lab.run(trace, "first-fit", cluster="1x4", fairness="drf")
    assert lab.spans(plain)["D"][0] == 100
    assert lab.spans(fair)["D"] == (0, 50)
    assert lab.spans(fair)["B"][0] == 50
