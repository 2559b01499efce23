"""Fitting throughput parameters: never worse than the published artifact's optimiser."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.core.goodput.fitting import ORIGIN, Fit, Observations, Starts, _Problem, fit, objective
from dlsched.core.goodput.params import PerfParams
from dlsched.core.goodput.throughput import accumulation_time, optimiser_time

PERF = PerfParams(0.05, 0.002, 0.10, 0.01, 0.02, 0.003, 1.5)
KEYS = (
    *((1, 1, 64), (1, 1, 128), (1, 1, 256), (1, 2, 64), (1, 4, 128)),
    *((2, 8, 64), (2, 8, 256), (4, 16, 128)),
)
PLAUSIBLE = (
    *((0.005, 1.0), (1e-5, 0.05), (0.01, 1.5), (1e-3, 0.05)),
    *((0.01, 0.5), (1e-3, 0.05), (1.0, 4.0)),
)


def noiseless(perf: PerfParams, keys: object = KEYS) -> Observations:
    """The times that a job with these parameters would measure."""
    nodes, replicas, local = np.array(keys).T
    compute = accumulation_time(perf, local)
    return Observations(
        nodes, replicas, local, compute, optimiser_time(perf, nodes, replicas, local)
    )


def measured(*rows: tuple[int, int, int, float, float]) -> Observations:
    nodes, replicas, local, compute, last = np.array(rows).T
    return Observations(
        nodes.astype(np.int64), replicas.astype(np.int64), local.astype(np.int64), compute, last
    )


def test_the_objective() -> None:
    seen = noiseless(PERF)
    assert objective(PERF, seen) == pytest.approx(0.000575, rel=5e-6)
    assert objective(PerfParams(*ORIGIN), seen) == pytest.approx(2.94739, rel=5e-6)


@pytest.mark.parametrize("starts", ["single", "multi"])
def test_it_finds_what_the_times_were_made_from(starts: Starts) -> None:
    found = fit(noiseless(PERF), starts=starts)
    assert found.objective <= 0.0826258
    assert list(found.params) == pytest.approx(list(PERF), rel=1e-2)


# what the artifact's fit reached on the same observations
SMALL: dict[str, tuple[Observations, float, list[float]]] = {
    "one size on one GPU": (measured((1, 1, 128, 0.306, 0.306)), 0.02, [0.153, 0.00119531]),
    "two GPUs, one size": (
        measured((1, 1, 128, 0.306, 0.306), (1, 2, 128, 0.306, 0.33)),
        1.08867e-5,
        [0.153, 0.00119531],
    ),
    "one node": (
        measured(
            (1, 1, 64, 0.178, 0.178),
            (1, 2, 64, 0.178, 0.19),
            (1, 4, 64, 0.178, 0.2),
            (1, 4, 128, 0.306, 0.33),
        ),
        0.00616057,
        [0.05, 0.002, 0.0134594, 0.00561054, 0.0122358, 0.00510049, 1],
    ),
}


@pytest.mark.parametrize("starts", ["single", "multi"])
@pytest.mark.parametrize("case", list(SMALL))
def test_few_observations(case: str, starts: Starts) -> None:
    seen, reached, params = SMALL[case]
    found = fit(seen, starts=starts)
    assert found.objective <= reached * (1 + 1e-3)
    assert list(found.params)[: len(params)] == pytest.approx(params, rel=2e-3)


def test_what_was_never_observed_looks_free() -> None:
    found = fit(measured((1, 1, 128, 0.306, 0.306))).params
    assert list(found)[2:] == pytest.approx([1.1e-8, 1.1e-8, 1e-8, 1e-8, 1.001], rel=1.1e-3)
    one_node = fit(measured((1, 1, 64, 0.1, 0.1), (1, 2, 64, 0.1, 0.15))).params
    assert one_node.alpha_n == pytest.approx(1.1 * float(one_node.alpha_r))
    assert one_node.beta_r == 1e-8


def test_a_warm_start_is_never_worse_than_where_it_began() -> None:
    seen = noiseless(PERF)
    warm = PERF._replace(alpha_r=0.021, beta_n=1e-8)
    assert fit(seen, starts="single", warm=warm).objective <= objective(PERF, seen) * (1 + 1e-3)


def test_the_derivatives_are_those_of_the_objective() -> None:
    seen = noiseless(PERF._replace(gamma=2.5))
    problem = _Problem(seen)
    point = np.array([*np.log(np.array(PERF[:6])), 1.5])
    _, gradient, _ = problem._look(point[None])
    for place in range(7):
        values = []
        for delta in (-1e-6, 1e-6):
            moved = point.copy()
            moved[place] += delta
            values.append(
                objective(PerfParams(*[*np.exp(moved[:6]).tolist(), float(moved[6])]), seen)
            )
        assert gradient[0, place] == pytest.approx((values[1] - values[0]) / 2e-6, abs=1e-6)


def test_times_that_cannot_be_are_refused() -> None:
    nothing = np.zeros(0, np.int64)
    with pytest.raises(BadInput, match="at least one"):
        fit(Observations(nothing, nothing, nothing, np.zeros(0), np.zeros(0)))
    with pytest.raises(BadInput, match="above 0"):
        fit(measured((1, 1, 8, 0.1, float("nan"))))
    with pytest.raises(BadInput, match="above 0"):
        fit(measured((1, 1, 8, 0.0, 0.1)))


@settings(max_examples=40, deadline=None)
@given(st.tuples(*(st.floats(low, high) for low, high in PLAUSIBLE)))
def test_it_explains_what_the_model_made(params: tuple[float, ...]) -> None:
    perf = PerfParams(*params)
    found: Fit = fit(noiseless(perf))
    assert np.isfinite(np.array(found.params)).all()
    assert found.objective <= objective(perf, noiseless(perf)) * 1.1 + 1e-2
