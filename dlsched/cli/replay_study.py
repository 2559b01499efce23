"""The work of `dlsched replay`: check everything, run the study, write and tell what came out.

Nothing is written before everything has been checked. What has finished is reported even when
other runs failed or somebody pressed Ctrl-C; the exit code is then 1, since not all that was asked
for was done.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TextIO

from dlsched.cli.replay_call import ReplayWords
from dlsched.cli.replay_outputs import Outputs, outputs_of
from dlsched.cli.replay_progress import progress_bar
from dlsched.cli.replay_tables import comparison, headline, notes, run_line, takeaways
from dlsched.cli.replay_words import (
    at_least,
    loads,
    part_of_one,
    positive,
    seeds,
    several,
    tracked,
)
from dlsched.core.cluster import Cluster
from dlsched.core.errors import BadInput
from simulate.cluster_events import ClusterEvent
from simulate.cluster_files import open_cluster
from simulate.event_files import read_events
from simulate.profiles.leaving_out import without_unprofiled
from simulate.profiles.open import open_applications, open_profiles
from simulate.settings import RunSettings, build_parts, resolve_semantics
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
from simulate.world import Costs

__all__ = ["replay_study"]

DEFAULT_MTTR_S = 3600.0
SHORTEST_MTBF_S = 1.0  # below, nothing but failures would happen


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A call, checked: what to run, on what, and where results go.

    `isolated` are runs beside the study's own, which only serve to measure these by.
    """

    dimensions: Dimensions
    inputs: Inputs
    runs: tuple[Run, ...]
    isolated: tuple[Run, ...]
    outputs: Outputs
    store: Store | None
    executor: str


def replay_study(words: ReplayWords, *, cluster: Cluster | None = None) -> int:
    """Do what the words say; returns the exit code.

    Args:
        words: the call.
        cluster: where it is replayed unless the words say.

    Raises:
        BadInput: the words, the trace, the cluster or an output path are wrong; nothing has run
            and nothing was written.
        DlschedError: the executor cannot work.
    """
    study = _checked(words, cluster)
    out = sys.stderr if study.outputs.takes_stdout else sys.stdout
    for trace in study.inputs.traces:
        for line in headline(trace, study.inputs.cluster, study.dimensions.load):
            _say(line, out)
    runs = (*study.runs, *study.isolated)
    with _stopped_by(signal.SIGTERM), progress_bar(study.inputs, runs) as bar:
        outcome = conduct(
            study.inputs,
            runs,
            lambda missing: executor_of(study.executor, runs=missing),
            store=study.store,
            on_progress=bar.progress,
            on_finished=bar.finished,
        )
    outcome.results = compared(outcome.results, study.runs, study.isolated)
    results = outcome.finished
    if results:
        _tell(study, outcome, out)
        written = study.outputs.write(results)
        if written and out.isatty():
            print(f"\nwritten: {', '.join(written)}", file=out)
    return _exit_code(study, outcome)


def _checked(words: ReplayWords, cluster: Cluster | None) -> Study:
    """Everything that can be wrong, in the order in which it is cheap to find."""
    dimensions = Dimensions(
        **{part: several(f"--{part}", getattr(words, part)) for part in PARTS},
        load=loads(words.load),
        seed=seeds(words.seed),
    )
    traces = len(words.traces)
    runs = expand(dimensions, _base(words), traces=traces)
    outputs = outputs_of(words, tagged=_tags(dimensions, traces, len(runs)), several=len(runs) > 1)
    executor_of(words.executor, runs=len(runs))
    if words.cluster is None and cluster is None:
        raise BadInput(
            "--cluster is missing: describe the cluster, for example --cluster 16x8:v100"
        )
    cluster = cluster if words.cluster is None else open_cluster(words.cluster)
    assert cluster is not None
    quotas = any(vc.gpus >= 0 for vc in cluster.vcs.values())
    runs = share_out(runs, has_quotas=quotas)
    for settings in dict.fromkeys(replace(run.settings, load=None, seed=0) for run in runs):
        build_parts(settings, resolve_semantics(settings), has_quotas=quotas)
    events: Sequence[ClusterEvent] = ()
    if words.events is not None:
        cluster, events = read_events(words.events, cluster)
    applications = open_applications(words.profiles)
    throughputs, patterns = open_profiles(None if applications else words.profiles)
    jobs = _traces(words)
    if words.skip_bad_rows and throughputs is not None:
        jobs = tuple(without_unprofiled(trace, cluster, throughputs) for trace in jobs)
    inputs = Inputs(
        traces=jobs,
        cluster=cluster,
        events=events,
        throughputs=throughputs,
        patterns=patterns,
        applications=applications,
    )
    if not words.skip_bad_rows:
        for trace, path in zip(inputs.traces, words.traces, strict=True):
            check_fits(trace, cluster, Path(path))
    isolated = isolated_runs(runs, has_quotas=quotas) if words.compare_isolated else ()
    check_runs(inputs, (*runs, *isolated))
    store = Store(words.resume, inputs) if words.resume is not None else None
    return Study(
        dimensions=dimensions,
        inputs=inputs,
        runs=runs,
        isolated=isolated,
        outputs=outputs,
        store=store,
        executor=words.executor,
    )


