"""How many replicas a promise needs, and the rate that is to be expected."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.policies.services.correction import Correction
from dlsched.policies.services.service_times import (
    Exponential,
    Lognormal,
    Measured,
    ServiceTime,
    service_time,
)
from dlsched.policies.services.sizing import Sla, expected_rate, fewest_replicas, trend
from tests.policies.services.response_models import response_model

rates = st.floats(0, 80)
means = st.floats(0.02, 0.5)
services = st.one_of(
    st.builds(lambda mean: Exponential(average=mean), means),
    st.builds(lambda mean: Measured([mean]), means),
    st.builds(
        lambda mean, sigma: Lognormal(mu=math.log(mean) - sigma**2 / 2, sigma=sigma),
        means,
        st.floats(0.1, 1.0),
    ),
)
slas = st.builds(lambda t, p: Sla(within_s=t, share=p), st.floats(0.1, 3), st.floats(0.5, 0.999))


@pytest.mark.parametrize(
    ("rate", "mean", "sla", "model", "replicas"),
    [
        (50, 0.2, Sla(within_s=1, share=0.99), "partitioned", 127),
        (50, 0.2, Sla(within_s=1, share=0.99), "mmn", 12),
        (50, 0.2, Sla(within_s=1, share=0.99), "rd", 12),
        (5, 0.1, Sla(within_s=0.8, share=0.99), "partitioned", 2),
        (5, 0.1, Sla(within_s=0.8, share=0.99), "mmn", 2),
        (5, 0.1, Sla(within_s=0.8, share=0.99), "mgn", 2),
        (5, 0.1, Sla(within_s=0.8, share=0.99), "rd", 1),
    ],
)
def test_the_worked_numbers(rate: float, mean: float, sla: Sla, model: str, replicas: int) -> None:
    service = Exponential(average=mean)
    found = fewest_replicas(rate, service, sla, model=response_model(model, 0.01))
    assert (found.replicas, found.feasible) == (replicas, True)


def test_a_promise_that_single_requests_break_is_impossible_for_any_number() -> None:
    service, sla = Exponential(average=0.2), Sla(within_s=0.4, share=0.95)
    found = fewest_replicas(50, service, sla)
    assert not found.feasible
    assert 0.99 * (1 - math.exp(-2)) <= found.share < sla.share


@given(rate=st.floats(0.1, 80), service=services, sla=slas, more=st.floats(1, 3))
def test_more_load_needs_no_fewer_replicas(
    rate: float, service: ServiceTime, sla: Sla, more: float
) -> None:
    few = fewest_replicas(rate, service, sla).replicas
    assert fewest_replicas(rate * more, service, sla).replicas >= few
    assert fewest_replicas(rate, service, sla, burst=more).replicas >= few


@given(rate=rates, mean=means, sla=slas, longer=st.floats(1, 2))
def test_longer_requests_need_no_fewer(rate: float, mean: float, sla: Sla, longer: float) -> None:
    few = fewest_replicas(rate, Exponential(average=mean), sla)
    many = fewest_replicas(rate, Exponential(average=mean * longer), sla)
    assert many.replicas >= few.replicas or not many.feasible


@given(rate=rates, service=services, sla=slas, easier=st.floats(1, 3))
def test_an_easier_promise_needs_no_more(
    rate: float, service: ServiceTime, sla: Sla, easier: float
) -> None:
    hard = fewest_replicas(rate, service, sla)
    if not hard.feasible:
        return
    slower = Sla(within_s=sla.within_s * easier, share=sla.share)
    fewer = Sla(within_s=sla.within_s, share=sla.share / easier)
    assert fewest_replicas(rate, service, slower).replicas <= hard.replicas
    assert fewest_replicas(rate, service, fewer).replicas <= hard.replicas


@given(rate=rates, service=services, sla=slas)
def test_one_queue_needs_no_more_than_a_queue_for_each(
    rate: float, service: ServiceTime, sla: Sla
) -> None:
    apart = fewest_replicas(rate, service, sla, model=response_model("partitioned"), most=2000)
    if apart.feasible:
        assert fewest_replicas(rate, service, sla).replicas <= apart.replicas


@given(service=services, sla=slas)
def test_without_load_one_replica_is_enough(service: ServiceTime, sla: Sla) -> None:
    found = fewest_replicas(0.0, service, sla)
    assert found.replicas == 1
    assert found.feasible == (service.done_by(sla.within_s) >= sla.share)


@given(time=st.floats(0.01, 3), rate=st.floats(0.01, 500), sigma=st.floats(0.05, 1.2))
def test_the_quadrature_agrees_with_a_fine_sum(time: float, rate: float, sigma: float) -> None:
    service = Lognormal(mu=-1.5, sigma=sigma)
    probability = (np.arange(200_000) + 0.5) / 200_000
    seen = np.linspace(-8, (math.log(time) + 1.5) / sigma, len(probability))
    times = np.exp(-1.5 + sigma * seen)
    density = np.exp(-(seen**2) / 2) / math.sqrt(2 * math.pi)
    expected = np.trapezoid(np.exp(-rate * (time - times)) * density, seen)
    if seen[-1] > -8:
        assert service.decayed(time, rate) == pytest.approx(expected, abs=2e-6)


@given(time=st.floats(0.01, 3), mean=means)
def test_the_exponential_form_is_smooth_where_both_rates_are_equal(
    time: float, mean: float
) -> None:
    service = Exponential(average=mean)
    equal = service.decayed(time, 1 / mean)
    assert equal == pytest.approx(time / mean * math.exp(-time / mean))
    assert service.decayed(time, (1 + 1e-9) / mean) == pytest.approx(equal, rel=1e-6)


def test_a_line_goes_on() -> None:
    line = trend([10, 12, 14], 10)
    assert line.slope == pytest.approx(0.2)
    assert line.after(30) == pytest.approx(20)
    assert expected_rate([10, 12, 14], 10, 30, gateways=4) == pytest.approx(80)
    assert trend([7], 10).after(100) == 7


@given(seen=st.lists(st.floats(0, 100), min_size=1, max_size=12), gateways=st.integers(1, 8))
def test_no_expected_rate_is_negative_and_equal_histories_agree(
    seen: list[float], gateways: int
) -> None:
    found = expected_rate(seen, 10, 300, gateways)
    assert found >= 0
    assert found == expected_rate(list(seen), 10, 300, gateways)


def test_measured_minutes_add_replicas_and_calm_ones_take_them_back() -> None:
    correction = Correction(share=0.9)
    assert [correction.measured(0.8, 8, 60.0 * minute) for minute in range(4)] == [9, 10, 10, 10]
    calm = [correction.measured(0.99, 8, 240.0 + 60.0 * minute) for minute in range(24)]
    assert (calm[9], calm[10], calm[19], calm[20], calm[-1]) == (10, 9, 9, 8, 8)
    correction.measured(0.8, 8, 3000.0)
    correction.measured(0.92, 8, 3060.0)  # kept, but not by far
    assert correction.extra == 1


@pytest.mark.parametrize(
    ("given_words", "message"),
    [
        ({"dist": "lognorm"}, "did you mean 'lognormal'"),
        ({"dist": "lognormal", "mu": -2}, "lognormal: sigma must be a number"),
        ({"dist": "exponential", "mean": 0}, "mean must be above 0"),
        ({"dist": "exponential", "average": 1}, "parameter 'average' is not known"),
        ({"dist": "empirical", "quantiles": [0.1, -1]}, "each above 0 s"),
        ({"dist": "empirical", "quantiles": 3}, "a list of seconds"),
    ],
)
def test_a_wrong_distribution_is_refused(given_words: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        service_time(given_words)


def test_a_wrong_promise_or_model_is_refused() -> None:
    with pytest.raises(BadInput, match="seconds above 0"):
        Sla(within_s=0, share=0.9)
    with pytest.raises(BadInput, match="at most 1"):
        Sla(within_s=1, share=1.5)
    with pytest.raises(BadInput, match="known: mgn"):
        response_model("mg1")
    with pytest.raises(BadInput, match="retry_delay"):
        response_model("rd")
