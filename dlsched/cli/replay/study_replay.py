"""`dlsched replay` of traces: check the call, run the study, write and print the results.

Nothing is written before everything has been checked. Finished runs are reported even if other
runs failed or the user pressed Ctrl-C; the exit code is then 1.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TextIO

from dlsched.cli.replay.call import ReplayCall
from dlsched.cli.replay.option_values import (
    at_least,
    loads,
    part_of_one,
    positive,
    seeds,
    several,
    tracked,
)
from dlsched.cli.replay.outputs import Outputs, outputs_of
from dlsched.cli.replay.progress import progress_bar
from dlsched.cli.replay.result_tables import comparison, headline, notes, run_line, takeaways
from dlsched.composition.parts import build_parts
from dlsched.composition.settings import Costs, resolve_semantics
from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import BadInput
from simulate.clusters.cluster_events import ClusterEvent
from simulate.clusters.cluster_files import open_cluster
from simulate.clusters.event_files import read_events
from simulate.profiles.leaving_out import without_unprofiled
from simulate.profiles.open import open_applications, open_profiles
from simulate.results.assumptions import assumed
from simulate.settings import RunSettings
from simulate.sweep import (
    PARTS,
    Dimensions,
    Inputs,
    Outcome,
    Run,
    Store,
    conduct,
    executor_of,
    expand,
    share_out,
)
from simulate.sweep.checks import check_fits, check_runs
from simulate.sweep.isolated import compared, isolated_runs
from simulate.traces.open import open_trace
from simulate.traces.options import ReadOptions
from simulate.traces.trace import Trace

DEFAULT_MTTR_S = 3600.0
SHORTEST_MTBF_S = 1.0  # with less, nothing but failures would happen


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A checked call: the runs, their inputs and the outputs.

    `isolated` are further runs under the policy isolated, to compare the others with.
    """

    dimensions: Dimensions
    inputs: Inputs
    runs: tuple[Run, ...]
    isolated: tuple[Run, ...]
    outputs: Outputs
    store: Store | None
    executor: str


def replay_study(call: ReplayCall, *, cluster: Cluster | None = None) -> int:
    """Check a call, run its study, print and write the results; return the exit code.

    `cluster` is used if `--cluster` is not given.

    Raises:
        BadInput: an option, the trace, the cluster or an output path is wrong; nothing has run
            and nothing was written.
        DlschedError: the executor cannot work.
    """
    study = _checked(call, cluster)
    out = sys.stderr if study.outputs.takes_stdout else sys.stdout
    for trace in study.inputs.traces:
        for line in headline(trace, study.inputs.cluster, study.dimensions.load):
            _say(line, out)
    runs = (*study.runs, *study.isolated)
    with _stopped_by_signals() as is_stopped, progress_bar(study.inputs, runs) as bar:
        outcome = conduct(
            study.inputs,
            runs,
            lambda missing: executor_of(study.executor, runs=missing),
            store=study.store,
            on_progress=bar.progress,
            on_finished=bar.finished,
            is_stopped=is_stopped,
        )
    outcome.results = compared(outcome.results, study.runs, study.isolated)
    results = outcome.finished
    if results:
        _print_results(study, outcome, out)
        written = study.outputs.write(results)
        if written and out.isatty():
            print(f"\nwritten: {', '.join(written)}", file=out)
    return _exit_code(study, outcome)


def _checked(call: ReplayCall, cluster: Cluster | None) -> Study:
    """Check everything, cheap checks first, and return the study."""
    dimensions = Dimensions(
        **{part: several(f"--{part}", getattr(call, part)) for part in PARTS},
        load=loads(call.load),
        seed=seeds(call.seed),
    )
    traces = len(call.paths)
    runs = expand(dimensions, _base(call), traces=traces)
    outputs = outputs_of(call, tagged=_tags(dimensions, traces, len(runs)), several=len(runs) > 1)
    executor_of(call.executor, runs=len(runs))
    if call.cluster is None and cluster is None:
        raise BadInput(
            "--cluster is missing: describe the cluster, for example --cluster 16x8:v100"
        )
    cluster = cluster if call.cluster is None else open_cluster(call.cluster)
    assert cluster is not None
    quotas = any(vc.gpus >= 0 for vc in cluster.vcs.values())
    runs = share_out(runs, has_quotas=quotas)
    for settings in dict.fromkeys(replace(run.settings, load=None, seed=0) for run in runs):
        build_parts(settings, resolve_semantics(settings), has_quotas=quotas)
    events: Sequence[ClusterEvent] = ()
    if call.events is not None:
        cluster, events = read_events(call.events, cluster)
    applications = open_applications(call.profiles)
    throughputs, patterns = open_profiles(None if applications else call.profiles)
    jobs = _traces(call)
    if call.skip_bad_rows and throughputs is not None:
        jobs = tuple(without_unprofiled(trace, cluster, throughputs) for trace in jobs)
    inputs = Inputs(
        traces=jobs,
        cluster=cluster,
        events=events,
        throughputs=throughputs,
        patterns=patterns,
        applications=applications,
    )
    if not call.skip_bad_rows:
        for trace, path in zip(inputs.traces, call.paths, strict=True):
            check_fits(trace, cluster, Path(path))
    isolated = isolated_runs(runs, has_quotas=quotas) if call.compare_isolated else ()
    check_runs(inputs, (*runs, *isolated))
    store = Store(call.resume, inputs) if call.resume is not None else None
    return Study(
        dimensions=dimensions,
        inputs=inputs,
        runs=runs,
        isolated=isolated,
        outputs=outputs,
        store=store,
        executor=call.executor,
    )


