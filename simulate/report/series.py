"""Which pictures a set of results has: the figures that the page and the plot files both draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simulate.report.co_residence import co_residence_figures
from simulate.report.compare import comparison_figure, load_figure, summary_tables
from simulate.report.distributions import delay_figure, jct_figure
from simulate.report.drawing.charts import Figure, Table
from simulate.report.elastic import elastic_figures
from simulate.report.fairness import fairness_figure
from simulate.report.gantt import gantt_figure
from simulate.report.interruptions import preemption_figure
from simulate.report.losses import loss_figure
from simulate.report.occupancy import occupancy_figure
from simulate.report.study import Study
from simulate.results.tables import ReplayResult

# Points of a curve over time on a page; shared between the loads so that the file stays small.
MOST_BINS = 420
FEWEST_BINS = 160
# Gantt charts in one file: each may hold some hundred blocks.
MOST_GANTTS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPictures:
    """The figures of the runs at one load."""

    load: float | None
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """Everything a report shows: the summary, what spans loads, and the figures of each load."""

    study: Study
    summary: tuple[Table, ...]
    across: tuple[Figure, ...]
    by_load: tuple[LoadPictures, ...]


def pictures(
    results: Sequence[ReplayResult], *, window: tuple[float, float] | None = None
) -> Pictures:
    """All the figures of some runs; `window` (seconds) is what the Gantt charts show."""
    study = Study.of(results)
    lines = max(len(study.groups), 1)
    bins = max(min(MOST_BINS, 6400 // lines), FEWEST_BINS)
    gantts = max(MOST_GANTTS // max(len(study.loads), 1), 1)
    by_load = []
    for load in study.loads:
        groups = study.at(load)
        figures = (
            comparison_figure(groups),
            jct_figure(groups),
            delay_figure(groups),
            occupancy_figure(groups, bins=bins),
            gantt_figure(groups, window=window, most=gantts),
            *elastic_figures(groups),
            preemption_figure(groups),
            loss_figure(groups),
            *co_residence_figures(groups),
            fairness_figure(groups),
        )
        by_load.append(LoadPictures(load=load, figures=figures))
    across = (load_figure(study),) if len(study.loads) > 1 else ()
    return Pictures(
        study=study, summary=summary_tables(study), across=across, by_load=tuple(by_load)
    )