def _base(words: ReplayWords) -> RunSettings:
    """What all runs of the call have in common."""
    if words.mttr is not None and words.mtbf is None:
        raise BadInput("--mttr needs --mtbf: nodes that never fail need no repair")
    return RunSettings(
        options=words.options,
        clock=words.clock or "",
        round_s=words.round_s,
        costs=Costs(
            restart_overhead=None
            if words.restart_overhead is None
            else at_least("--restart-overhead", words.restart_overhead),
            interference=part_of_one("--interference", words.interference),
            checkpoint_interval=positive("--checkpoint-interval", words.checkpoint_interval),
            min_run=at_least("--min-run", words.min_run),
        ),
        warmup_s=at_least("--warmup", words.warmup),
        track=tracked(words.track),
        mtbf_s=None if words.mtbf is None else at_least("--mtbf", words.mtbf, SHORTEST_MTBF_S),
        mttr_s=at_least("--mttr", DEFAULT_MTTR_S if words.mttr is None else words.mttr),
        record=any(where is not None for where in (words.report, words.plots, words.courses_out)),
    )


def _tags(dimensions: Dimensions, traces: int, runs: int) -> tuple[str, ...]:
    """The leading columns that tell the runs of a study apart in the jobs' file."""
    if runs == 1:
        return ()
    trace = ("trace",) if traces > 1 else ()
    return (*trace, "policy", *dimensions.varied, "load", "seed")


def _traces(words: ReplayWords) -> tuple[Trace, ...]:
    options = ReadOptions(skip_bad_rows=words.skip_bad_rows, workload=words.workload)
    traces = [open_trace(path, words.format, options=options) for path in words.traces]
    named = [trace.name for trace in traces]
    for place, path in enumerate(words.traces):
        if not len(traces[place]):
            raise BadInput(f"{path}: no job is left to replay{_why_none(traces[place])}")
        if named.count(named[place]) > 1:  # "a/jobs.csv" and "b/jobs.csv"
            traces[place] = replace(traces[place], name=path)
    if len(set(words.traces)) < len(words.traces):
        raise BadInput("a trace is named twice")
    return tuple(traces)


def _why_none(trace: Trace) -> str:
    reasons = ", ".join(f"{count} x {reason}" for reason, count in trace.dropped.items())
    return f" ({reasons})" if reasons else ""


@contextmanager
def _stopped_by(number: signal.Signals) -> Iterator[None]:
    """Let a signal stop the study as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, stop)
    try:
        yield
    finally:
        signal.signal(number, before)


def _tell(study: Study, outcome: Outcome, out: TextIO) -> None:
    results = outcome.finished
    terminal = out.isatty()
    colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = shutil.get_terminal_size().columns if terminal else None
    _say(f"  {run_line(results, study.dimensions)}", out)
    for table in comparison(results, terse=terminal):
        print(file=out)
        for line in table.lines(width=width, colour=colour):
            print(line, file=out)
    told = [*takeaways(results)] if terminal else []
    told += notes(results)
    if outcome.stored:
        told.append(f"note: {outcome.stored} of {outcome.planned} runs were done before")
    if told:
        print(file=out)
    for line in told:
        _say(line, out)


def _say(line: str, out: TextIO) -> None:
    """Print a line of prose, folded where the reader is a terminal."""
    if out.isatty():
        indent = "  " if line.startswith(" ") else ""
        width = shutil.get_terminal_size().columns
        line = textwrap.fill(
            line.strip(), width, initial_indent=indent, subsequent_indent=indent + "  "
        )
    print(line, file=out, flush=True)


def _exit_code(study: Study, outcome: Outcome) -> int:
    """Say what is missing, one line each."""
    out = partial(print, file=sys.stderr)
    debugging = os.environ.get("DLSCHED_DEBUG", "") not in ("", "0")
    for run, failed in outcome.failed:
        if debugging:
            out(failed.story)
        which = f"{run.title}: " if outcome.planned > 1 else ""
        out(f"dlsched: {which}{' '.join(failed.message.splitlines())}")
    if outcome.unsaved:
        out(f"dlsched: {outcome.unsaved}")
    if outcome.interrupted:
        kept = f"{len(outcome.results)} of {outcome.planned} runs finished"
        how = (
            f"go on with --resume {study.store.folder}"
            if study.store is not None
            else "with --resume DIR they would be kept"
        )
        out(f"dlsched: interrupted: {kept}; {how}")
        return 1
    codes = [failed.exit_code for _, failed in outcome.failed]
    if codes and not outcome.results and min(codes) == 2:
        return 2
    return int(bool(codes or outcome.unsaved))
