"""What the tests share: a laboratory that turns a few tuples into a replay or a snapshot."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from dlsched.composition.settings import Costs
from dlsched.core.cluster.calendar import Calendar
from dlsched.core.cluster.description import Cluster, parse_cluster_spec
from dlsched.core.cluster.occupancy import Occupancy, Placement
from dlsched.core.cluster.pools import Pools
from dlsched.core.context import Mode, RoundContext
from dlsched.core.semantics import ROUNDS, Semantics
from dlsched.core.speed.colocation import ColocationTable
from dlsched.core.speed.throughput_table import JobKind, Measurement, ThroughputTable
from dlsched.core.units import Status, UnitTable
from simulate.clusters.cluster_events import ClusterEvent
from simulate.engine import Engine
from simulate.published.profiles import PROFILES
from simulate.replay import prepare, replay
from simulate.results.tables import ReplayResult
from simulate.services.description import Service
from simulate.settings import RunSettings
from simulate.traces.trace import Trace

pytest_plugins = ["tests.second_try"]

# containers often forbid bytecode files: every process of the tests would compile its imports
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# what is imported and collected stays: searching it for garbage takes a quarter of that time
gc.disable()

settings.register_profile(
    "tests",
    deadline=None,
    derandomize=True,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tests")

DEFAULT_MARKER = "not (slow or fidelity or exhaustive)"  # as pyproject.toml has it
LONG_S = 600  # ends what hangs, also on a machine five times as slow
# a search, or several replays, in each round: what runs all policies takes minutes with them
SEARCH_EVERY_ROUND = {"pollux", "shockwave", "what-if"}


def pytest_xdist_auto_num_workers() -> int:
    """Three workers on two processors: many tests wait for other processes."""
    return len(os.sched_getaffinity(0)) * 3 // 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """From here on garbage is looked for, in what the tests make."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Matrices of all policies go over the dear ones by marker; long tests get more time."""
    for item in items:
        call = getattr(item, "callspec", None)
        if call is not None and call.params.get("policy") in SEARCH_EVERY_ROUND:
            is_slow = item.get_closest_marker("slow") is not None
            item.add_marker(pytest.mark.exhaustive if is_slow else pytest.mark.slow)
        is_long = any(map(item.get_closest_marker, ("slow", "fidelity", "exhaustive")))
        if is_long and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONG_S))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Say beforehand how long the tests take."""
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput") or config.option.collectonly:
        return
    marked = config.option.markexpr
    if config.args_source is config.ArgsSource.TESTPATHS:
        default = marked == DEFAULT_MARKER
        took = "5 minutes" if default else "35 minutes with fidelity and slow tests"
        reporter.write_line(f"All tests of {marked or 'every kind'!r}: {took} on two processors.")


Job = tuple[float, float, float]  # submit, GPUs, duration


class Lab:
    """Small replays from plain values; every run checks every invariant after every decision."""

    def cluster(self, spec: str | Cluster) -> Cluster:
        """A cluster from a spec."""
        return parse_cluster_spec(spec) if isinstance(spec, str) else spec

    def trace(
        self,
        jobs: Sequence[Job],
        *,
        user: Sequence[str] | None = None,
        vc: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
        **columns: Sequence[Any],
    ) -> Trace:
        """A trace of (submit, GPUs, duration); ids are A, B, C, … and then numbers."""
        count = len(jobs)
        if names is None:
            names = [chr(ord("A") + k) if k < 26 else str(k) for k in range(count)]
        table = np.array(jobs, np.float64).reshape(-1, 3)
        order = np.argsort(table[:, 0], kind="stable")

        def texts(values: Sequence[str] | None) -> np.ndarray[Any, Any]:
            return np.array(list(values) if values else [""] * count, np.object_)[order]

        further: dict[str, np.ndarray[Any, Any]] = {}
        for name, values in columns.items():
            is_text = any(isinstance(value, str) for value in values)
            further[name] = np.array(list(values), np.object_ if is_text else np.float64)[order]
        return Trace(
            name="tiny",
            source="test",
            job_id=np.array(list(names), np.object_)[order],
            submit_time=table[order, 0],
            num_gpus=table[order, 1],
            duration=table[order, 2],
            user=texts(user),
            vc=texts(vc),
            status=texts(None),
            columns=further,
        )

    def throughputs(
        self,
        speeds: Mapping[tuple[str, str], float],
        pairs: Mapping[tuple[str, str, str], tuple[float, float]] | None = None,
        *,
        scales: Sequence[int] = (1, 2, 4),
    ) -> ThroughputTable:
        """A table of steps/s by (model, GPU type), the same for gangs of every size.

        Args:
            speeds: alone.
            pairs: of both halves, by (model, model, GPU type).
            scales: gangs that were measured.
        """
        found = [
            Measurement(gpu_type=gpu_type, scale=scale, kind=JobKind(model), rate=rate)
            for (model, gpu_type), rate in speeds.items()
            for scale in scales
        ]
        found += [
            Measurement(
                gpu_type=gpu_type,
                scale=scale,
                kind=JobKind(one),
                rate=rates[0],
                partner=JobKind(other),
                partner_rate=rates[1],
            )
            for (one, other, gpu_type), rates in (pairs or {}).items()
            for scale in scales
        ]
        return ThroughputTable(found)

    def context(
        self,
        cluster: str | Cluster,
        gangs: Sequence[int],
        *,
        holding: Mapping[int, Mapping[int, int]] | None = None,
        pool: Sequence[int] | None = None,
        keys: Sequence[tuple[str, str]] = (("", ""),),
        now: float = 100.0,
        since: float = 0.0,
        min_run: float = 0.0,
        mode: Mode = "full",
        semantics: Semantics = ROUNDS,
        seed: int = 0,
    ) -> RoundContext:
        """A snapshot of units with these gangs, all admitted in row order.

        Args:
            cluster: a spec.
            gangs: GPUs per row.
            holding: rows that run, as {row: {node: bits of its GPUs}}.
            pool: pool per row.
            keys: the pools.
            now: seconds.
            since: when the running rows started.
            min_run: seconds before which a running row is protected.
            mode: `full` or `fill`.
            semantics: the profile.
            seed: of the run.
        """
        cluster = self.cluster(cluster)
        table = UnitTable(len(gangs))
        table.submit_time[:] = np.arange(len(gangs))
        table.gang[:] = gangs
        table.predicted_work[:] = 1000.0
        table.status[:] = Status.WAITING
        table.admitted_at[:] = table.since[:] = table.submit_time
        if pool is not None:
            table.pool[:] = pool
        occupancy = Occupancy(cluster)
        for row, where in (holding or {}).items():
            placement = Placement(tuple(where), tuple(where.values()))
            occupancy.take(row, placement)
            table.status[row] = Status.RUNNING
            table.gpus_now[row] = placement.gpus
            table.since[row] = table.progress_from[row] = table.first_start[row] = since
            table.starts[row] = 1
        return RoundContext(
            now=now,
            number=int(now),
            mode=mode,
            table=table,
            active=np.arange(len(gangs)),
            occupancy=occupancy,
            pools=Pools(cluster, list(keys)),
            semantics=semantics,
            changes=[],
            finished=[],
            calendar=Calendar(cluster.total_gpus),
            min_run=min_run,
            seed=seed,
        )

    def settings(self, policy: str = "fifo", **given: Any) -> RunSettings:
        """Settings with checks on; `overhead`, `interval`, `min_run` are costs."""
        costs = Costs(
            restart_overhead=given.pop("overhead", 0.0),
            checkpoint_interval=given.pop("interval", None),
            min_run=given.pop("min_run", 0.0),
        )
        given.setdefault("check", True)
        return RunSettings(policy=policy, costs=costs, **given)

    def engine(
        self,
        jobs: Sequence[Job] | Trace,
        policy: str = "fifo",
        *,
        cluster: str | Cluster = "1x4",
        events: Sequence[ClusterEvent] = (),
        performance: Any = None,
        throughputs: ThroughputTable | None = None,
        pairs: ColocationTable | None = None,
        services: Sequence[Service] = (),
        semantics: Semantics | None = None,
        **given: Any,
    ) -> Engine:
        """A replay that is ready to run; `semantics` may be a profile that has no name yet."""
        trace = jobs if isinstance(jobs, Trace) else self.trace(jobs)
        if semantics is not None:
            PROFILES["of-a-test"] = replace(semantics, name="of-a-test")
            given["options"] = (*given.get("options", ()), "semantics=of-a-test")
        engine = prepare(
            trace,
            self.cluster(cluster),
            self.settings(policy, **given),
            events=events,
            performance=performance,
            throughputs=throughputs,
            pairs=pairs,
            services=services,
        )
        PROFILES.pop("of-a-test", None)
        return engine

    def run(
        self,
        jobs: Sequence[Job] | Trace,
        policy: str = "fifo",
        *,
        cluster: str | Cluster = "1x4",
        events: Sequence[ClusterEvent] = (),
        performance: Any = None,
        throughputs: ThroughputTable | None = None,
        pairs: ColocationTable | None = None,
        services: Sequence[Service] = (),
        **given: Any,
    ) -> ReplayResult:
        """A replay from beginning to end; `clock="events"` unless said otherwise."""
        trace = jobs if isinstance(jobs, Trace) else self.trace(jobs)
        if "clock" not in given and not any("semantics" in o for o in given.get("options", ())):
            given["clock"] = "events"
        return replay(
            trace,
            self.cluster(cluster),
            self.settings(policy, **given),
            events=events,
            performance=performance,
            throughputs=throughputs,
            pairs=pairs,
            services=services,
        )

    @staticmethod
    def spans(result: ReplayResult) -> dict[str, tuple[float, float]]:
        """First start and finish per job."""
        jobs = result.jobs
        return {
            job: (float(start), float(finish))
            for job, start, finish in zip(
                jobs.job_id, jobs.first_start_time, jobs.finish_time, strict=True
            )
        }

    @staticmethod
    def outcome(result: ReplayResult) -> dict[str, tuple[Any, ...]]:
        """Everything about each job that a run decides, exactly, for comparing runs."""
        jobs = result.jobs
        columns: Mapping[str, np.ndarray[Any, Any]] = {
            "start": jobs.first_start_time,
            "finish": jobs.finish_time,
            "starts": jobs.starts,
            "preemptions": jobs.preemptions,
            "migrations": jobs.migrations,
            "gpu_seconds": jobs.gpu_seconds,
            "lost": jobs.lost_seconds,
            "status": jobs.status,
            **jobs.extra,
        }
        return {name: tuple(map(repr, values.tolist())) for name, values in columns.items()}


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The laboratory."""
    return Lab()


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Where the published outputs lie; tests that need a missing folder are skipped."""
    default = Path(__file__).parent.parent.parent / "shared" / "data"
    return Path(os.environ.get("DLSCHED_DATA", default))
