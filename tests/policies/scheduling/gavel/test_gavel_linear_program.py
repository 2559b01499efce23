"""The linear programs of Gavel: what happens when the solver loses its way."""

from __future__ import annotations

import highspy
import numpy as np
import pytest

from dlsched.core.errors import PolicyFailed
from dlsched.policies.scheduling.gavel.solvers.linear_program import (
    DUAL,
    NO_DEADLINE,
    PRIMAL,
    LinearProgram,
)

LOST = highspy.HighsModelStatus.kUnknown


def program() -> LinearProgram:
    """Minimise -2x - y with x + y <= 3 and x <= 2."""
    made = LinearProgram(np.array([-np.inf, -np.inf]), np.array([3.0, 2.0]), NO_DEADLINE)
    made.add(-2.0, np.array([0, 1]), np.array([1.0, 1.0]))
    made.add(-1.0, np.array([0]), np.array([1.0]))
    return made


@pytest.mark.parametrize("method", [PRIMAL, DUAL])
def test_a_program_that_was_lost_in_rounding_begins_anew_by_the_other_method(
    method: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The solver cannot be brought there at will, so its first status is replaced."""
    solve, tried = LinearProgram._run, []

    def run(self: LinearProgram, by: int) -> highspy.HighsModelStatus:
        tried.append(by)
        status = solve(self, by)
        return LOST if len(tried) == 1 else status

    monkeypatch.setattr(LinearProgram, "_run", run)
    cost, x, worth = program().solve(method)
    assert tried == [method, DUAL if method == PRIMAL else PRIMAL]
    assert (cost, x.tolist(), worth.tolist()) == (-5.0, [2.0, 1.0], [1.0, 1.0])


def test_a_program_that_is_lost_twice_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinearProgram, "_run", lambda self, by: LOST)
    with pytest.raises(PolicyFailed, match="kUnknown"):
        program().solve()
