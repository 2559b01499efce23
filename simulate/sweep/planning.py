"""From the words of a study to its runs: inputs are read, all is checked, and nothing runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlsched.composition.parts import build_parts
from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import BadInput
from simulate.clusters.cluster_events import ClusterEvent
from simulate.clusters.event_files import read_events
from simulate.profiles.leaving_out import without_unprofiled
from simulate.profiles.open import open_applications, open_profiles
from simulate.published.profiles import semantics_of
from simulate.services.files import read_services
from simulate.settings import RunSettings
from simulate.sweep.checks import check_fits, check_runs
from simulate.sweep.grid import Dimensions, expand, share_out
from simulate.sweep.isolated import isolated_runs
from simulate.sweep.run import Inputs, Run
from simulate.traces.open import open_trace
from simulate.traces.options import ReadOptions
from simulate.traces.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the inputs of a study come from.

    Attributes:
        traces: files or folders, or traces that are in memory.
        format: of the files; `auto`: by their header.
        options: how the files are read.
        events: a file of events of nodes; empty: none.
        profiles: throughput tables or measured applications; empty: none.
        services: a file of services whose replicas lend GPUs to the jobs; empty: none.
    """

    traces: tuple[str | Trace, ...]
    format: str = "auto"
    options: ReadOptions = field(default_factory=ReadOptions)
    events: str = ""
    profiles: str = ""
    services: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A checked study.

    `isolated` are further runs under the policy isolated, to compare the others with.
    """

    dimensions: Dimensions
    inputs: Inputs
    runs: tuple[Run, ...]
    isolated: tuple[Run, ...] = ()


def plan(
    dimensions: Dimensions,
    base: RunSettings,
    sources: Sources,
    cluster: Cluster,
    *,
    compare_isolated: bool = False,
) -> Plan:
    """Read the inputs and check every run, cheap checks first.

    Args:
        dimensions: what the runs differ in.
        base: what they have in common.
        sources: of traces, events and profiles.
        cluster: that they run on.
        compare_isolated: also run the policy isolated.

    Raises:
        BadInput: an option, a part, a file or a combination is wrong.
    """
    quotas = any(vc.gpus >= 0 for vc in cluster.vcs.values())
    runs = expand(dimensions, base, traces=len(sources.traces))
    runs = share_out(runs, has_quotas=quotas)
    for settings in dict.fromkeys(replace(run.settings, load=None, seed=0) for run in runs):
        build_parts(settings, semantics_of(settings), has_quotas=quotas)
    events: Sequence[ClusterEvent] = ()
    if sources.events:
        cluster, events = read_events(sources.events, cluster)
    profiles = sources.profiles or None
    applications = open_applications(profiles)
    measured = open_profiles(None if applications else profiles)
    traces, throughputs = open_traces(sources), measured.throughputs
    if measured.workloads is not None:
        traces = tuple(measured.workloads.complete(trace) for trace in traces)
    skips = sources.options.skip_bad_rows
    if skips and throughputs is not None:
        traces = tuple(without_unprofiled(trace, cluster, throughputs) for trace in traces)
    inputs = Inputs(
        traces=traces,
        cluster=cluster,
        events=events,
        throughputs=throughputs,
        patterns=measured.patterns,
        pairs=measured.pairs,
        applications=applications,
        host=measured.host,
        services=read_services(Path(sources.services), cluster) if sources.services else (),
    )
    if not skips:
        for trace, source in zip(traces, sources.traces, strict=True):
            check_fits(trace, cluster, Path(source if isinstance(source, str) else trace.name))
    isolated = isolated_runs(runs, has_quotas=quotas) if compare_isolated else ()
    check_runs(inputs, (*runs, *isolated))
    return Plan(dimensions=dimensions, inputs=inputs, runs=runs, isolated=isolated)


def open_traces(sources: Sources) -> tuple[Trace, ...]:
    """The traces, each under a name of its own.

    Raises:
        BadInput: a file that cannot be read, one without jobs, or one that is named twice.
    """
    files = [source for source in sources.traces if isinstance(source, str)]
    if len(set(files)) < len(files):
        raise BadInput("a trace is named twice")
    traces = [
        open_trace(source, sources.format, options=sources.options)
        if isinstance(source, str)
        else source
        for source in sources.traces
    ]
    named = [trace.name for trace in traces]
    for place, source in enumerate(sources.traces):
        trace = traces[place]
        called = source if isinstance(source, str) else f"{trace.name} ({place + 1})"
        if not len(trace):
            raise BadInput(f"{called}: no job is left to replay{_why_none(trace)}")
        if named.count(trace.name) > 1:  # "a/jobs.csv" and "b/jobs.csv"
            traces[place] = replace(trace, name=called)
    return tuple(traces)


def _why_none(trace: Trace) -> str:
    reasons = ", ".join(f"{count} x {reason}" for reason, count in trace.dropped.items())
    return f" ({reasons})" if reasons else ""
