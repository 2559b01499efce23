"""Pictures of finish-time fairness ρ: its distribution, its worst value, the share above 1.

ρ has several definitions that must not be mixed, so one picture shows one variant for all runs and
names it. Taken in this order: a column `rho` that every run brings; the ratio to the run of the
policy `isolated` on the same trace, load and seed (`gavel-report`); else `shockwave-static`, which
needs nothing but the outcomes: JCT / (exclusive run time × max(1, jobs / GPUs)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from simulate.report.compare import bar_axis, bars_of
from simulate.report.distributions import cdf_panel
from simulate.report.drawing.charts import Bars, Curves, Figure, Reference, legend_of
from simulate.report.drawing.scale import Quantity, log_number_axis
from simulate.report.intervals import estimate
from simulate.report.metrics import FTF
from simulate.report.study import Group
from simulate.report.wording import number_text, share_text
from simulate.results.finish_time_fairness import VARIANTS, shockwave_rho
from simulate.results.tables import Floats, ReplayResult

COLUMNS = ("rho", FTF)


class Rho(NamedTuple):
    """ρ of every job of every run of every group, NaN where unknown, and the variant's name."""

    variant: str
    values: dict[str, tuple[Floats, ...]]  # by label, one array a seed


def shockwave_static(run: ReplayResult) -> Floats:
    """ρ = JCT / (E · max(1, n/G)); NaN for jobs without a finish or a known duration."""
    gpus = float(np.sum(run.cluster.node_gpus))
    crowd = len(run.counted_jobs) / gpus if gpus > 0 else math.nan
    return shockwave_rho(run.counted_jobs, crowd)


def brought(run: ReplayResult) -> Floats | None:
    """The column of ρ that a run brings."""
    for name in COLUMNS:
        if name in run.counted_jobs.extra:
            return np.asarray(run.counted_jobs.extra[name], dtype=np.float64)
    return None


def variant_of(run: ReplayResult) -> str:
    """The variant that a run's summary names, "" when it names none."""
    said = run.summary.get(FTF)
    return str(said.get("variant") or "") if isinstance(said, Mapping) else ""


def rho_of(groups: Sequence[Group]) -> Rho:
    """One variant of ρ for all the groups of one load."""
    runs = [run for g in groups for run in g.runs]
    columns = [brought(run) for run in runs]
    named = {variant_of(run) for run in runs}
    if runs and all(c is not None for c in columns) and len(named) == 1:
        own = {
            g.label: tuple(c for run in g.runs if (c := brought(run)) is not None) for g in groups
        }
        return Rho(named.pop() or "as the policy reports it", own)
    alone = {r.seed: r for r in runs if r.policy == "isolated"}
    if runs and all(
        run.seed in alone
        and np.array_equal(run.counted_jobs.job_id, alone[run.seed].counted_jobs.job_id)
        for run in runs
    ):
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = {
                g.label: tuple(
                    run.counted_jobs.jct / alone[run.seed].counted_jobs.jct for run in g.runs
                )
                for g in groups
                if g.first.policy != "isolated"
            }
        if ratios:
            return Rho("gavel-report", ratios)
    return Rho("shockwave-static", {g.label: tuple(map(shockwave_static, g.runs)) for g in groups})


def fairness_figure(groups: Sequence[Group]) -> Figure:
    """ρ as a distribution, its maximum and its share above 1."""
    title = "Finish-time fairness ρ"
    found = rho_of(groups)
    shown = [
        g
        for g in groups
        if g.label in found.values and any(np.isfinite(v).any() for v in found.values[g.label])
    ]
    if not shown:
        return Figure(
            key="fairness",
            title=title,
            absent="ρ is not known: no job finished, or true durations are unknown.",
        )
    pooled = {g.label: np.concatenate(found.values[g.label]) for g in shown}
    caption = f"Variant {found.variant}"
    if found.variant in VARIANTS:
        caption += f": {VARIANTS[found.variant]}"
    caption += ". Jobs right of the line at 1 were treated worse than their fair share."
    told = {variant_of(run) for g in groups for run in g.runs} - {"", found.variant}
    if told:
        caption += (
            f" The summary figures use another variant ({', '.join(sorted(told))}); the two are "
            "not comparable."
        )
    return Figure(
        key="fairness",
        title=f"{title} ({found.variant})",
        caption=caption,
        legend=legend_of([g.key for g in shown]),
        stacked=True,
        panels=(
            rho_curves(shown, pooled),
            rho_bars(shown, found, "Worst ρ", lambda v: float(np.nanmax(v)), "number"),
            rho_bars(
                shown,
                found,
                "Share of jobs with ρ > 1",
                lambda v: float(np.mean(v[np.isfinite(v)] > 1.0)),
                "share",
            ),
        ),
    )


def rho_curves(groups: Sequence[Group], pooled: dict[str, Floats]) -> Curves:
    """Cumulative distribution of ρ on a logarithmic axis with the line at 1."""
    known = np.concatenate([v[np.isfinite(v) & (v > 0)] for v in pooled.values()])
    low, high = (
        (float(np.quantile(known, 0.001)), float(known.max())) if known.size else (0.1, 10.0)
    )
    x = log_number_axis("ρ, log scale", min(low, 0.5), max(high, 2.0))
    panel = cdf_panel("Distribution of ρ over completed jobs", groups, pooled, x)
    return replace(panel, references=(Reference(at=1.0, text="ρ = 1"),))


def rho_bars(
    groups: Sequence[Group],
    found: Rho,
    title: str,
    figure: Callable[[Floats], float],
    quantity: Quantity,
) -> Bars:
    """One figure of ρ for each group with its interval over seeds.

    Args:
        groups: of the bars.
        found: ρ of each group's runs.
        title: of the panel.
        figure: of the values of one run, of which some are known.
        quantity: what the figure is.
    """
    estimates = [
        estimate(
            {
                run.seed: figure(v) if np.isfinite(v).any() else math.nan
                for run, v in zip(g.runs, found.values[g.label], strict=True)
            }
        )
        for g in groups
    ]
    lowest = min((e.mean for e in estimates if math.isfinite(e.mean)), default=math.nan)
    best = [i for i, e in enumerate(estimates) if len(groups) > 1 and e.mean == lowest]
    bars = bars_of(groups, estimates, share_text if quantity == "share" else number_text, best)
    return Bars(title=title, x=bar_axis(quantity, bars), bars=bars, note="lower is better")
