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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TextIO

from dlsched.cli.replay.call import ReplayCall
from dlsched.cli.replay.option_values import (
    at_least,
    loads,
    positive,
    seeds,
    several,
    tracked,
)
from dlsched.cli.replay.outputs import Outputs, outputs_of
from dlsched.cli.replay.progress import progress_bar
from dlsched.cli.replay.result_tables import comparison, headline, notes, run_line, takeaways
from dlsched.composition.settings import Costs
from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import BadInput, DlschedError
from simulate.clusters.cluster_files import open_cluster
from simulate.interference import interference_said
from simulate.results.assumptions import assumed
from simulate.results.tables import ReplayResult
from simulate.settings import RunSettings
from simulate.sweep import (
    PARTS,
    Dimensions,
    Outcome,
    Store,
    conduct,
    executor_of,
    expand,
)
from simulate.sweep.isolated import compared
from simulate.sweep.planning import Plan, Sources, plan
from simulate.traces.options import ReadOptions
from simulate.traces.trace import Trace
from simulate.worlds.network.flows_of_jobs import check_moves_data, write_flows

DEFAULT_MTTR_S = 3600.0
SHORTEST_MTBF_S = 1.0  # with less, nothing but failures would happen


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A checked call: the runs with their inputs, and the outputs."""

    plan: Plan
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
    study = checked_study(call, cluster)
    out = sys.stderr if study.outputs.takes_stdout else sys.stdout
    inputs, planned = study.plan.inputs, study.plan
    for trace in inputs.traces:
        for line in headline(trace, inputs.cluster, planned.dimensions.load):
            _say(line, out)
    runs = (*planned.runs, *planned.isolated)
    with _stopped_by_signals() as is_stopped, progress_bar(inputs, runs) as bar:
        outcome = conduct(
            inputs,
            runs,
            lambda missing: executor_of(study.executor, runs=missing),
            store=study.store,
            on_progress=bar.progress,
            on_finished=bar.finished,
            is_stopped=is_stopped,
        )
    outcome.results = compared(outcome.results, planned.runs, planned.isolated)
    results = outcome.finished
    if results:
        _print_results(study, outcome, out)
        written = study.outputs.write(results)
        if study.outputs.flows is not None:
            _write_flows(study.outputs.flows, results[0], inputs.traces[0])
            written.append(str(study.outputs.flows))
        if written and out.isatty():
            print(f"\nwritten: {', '.join(written)}", file=out)
    return _exit_code(study, outcome)


def checked_study(call: ReplayCall, cluster: Cluster | None) -> Study:
    """Check everything, cheap checks first, and return the study.

    Raises:
        BadInput: anything that can be known to be wrong before the first run.
    """
    dimensions = Dimensions(
        **{part: several(f"--{part}", getattr(call, part)) for part in PARTS},
        load=loads(call.load),
        seed=seeds(call.seed),
    )
    base, traces = _base(call), len(call.paths)
    count = len(expand(dimensions, base, traces=traces))
    outputs = outputs_of(call, tagged=_tags(dimensions, traces, count), several=count > 1)
    executor_of(call.executor, runs=count)
    if call.cluster is None and cluster is None:
        raise BadInput(
            "--cluster is missing: describe the cluster, for example --cluster 16x8:v100"
        )
    cluster = cluster if call.cluster is None else open_cluster(call.cluster)
    assert cluster is not None
    planned = plan(
        dimensions, base, _sources(call), cluster, compare_isolated=call.compare_isolated
    )
    if call.flows_out is not None:
        if len(planned.runs) > 1:
            raise BadInput("--flows-out: of one run only: one trace, policy, load and seed")
        check_moves_data(planned.inputs.traces[0])
    store = Store(call.resume, planned.inputs) if call.resume is not None else None
    return Study(plan=planned, outputs=outputs, store=store, executor=call.executor)


def _write_flows(path: Path, result: ReplayResult, trace: Trace) -> None:
    try:
        write_flows(result, trace, path)
    except OSError as error:
        raise DlschedError(f"{path}: can't be written ({error.strerror or error})") from None


def _sources(call: ReplayCall) -> Sources:
    return Sources(
        traces=call.paths,
        format=call.format,
        options=ReadOptions(skip_bad_rows=call.skip_bad_rows, workload=call.workload),
        events=call.events or "",
        profiles=call.profiles or "",
        services=call.services or "",
    )


def _base(call: ReplayCall) -> RunSettings:
    """Return the settings that all runs of the call have in common."""
    if call.mttr is not None and call.mtbf is None:
        raise BadInput("--mttr needs --mtbf: nodes that never fail need no repair")
    source, neighbours = interference_said(call.interference)
    return RunSettings(
        options=tuple(call.options or ()),
        clock=call.clock or "",
        round_s=call.round_s,
        costs=Costs(
            restart_overhead=None
            if call.restart_overhead is None
            else at_least("--restart-overhead", call.restart_overhead),
            interference=neighbours,
            checkpoint_interval=positive("--checkpoint-interval", call.checkpoint_interval),
            min_run=at_least("--min-run", call.min_run),
        ),
        warmup_s=at_least("--warmup", call.warmup),
        track=tracked(call.track),
        interference=source,
        mtbf_s=None if call.mtbf is None else at_least("--mtbf", call.mtbf, SHORTEST_MTBF_S),
        mttr_s=at_least("--mttr", DEFAULT_MTTR_S if call.mttr is None else call.mttr),
        record=any(
            where is not None
            for where in (call.report, call.plots, call.trajectories_out, call.flows_out)
        ),
    )


def _tags(dimensions: Dimensions, traces: int, runs: int) -> tuple[str, ...]:
    """Return the leading columns that identify the runs of a study in the jobs' file."""
    if runs == 1:
        return ()
    trace = ("trace",) if traces > 1 else ()
    return (*trace, "policy", *dimensions.varied, "load", "seed")


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
    _say(f"  {run_line(results, study.plan.dimensions)}", out)
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
