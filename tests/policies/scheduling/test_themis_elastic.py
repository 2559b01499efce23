"""Themis' apps of jobs that can use several numbers of GPUs: they bid for each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlsched.core.speed.throughput_table import JobKind, Measurement, ThroughputTable
from dlsched.policies.registry import make
from dlsched.policies.scheduling.themis.app import App, Job, Machines
from dlsched.policies.scheduling.themis.bidding import sizes_of

LINEAR = [1.0, 2.0, 3.0, 4.0]
WANING = [1.0, 1.6, 2.0, 2.2]


def table(rates: list[list[float]]) -> ThroughputTable:
    return ThroughputTable(
        [
            Measurement(gpu_type="v100", scale=k, kind=JobKind(f"m{job}"), rate=rate)
            for job, curve in enumerate(rates)
            for k, rate in enumerate(curve, 1)
        ]
    )


def run(lab: Any, rates: list[list[float]], work: list[float], **settings: Any) -> Any:
    count = len(work)
    trace = lab.trace(
        [(0, 1, w) for w in work],
        model=[f"m{k}" for k in range(count)],
        total_iterations=work,
        min_gpus=[1] * count,
        max_gpus=[len(curve) for curve in rates],
        **settings.pop("columns", {}),
    )
    settings.setdefault("policy", "themis")
    return lab.run(
        trace, settings.pop("policy"), cluster="1x4:v100", throughputs=table(rates), **settings
    )


def test_a_bid_goes_by_what_so_many_gpus_do() -> None:
    offer = Machines((0,))
    job = Job(row=0, remaining=100.0, least=1, most=4, curve=(0.0, *WANING))
    one = App([job], offer, elapsed=0.0, ideal=100.0)
    found = [one.value((gpus,)) for gpus in range(5)]
    assert found == pytest.approx([0.0, 1.0, 1.6, 2.0, 2.2])
    assert one.rho_at_best(4) == pytest.approx(1 / 2.2)


@pytest.mark.parametrize("policy", ["themis", "themis-greedy"])
def test_a_job_alone_uses_all_gpus_that_help(lab: Any, policy: str) -> None:
    result = run(lab, [LINEAR], [400.0], policy=policy)
    assert result.jobs.finish_time.tolist() == [100.0]


@pytest.mark.parametrize("rates", [[LINEAR, LINEAR], [LINEAR, WANING]])
def test_two_share_the_machine(lab: Any, rates: list[list[float]]) -> None:
    options = ("semantics=rounds", "knob=0", "lease_s=60")
    result = run(lab, rates, [400.0, 400.0], options=options, round_s=60.0)
    assert result.jobs.first_start_time.tolist() == [0.0, 0.0]
    assert result.summary["makespan"] <= 400.0 / rates[1][1]


def test_a_group_divides_what_it_won_among_its_jobs(lab: Any) -> None:
    columns = {"group": ["g", "g", "h"]}
    options = ("semantics=rounds", "knob=0", "lease_s=60")
    result = run(lab, [LINEAR] * 3, [200.0] * 3, columns=columns, options=options, round_s=60.0)
    assert result.summary["completed"] == 3
    assert result.summary["makespan"] == pytest.approx(150.0, rel=0.35)


class Known:
    """Every job scales so."""

    def rates(self, rows: Any, most: int) -> Any:
        return np.tile(WANING[:most], (len(rows), 1))


def test_work_on_other_numbers_of_gpus_counts_against_that_on_the_gang(lab: Any) -> None:
    ctx = lab.context("1x4", [2, 2])
    ctx.table.min_gpus[:] = [1, -1]
    ctx.table.max_gpus[:] = [4, -1]
    ctx.perf = replace(ctx.perf, by_count=Known())
    elastic, fixed = sizes_of(np.arange(2), ctx).values()
    assert (elastic.least, elastic.most) == (1, 4)
    # 2 GPUs are its gang, and worth 2; one does 1 / 1.6 of that
    assert elastic.curve == pytest.approx([0.0, 2 / 1.6, 2.0, 2 * 2.0 / 1.6, 2 * 2.2 / 1.6])
    assert (fixed.least, fixed.most) == (2, 2)
    policy = make("scheduling", "themis", {})
    policy._update(ctx)
    assert [account.widest for account in policy._accounts.of.values()] == [4, 2]


def test_what_is_not_known_to_scale_bids_for_its_gang(lab: Any) -> None:
    trace = lab.trace([(0, 2, 100.0)], min_gpus=[1], max_gpus=[4])
    assert lab.run(trace, "themis", cluster="1x4").jobs.finish_time.tolist() == [100.0]


def test_a_payment_takes_gpus_of_an_elastic_app(lab: Any) -> None:
    # each would fairly have two GPUs and keeps its part of them; what is left is given back
    result = run(
        lab,
        [LINEAR, LINEAR],
        [4000.0, 4000.0],
        options=("semantics=rounds", "knob=0"),
        round_s=60.0,
    )
    sizes = result.jobs.gpu_seconds
    assert sizes[0] == pytest.approx(sizes[1], rel=0.35)
    assert result.summary["gpu_utilization"] > 0.9
