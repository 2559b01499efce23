"""Leases of a round that end and begin together: the same outcome as one after the other."""

from __future__ import annotations

import math
from typing import Any

import pytest

from simulate import world

HOW: dict[str, dict[str, Any]] = {
    "rounds": {"clock": "rounds", "round_s": 60.0},
    "blox": {"options": ("semantics=blox",), "round_s": 60.0},
    "whole steps": {"options": ("semantics=gavel",), "round_s": 60.0},
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("policy", ["las", "srtf", "tiresias"])
@pytest.mark.parametrize("overhead", [0.0, 13.0])
def test_outcomes_are_those_of_one_after_the_other(
    lab: Any, monkeypatch: pytest.MonkeyPatch, policy: str, how: str, overhead: float
) -> None:
    jobs = [(20.0 * (k % 7), 1 + k % 4, 300.0 + 61 * (k % 9)) for k in range(40)]
    outcomes = []
    for many in (1, math.inf):
        monkeypatch.setattr(world, "MANY", many)
        result = lab.run(jobs, policy, cluster="3x4", overhead=overhead, **HOW[how])
        outcomes.append((lab.outcome(result), result.jobs.preemptions.tolist()))
        assert set(result.jobs.status.tolist()) == {"completed"}
    assert outcomes[0] == outcomes[1]
