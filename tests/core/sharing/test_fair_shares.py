"""Shares of a tree of tenants: worked examples, and what the formula promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.cluster.description import VirtualCluster
from dlsched.core.cluster.site_rules import SiteRules
from dlsched.core.errors import BadInput
from dlsched.core.sharing.fair_shares import Share, Shares, fair_shares
from dlsched.tenants.fields import Account

RULES = SiteRules(
    accounts=(
        Account(name="research", weight=3.0),
        Account(name="vision", parent="research", weight=1.0),
        Account(name="speech", parent="research", weight=2.0),
        Account(name="teaching", weight=1.0),
    )
)
ACCOUNT_OF = {"ann": "vision", "bob": "speech", "cat": "speech", "dan": "teaching"}
OWNERS = [(user, account, "") for user, account in ACCOUNT_OF.items()]


def shares(used: list[float], rules: SiteRules = RULES, has_jobs: bool = True) -> Shares:
    here = np.full(len(OWNERS), has_jobs)
    return fair_shares(rules, {}, OWNERS, np.array(used), here)


def row(found: Shares, name: str) -> Share:
    return next(each for each in found.rows if each.name == name)


def test_shares_are_products_of_weights_from_the_root_down() -> None:
    found = shares([0.0] * 4)
    expected = {
        "research": 3 / 4, "teaching": 1 / 4, "vision": 1 / 4, "speech": 1 / 2,
        "ann": 1 / 4, "bob": 1 / 4, "cat": 1 / 4, "dan": 1 / 4,
    }  # fmt: skip
    assert {each.name: each.share for each in found.rows} == pytest.approx(expected)
    assert {each.factor for each in found.rows} == {1.0}  # nothing was used


def test_effective_usage_and_factors_by_hand() -> None:
    """Bob has used 600 of 1000 GPU-seconds, ann and dan 200 each."""
    found = shares([200.0, 600.0, 0.0, 200.0])
    effective = {
        "research": 0.8, "teaching": 0.2,  # below the root: their usage
        "vision": 0.2 + (0.8 - 0.2) * 1 / 3,
        "speech": 0.6 + (0.8 - 0.6) * 2 / 3,
    }  # fmt: skip
    effective["ann"] = 0.2 + (effective["vision"] - 0.2) * 1.0
    effective["bob"] = 0.6 + (effective["speech"] - 0.6) / 2
    effective["cat"] = 0.0 + effective["speech"] / 2
    effective["dan"] = 0.2
    assert {each.name: each.effective for each in found.rows} == pytest.approx(effective)
    factors = {name: 2 ** -(value / row(found, name).share) for name, value in effective.items()}
    assert {each.name: each.factor for each in found.rows} == pytest.approx(factors)
    assert row(found, "dan").factor > row(found, "ann").factor > row(found, "bob").factor
    assert row(found, "cat").factor < 1.0  # she has used nothing, but her group has


def test_a_tenant_below_the_root_that_has_used_its_share_has_one_half() -> None:
    found = shares([250.0, 250.0, 250.0, 250.0])
    assert (row(found, "research").factor, row(found, "teaching").factor) == (0.5, 0.5)


def test_users_without_usage_and_jobs_are_no_siblings() -> None:
    found = shares([100.0, 0.0, 0.5, 0.0], has_jobs=False)
    assert [each.name for each in found.rows if each.kind == "user"] == ["ann"]
    assert list(found.of_owner[1:]) == [-1, -1, -1]
    assert list(found.factors[1:]) == [1.0, 1.0, 1.0]


def test_users_share_within_virtual_clusters_or_all_together() -> None:
    owners = [("ann", "", "a"), ("bob", "", "b"), ("ann", "", "b")]
    vcs = {
        "a": VirtualCluster(name="a", gpus=8, guaranteed=8),
        "b": VirtualCluster(name="b", gpus=24, guaranteed=24),
    }
    used, here = np.array([100.0, 0.0, 0.0]), np.ones(3, np.bool_)
    by_vc = fair_shares(SiteRules(), vcs, owners, used, here, "vc")
    assert row(by_vc, "a").share == pytest.approx(1 / 4)
    assert len({*by_vc.of_owner.tolist()}) == 3  # ann in a is not ann in b
    together = fair_shares(SiteRules(level="user"), vcs, owners, used, here)
    assert [each.name for each in together.rows] == ["ann", "bob"]
    assert together.of_owner.tolist() == [0, 1, 0]


@given(
    used=st.lists(st.floats(0, 1e9), min_size=4, max_size=4),
    user=st.integers(0, 3),
    more=st.floats(1.0, 1e9),
)
def test_more_usage_gives_no_better_factor_and_others_no_worse_one(
    used: list[float], user: int, more: float
) -> None:
    before = shares(used).factors
    after = shares([seconds + more * (k == user) for k, seconds in enumerate(used)]).factors
    tiny = 1e-9
    assert after[user] <= before[user] + tiny
    others = [k for k in range(4) if k != user and OWNERS[k][1] not in (OWNERS[user][1],)]
    if user == 3:  # the only one outside of research
        assert (after[others] >= before[others] - tiny).all()
    assert ((after >= 0) & (after <= 1)).all()


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (SiteRules(accounts=(Account(name="a", parent="b"),)), "parent 'b' is not known"),
        (
            SiteRules(accounts=(Account(name="a", parent="b"), Account(name="b", parent="a"))),
            "would be below itself",
        ),
        (SiteRules(accounts=(Account(name="a"), Account(name="a"))), "two account entries"),
        (SiteRules(half_life_s=0.0), "is not above 0"),
    ],
)
def test_rules_that_cannot_be_are_refused(rules: SiteRules, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        rules.check()
