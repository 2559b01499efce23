"""Finish-time fairness: one named variant a picture."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from simulate.report.fairness import fairness_figure, rho_of, shockwave_static
from simulate.report.study import Study
from simulate.results.tables import ReplayResult


def with_rho(run: ReplayResult, variant: str, value: float) -> ReplayResult:
    jobs = dataclasses.replace(run.jobs, extra={"rho": np.full(len(run.jobs), value)})
    said = {**run.summary["finish_time_fairness"], "variant": variant}
    return dataclasses.replace(
        run, jobs=jobs, summary={**run.summary, "finish_time_fairness": said}
    )


def test_static_rho_by_hand(make) -> None:
    run = make(n=32)  # 32 jobs on 16 GPUs: twice as many jobs as GPUs
    assert shockwave_static(run) == pytest.approx(run.jobs.jct / (run.jobs.duration * 2.0))


def test_jobs_without_a_known_duration_have_no_rho(make) -> None:
    run = make(n=3)
    jobs = dataclasses.replace(run.jobs, duration=np.array([np.nan, 0.0, 5.0]))
    known = np.isfinite(shockwave_static(dataclasses.replace(run, jobs=jobs)))
    assert known.tolist() == [False, False, True]


def test_the_policies_own_column_is_taken_when_all_bring_one_variant(make) -> None:
    runs = [with_rho(make("a", n=4), "themis", 0.5), with_rho(make("b", n=4), "themis", 2.0)]
    found = rho_of(Study.of(runs).groups)
    assert found.variant == "themis"
    assert found.values["b"][0].tolist() == [2.0] * 4


def test_variants_are_never_mixed(make) -> None:
    runs = [with_rho(make("a", n=4), "themis", 0.5), with_rho(make("b", n=4), "other", 2.0)]
    found = rho_of(Study.of(runs).groups)
    assert found.variant == "shockwave-static"
    assert "not comparable" in fairness_figure(Study.of(runs).groups).caption


def test_a_run_of_isolated_gives_the_ratio_of_gavels_report(make) -> None:
    fast, alone = make("fast", n=6, shortest_first=True), make("isolated", n=6)
    found = rho_of(Study.of([fast, alone]).groups)
    assert found.variant == "gavel-report"
    assert found.values["fast"][0] == pytest.approx(fast.jobs.jct / alone.jobs.jct)
    assert "isolated" not in found.values


def test_the_title_names_the_variant(make) -> None:
    assert "shockwave-static" in fairness_figure(Study.of([make()]).groups).title
