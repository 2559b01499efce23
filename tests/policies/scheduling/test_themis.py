"""Themis: worked examples of the auction, and what it promises whatever is bid."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.description import Cluster, Node
from dlsched.core.errors import BadInput
from dlsched.core.speed.throughput_table import JobKind, Measurement, ThroughputTable
from dlsched.policies.registry import make
from dlsched.policies.scheduling.themis.accounts import Account
from dlsched.policies.scheduling.themis.app import App, Job, Machines
from dlsched.policies.scheduling.themis.auction import (
    Bidder,
    Bundle,
    auction,
    leftovers,
    minus,
    plus,
)
from simulate.replay import prepare


def app(
    remaining: float, elapsed: float, ideal: float, *, spread: float, most: int, machines: int = 2
) -> App:
    """An app of one job that can use any number of GPUs up to `most`."""
    offer = Machines(tuple(range(machines)), in_rack=spread, across=spread)
    jobs = [Job(row=0, remaining=remaining, least=1, most=most)]
    return App(jobs, offer, elapsed=elapsed, ideal=ideal)


def rho(bidder: Bidder, *bundles: Bundle) -> list[Fraction]:
    return [Fraction(1 / bidder.value(bundle)).limit_denominator(1000) for bundle in bundles]


def product_of(bidders: list[App], bundles: Any) -> float:
    return math.prod(one.value(bundle) for one, bundle in zip(bidders, bundles, strict=True))


def test_two_alike_get_a_machine_each_and_pay_a_quarter() -> None:
    two = [app(14400, 3600, 14400, spread=1.25, most=4) for _ in range(2)]
    bundles = [(1, 0), (2, 0), (0, 2), (1, 1), (2, 1), (2, 2)]
    assert rho(two[0], *bundles) == [
        Fraction(5, 4), Fraction(3, 4), Fraction(3, 4), Fraction(7, 8), Fraction(2, 3),
        Fraction(9, 16),
    ]  # fmt: skip
    found = auction(two, (2, 2))
    assert found.fair == ((0, 2), (2, 0))
    assert product_of(two, found.fair) == pytest.approx(16 / 9)
    assert found.part == pytest.approx([3 / 4, 3 / 4])
    assert found.won == ((0, 1), (1, 0))
    have = dict(enumerate(found.won))
    assert leftovers([0, 1], dict(enumerate(two)), have, (1, 1)) == {0: (0, 2), 1: (2, 0)}


def test_an_app_that_has_waited_pays_more_and_alone_it_pays_nothing() -> None:
    two = [app(14400, elapsed, 14400, spread=1.25, most=4) for elapsed in (14400, 0)]
    found = auction(two, (2, 2))
    assert found.fair == ((0, 2), (2, 0))
    assert [rho(one, bundle)[0] for one, bundle in zip(two, found.fair, strict=True)] == [
        Fraction(3, 2), Fraction(1, 2),
    ]  # fmt: skip
    assert product_of(two, found.fair) == pytest.approx(4 / 3)
    assert found.part == pytest.approx([5 / 8, 7 / 8])
    alone = auction(two[:1], (2, 2))
    assert alone.fair == alone.won == ((2, 2),)
    assert alone.part == (1.0,)
    assert rho(two[0], (2, 2)) == [Fraction(21, 16)]


def test_three_of_three_kinds() -> None:
    kinds = [(7200.0, 2.0, 3), (7200.0, 1.0, 3), (3600.0, 1.0, 1)]
    three = [app(work, 3600, 7200, spread=s, most=most) for work, s, most in kinds]
    assert rho(three[0], (1, 0), (1, 1), (2, 0)) == [Fraction(3, 2), Fraction(3, 2), 1]
    assert rho(three[1], (0, 1), (1, 1)) == [Fraction(3, 2), 1]
    assert rho(three[2], (1, 0), (2, 1)) == [1, 1]
    found = auction(three, (2, 1))
    assert [sum(bundle) for bundle in found.fair] == [1, 1, 1]
    assert product_of(three, found.fair) == pytest.approx(4 / 9)
    assert found.part == pytest.approx([2 / 3] * 3)
    assert found.won == ((0, 0),) * 3


def inside(one: Bundle, other: Bundle) -> bool:
    return all(n <= m for n, m in zip(one, other, strict=True))


def test_of_no_gpus_no_app_gets_any() -> None:
    one = app(14400, 0, 14400, spread=1.0, most=4, machines=0)
    for offered in ((), (0, 0)):
        found = auction([one, one], offered)
        assert found.fair == found.won == (offered, offered)
        assert found.part == (1.0, 1.0)


class Table:
    """A bidder with any valuations."""

    def __init__(self, values: dict[Bundle, float]) -> None:
        self.values = values

    def value(self, bundle: Bundle) -> float:
        return self.values.get(bundle, 0.0)

    def step(self, have: Bundle, free: Bundle) -> Bundle | None:
        for extra in sorted(product(*(range(n + 1) for n in free)), key=sum):
            if self.value(plus(have, extra)) > self.value(have):
                return extra
        return None


@st.composite
def markets(draw: st.DrawFn) -> tuple[list[Table], Bundle]:
    """Bidders whose valuations rise with GPUs, on a few machines."""
    offered = tuple(draw(st.lists(st.integers(1, 2), min_size=1, max_size=2)))
    bundles = sorted(product(*(range(n + 1) for n in offered)), key=sum)
    bidders = []
    for _ in range(draw(st.integers(1, 3))):
        values: dict[Bundle, float] = {}
        for bundle in bundles:
            if any(bundle):
                below = [v for b, v in values.items() if inside(b, bundle)]
                more = draw(st.sampled_from([0.0, 0.1, 0.25, 1.0]))
                values[bundle] = max(below, default=0.2) + more
        bidders.append(Table(values))
    return bidders, offered


def every_division(count: int, offered: Bundle) -> Any:
    bundles = list(product(*(range(n + 1) for n in offered)))
    for chosen in product(bundles, repeat=count):
        if all(
            sum(ns) <= most for ns, most in zip(zip(*chosen, strict=True), offered, strict=True)
        ):
            yield chosen


@given(market=markets())
def test_bundles_are_the_best_of_all_and_no_gpu_is_given_twice(
    market: tuple[list[Table], Bundle],
) -> None:
    bidders, offered = market
    found = auction(bidders, offered)
    assert inside(tuple(map(sum, zip(*found.fair, strict=True))), offered)
    assert all(inside(won, fair) for won, fair in zip(found.won, found.fair, strict=True))
    assert all(0 < part <= 1 for part in found.part)

    def merit(chosen: Any) -> tuple[int, float]:
        values = [one.value(bundle) for one, bundle in zip(bidders, chosen, strict=True)]
        return sum(v > 0 for v in values), math.prod(v for v in values if v > 0)

    best = max(merit(chosen) for chosen in every_division(len(bidders), offered))
    served, worth = merit(found.fair)
    assert served == best[0]
    assert worth == pytest.approx(best[1])
    for won, part, fair in zip(found.won, found.part, found.fair, strict=True):
        assert sum(won) == math.floor(part * sum(fair) + 1e-9)
    if len(bidders) == 1:
        assert found.part == (1.0,)


@given(market=markets(), factor=st.floats(0.1, 10.0), bidder=st.integers(0, 2))
def test_the_scale_of_a_bid_changes_nothing_while_all_are_served(
    market: tuple[list[Table], Bundle], factor: float, bidder: int
) -> None:
    bidders, offered = market
    if len(bidders) > sum(offered):
        return
    bidder = bidder % len(bidders)
    scaled = list(bidders)
    scaled[bidder] = Table({bundle: factor * v for bundle, v in bidders[bidder].values.items()})
    one, other = auction(bidders, offered), auction(scaled, offered)
    assert one.fair == other.fair
    assert one.part == pytest.approx(other.part)


@given(market=markets())
def test_more_gpus_never_lower_the_product(market: tuple[list[Table], Bundle]) -> None:
    bidders, offered = market
    fewer = (offered[0] - 1, *offered[1:])

    def merit(offer: Bundle) -> tuple[int, float]:
        fair = auction(bidders, offer).fair
        values = [one.value(bundle) for one, bundle in zip(bidders, fair, strict=True)]
        return sum(v > 0 for v in values), math.prod(v for v in values if v > 0)

    few, many = merit(fewer), merit(offered)
    assert (many[0], many[1] * (1 + 1e-9)) >= few


@given(market=markets(), greedy=st.booleans())
def test_no_gpu_is_left_that_an_app_could_use(
    market: tuple[list[Table], Bundle], greedy: bool
) -> None:
    bidders, offered = market
    found = auction(bidders, offered, most_bidders=0 if greedy else 8)
    assert all(0 < part <= 1 for part in found.part)
    free = offered
    for bundle in found.won:
        free = minus(free, bundle)
    assert min(free) >= 0
    by_number: dict[int, Bidder] = dict(enumerate(bidders))
    have = leftovers(list(by_number), by_number, dict(enumerate(found.won)), free)
    for bundle in have.values():
        offered = minus(offered, bundle)
    assert min(offered) >= 0
    assert all(one.step(have[i], offered) is None for i, one in enumerate(bidders))


# -- the policies ---------------------------------------------------------------------------------

LONG_AND_SHORT = [(0, 4, 10000), (10, 4, 1000)]


def test_gpus_are_kept_for_a_lease_and_then_go_to_the_app_that_is_worse_off(lab: Any) -> None:
    for policy in ("themis", "themis-greedy"):
        run = lab.run(LONG_AND_SHORT, policy)
        assert lab.spans(run) == {"A": (0, 11000), "B": (1200, 2200)}
    short = lab.run(LONG_AND_SHORT, "themis", options=("lease_s=300",))
    assert lab.spans(short)["B"][0] == 300


def test_the_knob_trades_fairness_for_efficiency(lab: Any) -> None:
    run = lab.run(LONG_AND_SHORT, "themis", options=("knob=0",))
    assert lab.spans(run) == {"A": (0, 10000), "B": (10000, 11000)}  # V of A is higher


def test_a_lease_is_renewed_while_no_app_waits(lab: Any) -> None:
    run = lab.run([(0, 2, 9000), (0, 2, 5000)], "themis", overhead=30.0)
    assert run.jobs.starts.tolist() == [1, 1]


@pytest.mark.parametrize(("payment", "lease"), [("gpus", 1200), ("time", 600)])
def test_a_payment_may_be_time_of_the_lease(lab: Any, payment: str, lease: float) -> None:
    trace = lab.trace([(0, 1, 3000)] * 8, group=["one"] * 4 + ["other"] * 4)
    options = ("knob=0", f"payment={payment}")
    engine = lab.engine(trace, "themis", options=options, clock="events", horizon=10.0)
    engine.run()
    state = engine.parts.scheduling.state_dict()
    assert [end for _, end in state["until"]] == pytest.approx([lease] * 4)
    assert sorted(row // 4 for row, _ in state["until"]) == [0, 0, 1, 1]


def test_the_ideal_is_alone_on_what_it_can_use_times_how_many_it_competed_with() -> None:
    account = Account(start=0.0, serial=800.0, widest=8)
    assert account.ideal(4, 1) == 200.0  # there are no more GPUs than four
    assert account.ideal(16, 1) == 100.0  # it can use no more than eight
    account.crowd, account.alive = 30.0, 10.0
    assert account.ideal(16, 1) == 300.0
    account.crowd = 5.0
    assert account.ideal(16, 1) == 100.0  # itself is always there


def test_a_group_is_one_app(lab: Any) -> None:
    jobs = [(0, 2, 6000)] * 6 + [(10, 2, 3000)]
    grouped = lab.trace(jobs, group=["search"] * 6 + [""])
    alone = lab.trace(jobs)
    options = ("knob=1", "lease_s=600")
    with_group = lab.spans(lab.run(grouped, "themis", options=options))["G"]
    without = lab.spans(lab.run(alone, "themis", options=options))["G"]
    assert with_group[0] == 600  # one of two apps, and the only one that has nothing
    assert without[1] >= with_group[1]


def test_a_gang_stays_together_where_spreading_costs(lab: Any) -> None:
    racks = [Node(name=f"n{k}", gpus=2, switch=f"s{k // 2}") for k in range(4)]
    jobs = [(0, 2, 3000), (0, 4, 3000), (0, 2, 3000)]
    options = ("slowdown_rack=1.5", "slowdown_cross=3")
    run = lab.run(jobs, "themis", cluster=Cluster(racks), options=options, clock="rounds")
    segments = run.segments
    for job in (0, 2):  # on one machine each
        assert len(set(segments.node[segments.job == job].tolist())) == 1
    of_four = set(segments.node[segments.job == 1].tolist())
    assert of_four in ({0, 1}, {2, 3})  # in one rack


def test_every_app_gets_a_turn(lab: Any) -> None:
    jobs = [(60.0 * k, 2, 20000) for k in range(8)]
    run = lab.run(jobs, "themis", cluster="1x4")
    waited = run.jobs.first_start_time - run.jobs.submit_time
    assert waited.max() <= 5 * 1200


@pytest.mark.parametrize("policy", ["themis", "themis-greedy"])
def test_a_large_gang_is_gathered_for(lab: Any, policy: str) -> None:
    small = [(300.0 * k, 2, 30000) for k in range(8)]
    run = lab.run([*small, (2500, 8, 1000)], policy, cluster="2x4")
    assert lab.spans(run)["I"][0] <= 2500 + 2 * 1200


@pytest.mark.parametrize("policy", ["themis", "themis-greedy"])
def test_it_goes_on_from_its_state_as_if_nothing_had_happened(lab: Any, policy: str) -> None:
    jobs = [(20.0 * k, 1 + k % 3, 1400.0 + 930 * (k % 4)) for k in range(20)]
    trace = lab.trace(jobs, group=[f"g{k % 5}" if k % 2 else "" for k in range(20)])
    finishes = lab.run(trace, policy, cluster="2x2").jobs.finish_time.tolist()
    engine = lab.engine(trace, policy, cluster="2x2", clock="events")

    def swap(engine: Any, _: Any) -> None:
        state = engine.parts.scheduling.state_dict()
        fresh = make("scheduling", policy, {})
        fresh.load_state_dict(state)
        assert fresh.state_dict() == state
        engine.parts.scheduling = fresh

    engine.observers.append(swap)
    engine.run()
    assert engine.world.table.finish.tolist() == finishes


def test_options_that_cannot_be_are_refused() -> None:
    for name, value in (("knob", "1.5"), ("lease_s", "0"), ("slowdown_rack", "0.5")):
        with pytest.raises(BadInput, match=name):
            make("scheduling", "themis", {name: value})


@pytest.mark.parametrize("options", [(), ("semantics=gavel",)])
def test_speeds_count_whatever_work_is_counted_in(lab: Any, options: tuple[str, ...]) -> None:
    table = ThroughputTable(
        [
            Measurement(kind=JobKind(model), gpu_type=gpu, scale=1, rate=rate, where="here")
            for model, rates in {"quick": (8.0, 4.0), "tardy": (0.5, 0.5)}.items()
            for gpu, rate in zip(("fast", "slow"), rates, strict=True)
        ]
    )
    trace = lab.trace(
        [(0, 1, 1000), (0, 1, 1000)],
        model=["tardy", "quick"],
        total_iterations=[500.0, 8000.0],
        batch_size=[float("nan")] * 2,
    )
    settings = lab.settings(
        "themis", options=options, clock="" if options else "rounds", horizon=500.0
    )
    engine = prepare(trace, lab.cluster("1x1:fast+1x1:slow"), settings, throughputs=table)
    engine.run()
    accounts = engine.parts.scheduling.state_dict()["accounts"]["of"]
    assert [account["serial"] for account in accounts.values()] == [1000, 1000]
    held = engine.world.occupancy.held
    assert held[1].nodes == (0,)  # the fast one, to which it makes a difference
