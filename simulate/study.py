"""Studies from Python: policies × parts × loads × seeds over traces, and what came of them.

    import dlsched

    found = dlsched.study("a.csv", cluster="16x8:v100", policies=["fifo", "srtf"], seeds=[1, 2])
    print(found.means("avg_jct", "p99_jct"))
    found.difference("avg_jct", "srtf", "fifo")

It does what `dlsched replay` does, with the same words, checks and figures. Runs go to processes of
this machine; a script that is not a notebook must therefore guard its own start with
`if __name__ == "__main__":`, or say `executor="processes:1"`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from dlsched.composition.settings import Costs
from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import BadInput, DlschedError, not_known
from simulate.clusters.cluster_files import open_cluster
from simulate.interference import interference_said
from simulate.report.intervals import Estimate, estimate, paired_difference
from simulate.report.metrics import Metric, values_of
from simulate.report.study import Group
from simulate.results.columns import Columns
from simulate.results.output import RUN_LABELS, job_columns, run_columns
from simulate.results.tables import ReplayResult
from simulate.settings import RunSettings
from simulate.sweep import Dimensions, Store, conduct, executor_of
from simulate.sweep.isolated import compared
from simulate.sweep.planning import Plan, Sources, plan
from simulate.sweep.run import Run
from simulate.sweep.statistics import FIGURES, by_trace
from simulate.traces.options import ReadOptions
from simulate.traces.trace import Trace

T = TypeVar("T")
OneOrMore: TypeAlias = T | Sequence[T]
_FIGURES = {metric.key: metric for metric in FIGURES}


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResults:
    """What came of a study.

    Attributes:
        plan: its runs and inputs.
        results: of the runs that finished, in the order of the grid.
        failures: run and reason of those that did not.
    """

    plan: Plan
    results: tuple[ReplayResult, ...]
    failures: tuple[tuple[str, str], ...] = ()

    @property
    def runs(self) -> Columns:
        """A row for each run: trace, label, load, seed, and the figures of its summary.

        The names are those of `--summary-out`; figures in objects have dots
        (`deadlines.met_share`). Seconds; NaN where a figure is not known.
        """
        return run_columns(self.results)

    @property
    def jobs(self) -> Columns:
        """A row for each job of each run: its trace, label, load and seed, then as in `--jobs-out`.

        A column that one policy adds is unknown for the others. Seconds from the trace's start.
        """
        tables = [job_columns(result.jobs) for result in self.results]
        names = dict.fromkeys(name for table in tables for name in table)
        found: dict[str, list[Any]] = {name: [] for name in (*RUN_LABELS, *names)}
        for result, table in zip(self.results, tables, strict=True):
            count = len(result.jobs)
            for name in RUN_LABELS:
                found[name] += [getattr(result, name)] * count
            for name in names:
                found[name] += table[name].tolist() if name in table else [None] * count
        return Columns(found)

    def means(self, *figures: str) -> Columns:
        """Means over seeds with half widths of their 95 % intervals (Student's t).

        Args:
            figures: names such as `avg_jct`; without any, all that a run knows.

        Returns:
            a row for each trace, load and label: `FIGURE` and `FIGURE_half_width` (NaN for a single
            seed).

        Raises:
            BadInput: a figure of another name.
        """
        wanted = [_figure(name) for name in figures or _FIGURES]
        rows: list[dict[str, Any]] = []
        for trace, group in self._groups():
            row = {"trace": trace, "load": group.load, "label": group.label}
            row["seeds"] = len(group.runs)
            for metric in wanted:
                found = estimate(values_of(group, metric))
                row[metric.key] = found.mean
                row[f"{metric.key}_half_width"] = found.half_width
            rows.append(row)
        named = {m.key for m in wanted if not figures and all(math.isnan(r[m.key]) for r in rows)}
        dropped = named | {f"{key}_half_width" for key in named}
        names = [
            name for name in dict.fromkeys(n for row in rows for n in row) if name not in dropped
        ]
        return Columns({name: [row[name] for row in rows] for name in names})

    def difference(
        self,
        figure: str,
        label: str,
        base: str,
        *,
        load: float | None = None,
        trace: str | None = None,
    ) -> Estimate:
        """`label` minus `base` in a figure, paired by seed, with its 95 % interval.

        Pairs share trace, load and seed, so that the chance that both had does not count.

        Args:
            figure: such as `avg_jct`.
            label: of runs, as `runs["label"]` has it.
            base: of the runs to compare with.
            load: at which; None: as recorded, or the only one.
            trace: on which; None: the only one.

        Raises:
            BadInput: there are no such runs.
        """
        metric = _figure(figure)
        values = [values_of(self._group(name, load, trace), metric) for name in (label, base)]
        return paired_difference(values[0], values[1])

    def write_report(self, path: str | Path, *, title: str | None = None) -> None:
        """Write the report, one HTML file that needs no network.

        Raises:
            BadInput: the file cannot be written.
        """
        from simulate.report import write_report  # noqa: PLC0415  # rarely needed

        write_report(self.results, path, title=title)

    def write_plots(self, folder: str | Path) -> None:
        """Write the report's plots as SVG and PDF; needs matplotlib."""
        from simulate.report import write_plots  # noqa: PLC0415

        write_plots(self.results, folder)

    def latex(self, *figures: str) -> str:
        """A table for a paper: labels in rows, figures in columns, the best of each column bold.

        Args:
            figures: names such as `avg_jct`; without any, those of the printed table.
        """
        from simulate.report.latex import latex_tables  # noqa: PLC0415

        return latex_tables(self.results, [_figure(name) for name in figures] or FIGURES)

    def _groups(self) -> Iterable[tuple[str, Group]]:
        for trace, study in by_trace(self.results).items():
            for load in study.loads:
                for group in study.at(load):
                    yield trace, group

    def _group(self, label: str, load: float | None, trace: str | None) -> Group:
        named = [(t, g) for t, g in self._groups() if g.label == label and trace in (None, t)]
        if load is not None or len({group.load for _, group in named}) > 1:
            named = [(t, g) for t, g in named if g.load == load]
        if not named:
            known = sorted({g.label for _, g in self._groups()})
            at = "" if load is None else f" at load {load:g}"
            raise BadInput(f"no runs called {label!r}{at}; known: {', '.join(known)}")
        if len(named) > 1:
            traces = ", ".join(name for name, _ in named)
            raise BadInput(f"{label!r} ran on several traces ({traces}): name one with trace=")
        return named[0][1]


def study(
    trace: OneOrMore[str | Path | Trace],
    *,
    cluster: str | Path | Cluster,
    policies: OneOrMore[str] = "fifo",
    placement: OneOrMore[str] = "",
    admission: OneOrMore[str] = "",
    fairness: OneOrMore[str] = "",
    estimate: OneOrMore[str] = "",
    launch: OneOrMore[str] = "",
    preemption: OneOrMore[str] = "",
    metrics: OneOrMore[str] = "",
    host: OneOrMore[str] = "",
    loads: OneOrMore[float | None] = None,
    seeds: OneOrMore[int] = 0,
    options: Mapping[str, object] | Sequence[str] = (),
    semantics: str = "",
    clock: str = "",
    round_s: float | None = None,
    restart_overhead: float | None = None,
    checkpoint_interval: float | None = None,
    min_run: float = 0.0,
    interference: str | float = "",
    warmup_s: float = 0.0,
    track: tuple[str, str] | None = None,
    mtbf_s: float | None = None,
    mttr_s: float = 3600.0,
    events: str | Path = "",
    profiles: str | Path = "",
    services: str | Path = "",
    format: str = "auto",
    workload: str | None = None,
    skip_bad_rows: bool = False,
    compare_isolated: bool = False,
    record: bool = True,
    executor: str = "processes",
    resume: str | Path | None = None,
    on_finished: Callable[[str], None] = lambda title: None,
) -> StudyResults:
    """Replay traces under every combination of policies, parts, loads and seeds.

    The words are those of `dlsched replay`; where a plural may be given, one value will do, too.

    Args:
        trace: files or folders of any known format, or traces in memory; each a workload.
        cluster: `16x8:v100`, a TOML file, or a description.
        policies: names; this and the next eight: one or several.
        placement: see `dlsched policy list`, as for the other parts.
        admission: which jobs enter the queue.
        fairness: how tenants share.
        estimate: what policies know of durations.
        launch: what a start costs.
        preemption: which progress a suspension saves.
        metrics: what jobs report.
        host: which processors and memory jobs get.
        loads: submit gaps are divided by these; None: as recorded.
        seeds: of everything random.
        options: KEY: VALUE, or KEY=VALUE texts; see `-o`.
        semantics: profile of the time model.
        clock: rounds or events.
        round_s: seconds of a round.
        restart_overhead: seconds without progress after each start.
        checkpoint_interval: seconds between checkpoints.
        min_run: seconds for which a job is not preempted after a start.
        interference: how jobs on the same GPUs slow each other down: none, measured, stages or
            utilisation; or the part of its speed that a training on several nodes loses beside
            another one.
        warmup_s: jobs submitted earlier do not count.
        track: first and last job id that count.
        mtbf_s: mean seconds between failures of a node; None: nodes do not fail.
        mttr_s: mean seconds until it returns.
        events: file of events of nodes.
        profiles: throughput tables, or a folder of measured applications.
        services: file of services whose replicas lend GPUs to the jobs.
        format: of the files.
        workload: of several in a file, SET:NUMBER.
        skip_bad_rows: count rows and jobs that cannot be, instead of refusing them.
        compare_isolated: measure finish-time fairness against the policy isolated.
        record: keep what reports and plots draw over time.
        executor: processes, processes:N (processes:1: this one) or dask://HOST:PORT.
        resume: folder in which finished runs are kept, and not done again.
        on_finished: is called with the title of each run that has ended.

    Raises:
        BadInput: a word, file or combination is wrong; nothing has run.
        DlschedError: no run finished, or the executor cannot work.
    """
    given = options.items() if isinstance(options, Mapping) else ()
    source, neighbours = interference_said(interference)
    texts = [f"{key}={value}" for key, value in given] or [*options]
    base = RunSettings(
        options=(*texts, *([f"semantics={semantics}"] if semantics else [])),
        clock=clock,
        round_s=round_s,
        costs=Costs(
            restart_overhead=restart_overhead,
            checkpoint_interval=checkpoint_interval,
            min_run=min_run,
            interference=neighbours,
        ),
        warmup_s=warmup_s,
        track=track,
        interference=source,
        mtbf_s=mtbf_s,
        mttr_s=mttr_s,
        record=record,
    )
    dimensions = Dimensions(
        policy=_several(policies),
        placement=_several(placement),
        admission=_several(admission),
        fairness=_several(fairness),
        estimate=_several(estimate),
        launch=_several(launch),
        preemption=_several(preemption),
        metrics=_several(metrics),
        host=_several(host),
        load=_several(loads),
        seed=_several(seeds),
    )
    sources = Sources(
        traces=tuple(each if isinstance(each, Trace) else str(each) for each in _several(trace)),
        format=format,
        options=ReadOptions(skip_bad_rows=skip_bad_rows, workload=workload),
        events=str(events),
        profiles=str(profiles),
        services=str(services),
    )
    described = cluster if isinstance(cluster, Cluster) else open_cluster(str(cluster))
    planned = plan(dimensions, base, sources, described, compare_isolated=compare_isolated)
    return _conducted(planned, executor, resume, on_finished)


def _conducted(
    planned: Plan, executor: str, resume: str | Path | None, on_finished: Callable[[str], None]
) -> StudyResults:
    runs = (*planned.runs, *planned.isolated)
    traces = planned.inputs.traces

    def title(run: Run) -> str:
        return f"{traces[run.trace].name}: {run.title}" if len(traces) > 1 else run.title

    outcome = conduct(
        planned.inputs,
        runs,
        lambda missing: executor_of(executor, runs=missing),
        store=None if resume is None else Store(Path(resume), planned.inputs),
        on_finished=lambda finished: on_finished(title(finished[0])),
    )
    if outcome.interrupted:
        raise KeyboardInterrupt
    found = compared(outcome.results, planned.runs, planned.isolated)
    failures = tuple((title(run), failed.message) for run, failed in outcome.failed)
    if not found:
        raise DlschedError(f"no run finished: {failures[0][0]}: {failures[0][1]}")
    return StudyResults(
        plan=planned,
        results=tuple(found[number] for number in sorted(found)),
        failures=failures,
    )


def _several(value: OneOrMore[T]) -> tuple[T, ...]:
    """One value or several, as several.

    Raises:
        BadInput: none, or one twice.
    """
    given: Any = value
    if isinstance(given, str | Path | Trace) or not isinstance(given, Iterable):
        only: Any = given
        return (only,)
    found: tuple[T, ...] = tuple(given)
    if not found:
        raise BadInput("an empty list: give at least one value, or leave it out")
    for place, each in enumerate(found):
        if not isinstance(each, Trace) and each in found[:place]:
            raise BadInput(f"{each!r} is listed twice")
    return found


def _figure(name: str) -> Metric:
    if name not in _FIGURES:
        raise not_known("figure", name, _FIGURES)
    return _FIGURES[name]
