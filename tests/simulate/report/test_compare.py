"""Policies side by side: groups, intervals over seeds, and which one counts as best."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from simulate.report.compare import comparison_figure, load_figure, summary_tables
from simulate.report.findings import findings
from simulate.report.intervals import estimate, paired_difference, t_quantile
from simulate.report.metrics import BY_KEY, standing
from simulate.report.study import Study
from simulate.results.tables import ReplayResult


def with_jct(run: ReplayResult, jct: float | None, label: str, seed: int) -> ReplayResult:
    return dataclasses.replace(
        run, label=label, policy=label, seed=seed, summary={**run.summary, "avg_jct": jct}
    )


def study(run: ReplayResult, values: dict[str, list[float]]) -> Study:
    return Study.of(
        [with_jct(run, v, label, k) for label, vs in values.items() for k, v in enumerate(vs)]
    )


def test_interval_of_a_mean_is_students() -> None:
    found = estimate({1: 1.0, 2: 2.0, 3: 3.0})
    assert found.mean == 2.0
    assert found.half_width == pytest.approx(4.303 / np.sqrt(3))
    assert np.isnan(estimate({1: 5.0}).half_width)
    assert np.isnan(estimate({1: 5.0, 2: np.nan}).mean)


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (10, 2.228), (60, 2.0003)])
def test_student_quantiles(freedom: int, quantile: float) -> None:
    assert t_quantile(freedom) == pytest.approx(quantile, abs=1e-3)


def test_differences_pair_the_seeds_that_both_have() -> None:
    found = paired_difference({1: 5.0, 2: 7.0, 9: 100.0}, {1: 4.0, 2: 5.0})
    assert (found.mean, found.seeds) == (1.5, 2)


def test_best_is_the_lowest_mean_and_near_what_pairing_cannot_tell_apart(make) -> None:
    runs = study(make(n=5), {"a": [10, 20, 30], "b": [12, 22, 32.1], "c": [9, 25, 31]})
    found = standing(runs.at(None), BY_KEY["avg_jct"])
    assert found.best == {0}
    assert found.near == {2}


def test_equal_means_have_no_best(make) -> None:
    found = standing(study(make(n=5), {"a": [1.0], "b": [1.0]}).at(None), BY_KEY["avg_jct"])
    assert not found.best


def test_an_unknown_figure_is_never_best(make) -> None:
    run = make(n=5)
    both = Study.of([with_jct(run, None, "a", 1), with_jct(run, 3.0, "b", 1)])
    assert not standing(both.at(None), BY_KEY["avg_jct"]).best


def test_runs_are_grouped_by_label_and_load_with_seeds_together(study_runs) -> None:
    found = Study.of(study_runs)
    assert found.labels == ("fifo", "srtf")
    assert found.loads == (0.8, 1.2)
    assert [len(g.runs) for g in found.groups] == [3, 3, 3, 3]
    assert [g.series for g in found.at(1.2)] == [0, 1]


def test_the_same_run_twice_is_not_two_seeds(make) -> None:
    assert Study.of([make(n=5), make(n=5)]).labels == ("fifo", "fifo #2")


def test_runs_of_two_traces_are_not_averaged(make) -> None:
    found = Study.of([make(n=5, trace="a"), make(n=5, trace="b", seed=2)])
    assert found.labels == ("fifo · a", "fifo · b")


def test_table_has_one_unit_a_column_and_marks_the_best(make) -> None:
    table = summary_tables(study(make(n=5), {"a": [7200.0], "b": [10800.0]}))[0]
    column = table.columns.index("Avg JCT (h)")
    assert [row[column] for row in table.rows] == ["2.00", "3.00"]
    assert (0, column) in table.best


def test_bars_carry_the_interval_and_the_axis_starts_at_zero(make) -> None:
    figure = comparison_figure(study(make(n=5), {"a": [1, 2, 3], "b": [4, 5, 6]}).at(None))
    panel = figure.panels[0]
    assert panel.x.low == 0.0
    assert panel.bars[0].high > panel.bars[0].value > panel.bars[0].low
    assert panel.bars[0].best
    assert not panel.bars[1].best


def test_lines_over_loads_have_a_point_a_load(study_runs) -> None:
    figure = load_figure(Study.of(study_runs))
    for panel in figure.panels:
        for curve in panel.curves:
            assert curve.x.tolist() == [0.8, 1.2]
        assert [t.text for t in panel.x.ticks(440)] == ["0.8", "1.2"]


def test_findings_name_the_best_and_how_sure(make) -> None:
    sure = findings(study(make(n=5), {"a": [10.0, 11.0, 12.0], "b": [20.0, 21.0, 22.1]}))[0]
    assert sure.startswith("a has the lowest average JCT")
    assert "is significant" in sure
    chance = findings(study(make(n=5), {"a": [10.0, 30.0], "b": [20.0, 21.0]}))[0]
    assert "cannot be told from chance" in chance


def test_durations_that_no_unit_suits_have_each_their_own(make) -> None:
    values = {"slow": [2.5 * 3600], "middle": [2 * 3600.0], "fast": [6.0]}
    [outcomes, _] = summary_tables(study(make(n=5), values))
    column = outcomes.columns.index("Avg JCT")
    assert [row[column] for row in outcomes.rows] == ["2.50 h", "2.00 h", "6.00 s"]
    [outcomes, _] = summary_tables(study(make(n=5), values | {"fast": [1800.0]}))
    column = outcomes.columns.index("Avg JCT (h)")
    assert [row[column] for row in outcomes.rows] == ["2.50", "2.00", "0.500"]