def _base(call: ReplayCall) -> RunSettings:
    """Return the settings that all runs of the call have in common."""
    if call.mttr is not None and call.mtbf is None:
        raise BadInput("--mttr needs --mtbf: nodes that never fail need no repair")
    return RunSettings(
        options=tuple(call.options or ()),
        clock=call.clock or "",
        round_s=call.round_s,
        costs=Costs(
            restart_overhead=None
            if call.restart_overhead is None
            else at_least("--restart-overhead", call.restart_overhead),
            interference=part_of_one("--interference", call.interference),
            checkpoint_interval=positive("--checkpoint-interval", call.checkpoint_interval),
            min_run=at_least("--min-run", call.min_run),
        ),
        warmup_s=at_least("--warmup", call.warmup),
        track=tracked(call.track),
        mtbf_s=None if call.mtbf is None else at_least("--mtbf", call.mtbf, SHORTEST_MTBF_S),
        mttr_s=at_least("--mttr", DEFAULT_MTTR_S if call.mttr is None else call.mttr),
        record=any(where is not None for where in (call.report, call.plots, call.trajectories_out)),
    )


def _tags(dimensions: Dimensions, traces: int, runs: int) -> tuple[str, ...]:
    """Return the leading columns that identify the runs of a study in the jobs' file."""
    if runs == 1:
        return ()
    trace = ("trace",) if traces > 1 else ()
    return (*trace, "policy", *dimensions.varied, "load", "seed")


def _traces(call: ReplayCall) -> tuple[Trace, ...]:
    options = ReadOptions(skip_bad_rows=call.skip_bad_rows, workload=call.workload)
    traces = [open_trace(path, call.format, options=options) for path in call.paths]
    named = [trace.name for trace in traces]
    for place, path in enumerate(call.paths):
        if not len(traces[place]):
            raise BadInput(f"{path}: no job is left to replay{_why_none(traces[place])}")
        if named.count(named[place]) > 1:  # "a/jobs.csv" and "b/jobs.csv"
            traces[place] = replace(traces[place], name=path)
    if len(set(call.paths)) < len(call.paths):
        raise BadInput("a trace is named twice")
    return tuple(traces)


def _why_none(trace: Trace) -> str:
    reasons = ", ".join(f"{count} x {reason}" for reason, count in trace.dropped.items())
    return f" ({reasons})" if reasons else ""


@contextmanager
def _stopped_by_signals() -> Iterator[Callable[[], bool]]:
    """Let SIGINT and SIGTERM stop the study; gives whether one of them has come."""
    came = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_results(study: Study, outcome: Outcome, out: TextIO) -> None:
    results = outcome.finished
    terminal = out.isatty()
    colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = shutil.get_terminal_size().columns if terminal else None
    _say(f"  {run_line(results, study.dimensions)}", out)
    _say(f"  assumed: {assumed(results)}", out)
    for table in comparison(results, terse=terminal):
        print(file=out)
        for line in table.lines(width=width, colour=colour):
            print(line, file=out)
    told = [*takeaways(results)] if terminal else []
    told += notes(results)
    if outcome.stored:
        told.append(f"note: {outcome.stored} of {outcome.planned} runs were stored before")
    if told:
        print(file=out)
    for line in told:
        _say(line, out)


def _say(line: str, out: TextIO) -> None:
    """Print a line of text, wrapped on a terminal."""
    if out.isatty():
        indent = "  " if line.startswith(" ") else ""
        width = shutil.get_terminal_size().columns
        line = textwrap.fill(
            line.strip(), width, initial_indent=indent, subsequent_indent=indent + "  "
        )
    print(line, file=out, flush=True)


def _exit_code(study: Study, outcome: Outcome) -> int:
    """Print what is missing, one line each, and return the exit code."""
    out = partial(print, file=sys.stderr)
    debugging = os.environ.get("DLSCHED_DEBUG", "") not in ("", "0")
    for run, failed in outcome.failed:
        if debugging:
            out(failed.traceback)
        which = f"{run.title}: " if outcome.planned > 1 else ""
        out(f"dlsched: {which}{' '.join(failed.message.splitlines())}")
    if outcome.unsaved:
        out(f"dlsched: {outcome.unsaved}")
    if outcome.interrupted:
        kept = f"{len(outcome.results)} of {outcome.planned} runs finished"
        how = (
            f"continue with --resume {study.store.folder}"
            if study.store is not None
            else "with --resume DIR they would be kept"
        )
        out(f"dlsched: interrupted: {kept}; {how}")
        return 1
    codes = [failed.exit_code for _, failed in outcome.failed]
    if codes and not outcome.results and min(codes) == 2:
        return 2
    return int(bool(codes or outcome.unsaved))
