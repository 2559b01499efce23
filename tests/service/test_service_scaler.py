"""The number of replicas of a live service, from counted requests and measured times."""

from __future__ import annotations

import io

import pytest

from dlsched.client.submission.services import read_terms
from dlsched.service.scaler import Scaler

TERMS = "within=0.5,share=0.95,most=8,setup=10,window=1,windows=4"


def busy(scaler: Scaler, seconds: int, rate: int, *, begin: int = 0, work_s: float = 0.1) -> None:
    for second in range(begin, begin + seconds):
        scaler.go_on(float(second))
        for _ in range(rate):
            scaler.arrived()
            scaler.served(work_s)
            scaler.answered(work_s, second + 0.5)


def test_a_steady_rate_needs_what_the_model_says_and_quiet_brings_it_down() -> None:
    scaler = Scaler(read_terms(TERMS))
    busy(scaler, 20, 30)
    assert scaler.expected == pytest.approx(30)
    assert scaler.needed == 4  # 3 are busy on average
    busy(scaler, 10, 0, begin=20)
    assert (scaler.expected, scaler.needed) == (0, 1)


def test_the_rate_is_expected_as_far_ahead_as_a_start_takes() -> None:
    scaler = Scaler(read_terms(TERMS))
    for second in range(8):
        busy(scaler, 1, 10 + second, begin=second)
    scaler.go_on(8.0)
    assert scaler.expected == pytest.approx(17 + 10)


def test_nothing_is_concluded_from_few_requests() -> None:
    scaler = Scaler(read_terms(TERMS + ",least=2"))
    busy(scaler, 5, 1)
    assert scaler.needed == 2


def test_a_replica_with_slots_is_as_many_replicas() -> None:
    scaler = Scaler(read_terms(TERMS + ",slots=4"))
    busy(scaler, 20, 60)
    assert scaler.needed == 2  # 7 or 8 requests at once


def test_no_number_is_above_the_most() -> None:
    scaler = Scaler(read_terms(TERMS))
    busy(scaler, 10, 500)
    assert scaler.needed == 8


def test_a_minute_that_breaks_the_promise_adds_a_replica() -> None:
    slow = Scaler(read_terms(TERMS))
    for second in range(70):
        busy(slow, 1, 40, begin=second)
        for _ in range(10):
            slow.answered(2.0, second + 0.5)  # they waited elsewhere
    calm = Scaler(read_terms(TERMS))
    busy(calm, 70, 40)
    assert slow.needed == calm.needed + 1


def test_figures_are_of_the_last_minute_and_say_only_what_is_known() -> None:
    scaler = Scaler(read_terms(TERMS))
    assert set(scaler.figures(0.0)) == {"sla_s", "requests_s", "needed"}
    for second in range(100):
        scaler.answered(0.1 if second < 99 else 9.0, float(second))
    found = scaler.figures(99.0)
    assert (found["p50_s"], found["p99_s"]) == (0.1, 9.0)
    assert found["in_time"] == pytest.approx(60 / 61)
    assert found["requests_s"] == pytest.approx(61 / 60)


def test_the_next_run_goes_on_from_what_was_measured() -> None:
    first, second = Scaler(read_terms(TERMS)), Scaler(read_terms(TERMS))
    busy(first, 20, 30)
    file = io.BytesIO()
    first.save(file)
    file.seek(0)
    second.load(file)
    second.go_on(0.0)
    for _ in range(30):
        second.arrived()
    second.go_on(1.0)
    assert second.needed == first.needed
