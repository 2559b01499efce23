"""Reward curves of the sheet on SLA what-if, in exact fractions."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from dlsched.core.rewards import RewardCurve

pytestmark = pytest.mark.fidelity


def test_values_are_the_exact_fractions(data_root: Path) -> None:
    file = data_root / "classic" / "sla-whatif" / "reward.json"
    if not file.exists():
        pytest.skip(f"no {file}")
    cases = json.loads(file.read_text())
    assert cases
    for case in cases:
        curve = RewardCurve(tuple((Fraction(at), Fraction(value)) for at, value in case["curve"]))
        found = [curve.at(Fraction(time)) for time in case["points"]]
        assert found == [Fraction(value) for value in case["expected"]], case["id"]
