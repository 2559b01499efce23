"""The printed result of a replay: a line about the trace, a table of the runs, and notes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from dlsched.cli.replay.text_table import TextTable
from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import plural
from simulate.population import offered_load
from simulate.report.compare import column_format
from simulate.report.findings import findings
from simulate.report.intervals import Estimate, paired_difference
from simulate.report.metrics import DEADLINES, SERVICES, Metric, standing, values_of
from simulate.report.study import Group, Study
from simulate.report.wording import duration_text
from simulate.results.finish_time_fairness import variants_of
from simulate.results.tables import ReplayResult
from simulate.sweep.grid import Dimensions
from simulate.sweep.statistics import FIGURES, by_trace, nothing_random
from simulate.traces.trace import Trace

# Zero in most studies; a terminal shows these columns only if they are not.
OFTEN_NOTHING = ("refused", "unfinished", "preemptions", "restarts", "lost_seconds")
DIFFERENCES = ("avg_jct", "median_jct", "p95_jct", "p99_jct", "avg_queueing_delay", "makespan",
               "gpu_utilization")  # fmt: skip


def headline(trace: Trace, cluster: Cluster, loads: Sequence[float | None]) -> Iterator[str]:
    """Describe a trace: jobs, rows left out, and the load that it offers at each `--load`."""
    span = float(trace.submit_time[-1] - trace.submit_time[0]) if len(trace) else 0.0
    offered = [offered_load(trace, cluster, load) for load in loads]
    told = " / ".join("unknown" if math.isnan(load) else f"{load:.3g}" for load in offered)
    if loads != (None,):
        told += f" at load {' / '.join(f'{load:g}' for load in loads)}"
    yield (
        f"{trace.name} ({trace.source}): {plural(len(trace), 'job')} over {duration_text(span)}, "
        f"offered load {told} on {cluster.spec} ({plural(cluster.total_gpus, 'GPU')})"
    )
    if trace.dropped:
        reasons = ", ".join(f"{count:,} x {reason}" for reason, count in trace.dropped.items())
        yield f"  {plural(sum(trace.dropped.values()), 'row')} left out: {reasons}"


def run_line(results: Sequence[ReplayResult], dimensions: Dimensions) -> str:
    """Describe the parts that all runs use, and the values of those that vary."""
    told = []
    for key in ("semantics", "placement", "admission", "fairness", "estimate"):
        values = [str(result.summary.get(key)) for result in results]
        named = tuple(filter(None, getattr(dimensions, key, ())))
        if key != "fairness" or set(values) != {"none"}:
            told.append(f"{key} {', '.join(named or dict.fromkeys(values))}")
    for key in ("launch", "preemption", "metrics", "host"):
        if any(getattr(dimensions, key)):
            told.append(f"{key} {', '.join(getattr(dimensions, key))}")
    if variants := variants_of(results):
        told.append(f"ρ {', '.join(variants)}")
    seeds = dict.fromkeys(str(result.seed) for result in results)
    told.append(f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}")
    return "; ".join(told)


def takeaways(results: Sequence[ReplayResult]) -> Iterator[str]:
    """Return what the figures show, in sentences."""
    if nothing_random(results):  # equal runs show nothing about chance
        results = [result for result in results if result.seed == results[0].seed]
    studies = by_trace(results)
    for trace, study in studies.items():
        for sentence in findings(study):
            yield f"{trace}: {sentence}" if len(studies) > 1 else sentence


def comparison(results: Sequence[ReplayResult], *, terse: bool) -> Iterator[TextTable]:
    """Return a table for each trace, with a row for each label and load.

    With several seeds, a second table has the differences from the first label. `terse` leaves out
    columns with zeros only (for terminals).
    """
    studies = by_trace(results)
    for trace, study in studies.items():
        title = trace if len(studies) > 1 else ""
        yield _figures(study, title, terse=terse)
        if len(study.labels) > 1 and any(len(group.runs) > 1 for group in study.groups):
            yield _differences(study, title)


def _refusals(result: ReplayResult) -> Iterator[str]:
    """Count the jobs that were refused for good, by reason, with an example."""
    jobs = result.jobs
    refused = np.flatnonzero(jobs.status == "refused")
    rows: dict[str, list[int]] = {}
    for row in refused.tolist():
        rows.setdefault(jobs.reason[row].partition(":")[0], []).append(row)
    for these in rows.values():
        first = these[0]
        which = f"job {jobs.job_id[first]}" if len(these) == 1 else f"{len(these):,} jobs"
        example = "" if len(these) == 1 else f", for example job {jobs.job_id[first]}"
        yield f"{which} refused{example}: {jobs.reason[first].removeprefix('Never: ')}"


def _figures(study: Study, title: str, *, terse: bool) -> TextTable:
    blocks = [study.at(load) for load in study.loads]
    groups = [group for block in blocks for group in block]
    table = _rows_of(groups, study)
    table.title = title
    for metric in FIGURES:
        found = [standing(block, metric) for block in blocks]
        estimates = [estimate for each in found for estimate in each.estimates]
        rare = metric in (*DEADLINES, *SERVICES)
        if rare and all(math.isnan(estimate.mean) for estimate in estimates):
            continue
        nothing = all(estimate.mean == 0 for estimate in estimates)
        if terse and nothing and metric.key in OFTEN_NOTHING:
            continue
        before = 0
        best: set[int] = set()
        for block, each in zip(blocks, found, strict=True):
            best |= {before + place for place in each.best | each.near}
            before += len(block)
        _add(table, metric, estimates, best)
    return table


def _differences(study: Study, title: str) -> TextTable:
    """Return the differences paired by seed, which removes the chance that both policies share."""
    pairs = [(group, study.at(load)[0]) for load in study.loads for group in study.at(load)[1:]]
    table = _rows_of([group for group, _ in pairs], study)
    table.title = f"{title + ': ' if title else ''}difference from {study.labels[0]}, by seed"
    for metric in FIGURES:
        if metric.key in DIFFERENCES:
            estimates = [
                paired_difference(values_of(group, metric), values_of(base, metric))
                for group, base in pairs
            ]
            _add(table, metric, estimates, set())
    return table


def _rows_of(groups: Sequence[Group], study: Study) -> TextTable:
    """Return a table with the columns that name its rows."""
    table = TextTable()
    table.add("policy", [group.label for group in groups], left=True)
    if study.loads != (None,):
        table.add("load", ["" if g.load is None else f"{g.load:g}" for g in groups])
    table.names = len(table.columns)
    return table


def _add(table: TextTable, metric: Metric, estimates: Sequence[Estimate], best: set[int]) -> None:
    known = [estimate for estimate in estimates if math.isfinite(estimate.mean)]
    if not known:
        table.add(metric.short, ["-"] * len(estimates))
        return
    unit, say = column_format(metric, known)
    cells = [say(estimate) if math.isfinite(estimate.mean) else "-" for estimate in estimates]
    table.add(f"{metric.short} ({unit})" if unit else metric.short, cells, best=best)


def notes(results: Sequence[ReplayResult]) -> Iterator[str]:
    """Return the warnings about the figures, each once."""
    said: dict[str, list[str]] = {}
    for result in results:
        for warning in result.warnings:
            said.setdefault(warning, []).append(result.label)
        for refusal in _refusals(result):
            said.setdefault(refusal, []).append(result.label)
    labels = dict.fromkeys(result.label for result in results)
    for warning, labelled in said.items():
        about = "" if set(labelled) == set(labels) else f"{', '.join(dict.fromkeys(labelled))}: "
        yield f"note: {about}{warning}"
    if nothing_random(results):
        yield "note: the seeds change nothing: nothing in this study is random"
