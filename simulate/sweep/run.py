"""One run of a sweep: what travels to a worker, and what comes back.

A run depends on nothing but `Inputs` and its settings, so it gives the same result in this process,
in another one and on another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from traceback import format_exc

from dlsched.composition.host_tables import HostTables
from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import DlschedError
from dlsched.core.speed.colocation import ColocationTable
from dlsched.core.speed.throughput_table import ThroughputTable
from simulate.clusters.cluster_events import ClusterEvent
from simulate.goodput.application import Application
from simulate.profiles.batch_rules import BatchPatterns
from simulate.replay import ReplayInputs, replay
from simulate.results.tables import ReplayResult
from simulate.services.description import Service
from simulate.settings import RunSettings
from simulate.traces.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What all runs of a sweep share; sent to each worker once."""

    traces: tuple[Trace, ...]
    cluster: Cluster
    events: Sequence[ClusterEvent] = ()
    throughputs: ThroughputTable | None = None
    patterns: BatchPatterns | None = None
    pairs: ColocationTable | None = None
    applications: Mapping[str, Application] | None = None
    host: HostTables | None = None
    services: Sequence[Service] = ()

    @property
    def of_a_replay(self) -> ReplayInputs:
        """All but trace and cluster, for `replay` and `prepare`."""
        return {
            "events": self.events,
            "throughputs": self.throughputs,
            "patterns": self.patterns,
            "pairs": self.pairs,
            "applications": self.applications,
            "host": self.host,
            "services": self.services,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A cell of the grid.

    Attributes:
        number: its place in the grid, which is its place in every output.
        trace: index into `Inputs.traces`.
        settings: everything else.
    """

    number: int
    trace: int
    settings: RunSettings

    @property
    def title(self) -> str:
        """What messages call it."""
        load = "" if self.settings.load is None else f" at load {self.settings.load:g}"
        return f"{self.settings.label}{load}, seed {self.settings.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A run that has no result: one line for the user, and the traceback for debugging."""

    message: str
    exit_code: int = 1
    traceback: str = ""


Finished = tuple[Run, ReplayResult | Failed]


def execute(
    inputs: Inputs, run: Run, on_progress: Callable[[int], None] | None = None
) -> ReplayResult | Failed:
    """Do one run; an error in it is returned as a value, so that the other runs go on.

    `on_progress` is called now and then with the number of jobs that have ended.
    """
    try:
        return replay(
            inputs.traces[run.trace],
            inputs.cluster,
            run.settings,
            on_progress=on_progress,
            **inputs.of_a_replay,
        )
    except DlschedError as error:
        return Failed(message=str(error), exit_code=error.exit_code, traceback=format_exc())
    except Exception as error:  # the top of a run: a part's own code may raise anything
        return Failed(message=f"unexpected {error!r}", traceback=format_exc())
