"""What the gateways of a service need, and the file that describes services."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlsched.core.errors import BadInput
from dlsched.policies.services.service_times import Exponential
from dlsched.policies.services.sizing import Sla, expected_rate, fewest_replicas, rates_kept
from simulate.clusters.cluster_files import parse_cluster_spec
from simulate.services.demand import Demand
from simulate.services.description import Requests, Service
from simulate.services.files import read_services

SLA, TIME = Sla(within_s=0.5, share=0.95), Exponential(average=0.1)


def changes(demand: Demand) -> dict[float, tuple[int, ...]]:
    found = {}
    while (when := demand.next_change()) < math.inf:
        found[when] = demand.take()
    return found


@settings(max_examples=40)
@given(
    rates=st.lists(st.floats(0, 100), min_size=1, max_size=12),
    windows=st.integers(1, 6),
    burst=st.floats(1, 2),
    setup_s=st.sampled_from([0.0, 15.0, 60.0]),
)
def test_each_window_asks_for_what_a_gateway_would_compute_by_itself(
    rates: list[float], windows: int, burst: float, setup_s: float
) -> None:
    step, window_s = 25.0, 10.0
    times = tuple(step * k for k in range(len(rates)))
    service = Service(
        name="ask",
        sla=SLA,
        service_time=TIME,
        requests=Requests(times=times, rates=tuple(rates)),
        most=12,
        windows=windows,
        burst=burst,
        setup_s=setup_s,
        window_s=window_s,
    )
    found = changes(Demand(service, 0, 0))
    now, seen = found.pop(0.0)[0], []
    for window in range(1, 60):
        begin, end = (window - 1) * window_s, window * window_s
        middles = begin + (np.arange(10) + 0.5) * (end - begin) / 10
        steps = np.minimum((middles // step).astype(int), len(rates) - 1)
        seen.append(float(np.array(rates)[steps].mean()))
        expected = expected_rate(seen[-windows:], window_s, setup_s)
        needed = min(fewest_replicas(expected, TIME, SLA, burst=burst, most=12).replicas, 12)
        now = found.get(end, (now,))[0]
        assert now == needed, (window, expected)


def test_several_gateways_keep_each_replica_calm_and_agree_without_a_word() -> None:
    alone = {"name": "ask", "sla": SLA, "service_time": TIME, "most": 40}
    requests = Requests(times=(0.0, 200.0), rates=(10.0, 200.0))
    one = changes(Demand(Service(**alone, requests=requests), 0, 0))
    three = changes(Demand(Service(**alone, requests=requests, gateways=3), 0, 0))
    assert all(len(set(each)) == 1 for each in three.values())
    assert max(each[0] for each in three.values()) >= max(each[0] for each in one.values())
    assert list(three.values())[-1][0] == 25  # 200/s · 0.1 s / 0.8
    assert list(one.values())[-1][0] == fewest_replicas(200.0, TIME, SLA).replicas < 25


def test_gateways_that_see_chance_arrivals_differ_little_and_repeat_with_the_seed() -> None:
    requests = Requests(times=(0.0,), rates=(100.0,), period_s=10_000.0)
    noisy = Service(
        name="ask", sla=SLA, service_time=TIME, requests=requests, most=40, gateways=2, noise=True
    )
    first, again, other = (Demand(noisy, seed, 0) for seed in (1, 1, 2))
    rows = []
    for demand in (first, again, other):
        row = []
        for _ in range(50):
            when = demand.next_change()
            row.append((when, demand.take()))
        rows.append(row)
    assert rows[0] == rows[1] != rows[2]
    assert {abs(a - b) for _, (a, b) in rows[0]} - {0}


def test_requests_are_counted_over_steps_and_periods() -> None:
    once = Requests(times=(0.0, 10.0), rates=(1.0, 3.0))
    assert once.expected(np.array([0.0, 10.0, 15.0])).tolist() == [0, 10, 25]
    daily = Requests(times=(0.0, 10.0), rates=(1.0, 3.0), period_s=20.0)
    assert daily.expected(np.array([20.0, 35.0])).tolist() == [40, 65]
    assert daily.in_windows(-1, 3, 10.0).tolist() == [0, 1, 3]


@given(rate=st.floats(0, 90), share=st.floats(0.5, 0.99), most=st.just(20))
def test_rates_kept_say_the_same_as_the_search(rate: float, share: float, most: int) -> None:
    sla = Sla(within_s=0.5, share=share)
    kept = rates_kept(TIME, sla, most)
    assert (np.diff(kept) > 0).all()
    sizing = fewest_replicas(rate, TIME, sla, most=most)
    found = int(np.searchsorted(kept, rate)) + 1
    assert min(found, most) == sizing.replicas


FILE = """
[[services]]
name = "ranker"
sla_s = 0.2
share = 0.99
service_time = { dist = "lognormal", mu = -2.8, sigma = 0.4 }
rates = "day.csv"
period_s = 86400
most = 6
"""


def test_a_file_of_services_is_read(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("time,rate\n0,5\n3600,20\n")
    (tmp_path / "s.toml").write_text(FILE)
    (read,) = read_services(tmp_path / "s.toml", parse_cluster_spec("2x4"))
    assert (read.name, read.most, read.least, read.setup_s) == ("ranker", 6, 1, 60.0)
    assert read.requests == Requests(times=(0, 3600), rates=(5, 20), period_s=86400)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "ranker"', "", "service 1: needs a name"),
        ("most = 6", "", "service ranker: most is missing"),
        ("most = 6", "most = 6\nleast = 7", "most is 6, below least, 7"),
        ("most = 6", "most = 6\ngpus = 5", "a replica with 5 GPUs; the largest node has 4"),
        ("most = 6", "most = 9\nleast = 9", "always warm need 9 GPUs, the cluster has 8"),
        ("most = 6", "most = 6\nmoist = 1", "service 1: 'moist' is not known"),
        ("share = 0.99", "share = 1.2", "at most 1 is needed"),
        ("sla_s = 0.2", 'sla_s = "x"', "sla_s must be a number from 0 on, not 'x'"),
        ("sigma = 0.4", "sigma = 0.0", "sigma must be above 0"),
        ('"day.csv"', '"night.csv"', "night.csv: no such file"),
        ('"day.csv"', "[[5, 1.0]]", "times must ascend and begin with 0"),
        ('"day.csv"', "[[0, -1.0]]", "rates: rate must be a number from 0 on"),
        ("period_s = 86400", "period_s = 3600", "3600 s is not below period_s"),
        ("[[services]]", "[[service]]", "'service' is not known; known: services"),
        ("most = 6", "most = 6 6", "s.toml:9: not TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    (tmp_path / "day.csv").write_text("time,rate\n0,5\n3600,20\n")
    (tmp_path / "s.toml").write_text(FILE.replace(old, new))
    with pytest.raises(BadInput, match="toml") as refused:
        read_services(tmp_path / "s.toml", parse_cluster_spec("2x4"))
    assert message in str(refused.value)
