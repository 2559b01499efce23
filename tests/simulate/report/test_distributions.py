"""Queueing delays by category: percentiles are numpy's, no job is lost."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from simulate.report.distributions import delay_figure, gang_categories, jct_figure, vc_categories
from simulate.report.study import Study


def test_ranges_are_the_percentiles_of_the_category(make) -> None:
    run = make(n=80)
    panel = delay_figure(Study.of([run]).groups).panels[0]
    sizes = np.unique(run.jobs.num_gpus)
    for size, row in zip(sizes.tolist(), panel.rows, strict=True):
        delays = run.jobs.queueing_delay[run.jobs.num_gpus == size]
        expected = np.percentile(delays, (5, 25, 50, 75, 95))
        assert list(row.ranges[0][3:]) == pytest.approx(expected.tolist())
        assert row.ranges[0].jobs == delays.size


def test_many_sizes_are_binned_by_powers_of_two(make) -> None:
    run = make(n=60)
    jobs = dataclasses.replace(run.jobs, num_gpus=np.arange(1, 61))
    found = gang_categories(Study.of([dataclasses.replace(run, jobs=jobs)]).groups)
    assert found.labels[:4] == ("1 GPU", "2 GPUs", "3–4 GPUs", "5–8 GPUs")
    assert found.labels[-1] == "33–64 GPUs"
    assert found.member["fifo"][[0, 3, 4, 59]].tolist() == [0, 2, 3, 6]


def test_very_large_gangs_share_the_last_bin(make) -> None:
    run = make(n=60)
    jobs = dataclasses.replace(run.jobs, num_gpus=np.arange(1, 61) ** 3)
    found = gang_categories(Study.of([dataclasses.replace(run, jobs=jobs)]).groups)
    assert found.labels[-1].endswith("and more GPUs")
    assert len(found.labels) == len(np.unique(found.member["fifo"]))


def test_the_largest_virtual_clusters_are_named_and_the_rest_joined(make) -> None:
    run = make(n=200, vcs=tuple(f"vc{i}" for i in range(25)))
    found = vc_categories(Study.of([run]).groups)
    assert found is not None
    assert len(found.labels) == 10
    assert found.labels[-1] == "16 others"
    assert np.bincount(found.member["fifo"]).sum() == 200


def test_one_virtual_cluster_is_no_choice(make) -> None:
    assert vc_categories(Study.of([make(vcs=("",))]).groups) is None


def test_cumulative_curves_end_at_all_jobs(make) -> None:
    run = make(n=30)
    panel = jct_figure(Study.of([run]).groups).panels[0]
    curve = panel.curves[0]
    assert curve.y[-1] == 1.0
    assert np.isin(np.unique(run.jobs.jct), curve.x).all()
