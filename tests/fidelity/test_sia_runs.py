"""Sia's simulator: recorded decisions to the second, and whole runs of Sia and Gavel in it.

Recorded runs of the published simulator of Sia (SOSP 2023). A run that follows the recorded
decisions must reproduce every recorded JCT and restart, which tests the world without any policy.
Our own decisions differ where rounding makes ties; averages then stay within the tolerances of each
test.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlsched.core.allocation import Grant
from dlsched.core.arrays import Floats
from dlsched.core.cluster.description import parse_cluster_spec
from dlsched.core.context import RoundContext
from dlsched.core.errors import PolicyFailed
from dlsched.core.options import NoOptions
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk.node_counts import lay_out
from dlsched.core.walk.walk import Walk
from simulate.engine import Engine
from simulate.goodput.hardware import TypedApplication
from simulate.goodput.typed_files import read_typed_applications
from simulate.replay import prepare
from simulate.settings import RunSettings
from simulate.traces.open import open_trace
from simulate.traces.options import ReadOptions
from simulate.traces.trace import Trace

ROOT = Path(os.environ.get("DLSCHED_DATA", Path(__file__).parents[3] / "shared" / "data"))
FOLDER = ROOT / "sia"
CLUSTER = "6x4:aws+2x8:dgx-ext+3x8:rtx"

pytestmark = pytest.mark.fidelity

Case = dict[str, str]
Shape = tuple[int, ...]


def rows_of(name: str) -> list[dict[str, str]]:
    path = FOLDER / name
    if not path.exists():
        return []
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return list(csv.DictReader(file))


def cases(policy: str | None = None, *, complete: bool | None = None) -> list[Any]:
    """Recorded runs: of a policy, and those that went to the end (or not)."""
    found = [
        pytest.param(row, id=row["case"])
        for row in rows_of("golden_summary.csv")
        if policy in (None, row["policy"]) and complete in (None, row["complete"].lower() == "true")
    ]
    if not found:
        reason = f"no such runs in {FOLDER} (set DLSCHED_DATA)"
        return [pytest.param({}, marks=pytest.mark.skip(reason=reason), id="none")]
    return found


@cache
def applications() -> dict[str, TypedApplication]:
    return read_typed_applications(FOLDER)


def trace_of(case: Case) -> Trace:
    if case["workload_set"] == "small":
        return open_trace(FOLDER / f"{case['workload'].removeprefix('sia_')}.csv")
    number = case["workload"].removeprefix("workload-")
    wanted = ReadOptions(workload=f"{case['workload_set']}:{number}")
    return open_trace(FOLDER / "workloads.csv.gz", options=wanted)


def engine_of(case: Case, policy: str, *options: str) -> tuple[Trace, Engine]:
    trace = trace_of(case)
    last = max(int(float(row["time_s"])) for row in rounds_of(case))
    engine = prepare(
        trace,
        parse_cluster_spec(CLUSTER),
        RunSettings(
            policy=policy,
            options=("semantics=sia", *options),
            round_s=float(case["interval_s"]),
            record=False,
            horizon=np.inf if case["complete"].lower() == "true" else float(last),
        ),
        applications=applications(),
    )
    return trace, engine


def rounds_of(case: Case) -> list[dict[str, str]]:
    return rows_of(f"golden_{case['case']}_rounds.csv.gz")


def recorded_jobs(case: Case) -> dict[str, tuple[float, int]]:
    """JCT and restarts of the jobs that were done."""
    return {
        row["job"]: (float(row["jct_s"]), int(row["num_restarts"]))
        for row in rows_of(f"golden_{case['case']}_jobs.csv")
        if row["jct_s"]
    }


def adapts(case: Case) -> bool:
    """Do its jobs choose batch sizes?"""
    return case["policy"] == "sia" and not case["case"].endswith("rigid")


def packed(
    parts: list[tuple[int, int, int]], room: dict[int, int], found: dict[tuple[int, int], int]
) -> dict[tuple[int, int], int] | None:
    """A node for each part of each row, no two of a row on one; None where there is no way."""
    if not parts:
        return found
    part, row, place = parts[0]
    for node in sorted(room, key=lambda node: room[node]):
        other = any(r == row and there == node for (r, _), there in found.items())
        if room[node] >= part and not other:
            rest = {**room, node: room[node] - part}
            answer = packed(parts[1:], rest, {**found, (row, place): node})
            if answer is not None:
                return answer
    return None


class Recorded(SchedulingPolicy[NoOptions]):
    """Gives every job the GPUs that a recorded run gave it, in shape."""

    name = "recorded"
    preemptive = True
    rests = False

    def __init__(
        self, rounds: Mapping[float, dict[str, tuple[str, Shape]]], trace: Trace, *, tunes: bool
    ) -> None:
        super().__init__(NoOptions())
        self._rounds, self._tunes = rounds, tunes
        self._row = {str(job): row for row, job in enumerate(trace.job_id)}

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Lay the recorded shapes out, largest parts first."""
        wanted = {self._row[job]: where for job, where in self._rounds.get(ctx.now, {}).items()}
        wanted = {row: where for row, where in wanted.items() if row in set(ctx.active.tolist())}
        cluster = ctx.occupancy.cluster
        room = cluster.gpus.tolist()
        kinds = [cluster.gpu_types[kind] for kind in cluster.node_type.tolist()]
        plan: dict[int, list[tuple[int, int]]] = {}
        for kind in cluster.gpu_types:
            nodes = [node for node, name in enumerate(kinds) if name == kind]
            parts = [
                (part, row, place)
                for row, (where, shape) in wanted.items()
                if where == kind
                for place, part in enumerate(shape)
            ]
            found = packed(sorted(parts, reverse=True), {node: room[node] for node in nodes}, {})
            if found is None:
                raise PolicyFailed(f"no room on {kind} at {ctx.now:g} s")
            for (row, place), node in sorted(found.items()):
                plan.setdefault(row, []).append((node, wanted[row][1][place]))
        grant = Grant(tunes_batch=True)
        lay_out(walk, plan, dict.fromkeys(plan, grant) if self._tunes else None)


@pytest.mark.parametrize("case", cases())
def test_recorded_decisions_lead_to_the_recorded_ends(case: Case) -> None:
    """Every JCT and every restart of a run, from which job was where in each of its rounds."""
    rounds: dict[float, dict[str, tuple[str, Shape]]] = defaultdict(dict)
    for row in rounds_of(case):
        shape = tuple(map(int, row["placement"].split("-")))
        rounds[float(row["time_s"])][row["job"]] = (row["gpu_type"], shape)
    trace, engine = engine_of(case, "fifo")
    engine.parts.scheduling = Recorded(rounds, trace, tunes=adapts(case))
    engine.run()
    table = engine.world.table
    expected = recorded_jobs(case)
    found = {
        str(job): (float(table.finish[row] - table.submit_time[row]), int(table.starts[row]) - 1)
        for row, job in enumerate(trace.job_id)
        if str(job) in expected
    }
    assert found == expected


def jcts(trace: Trace, engine: Engine) -> dict[str, float]:
    table = engine.world.table
    return {
        str(job): float(table.finish[row] - table.submit_time[row])
        for row, job in enumerate(trace.job_id)
        if not np.isnan(table.finish[row])
    }


def both(case: Case, ours: dict[str, float]) -> tuple[Floats, Floats]:
    """Ours and the recorded JCTs, of jobs that were done in both."""
    recorded = {job: jct for job, (jct, _) in recorded_jobs(case).items()}
    common = sorted(set(ours) & set(recorded))
    return np.array([ours[job] for job in common]), np.array([recorded[job] for job in common])


@pytest.mark.parametrize("case", cases("sia"))
def test_sia_end_to_end(case: Case) -> None:
    jobs = "asked" if adapts(case) else "rigid"
    trace, engine = engine_of(case, "sia", f"jobs={jobs}")
    engine.run()
    ours = jcts(trace, engine)
    mine, theirs = both(case, ours)
    assert len(mine) >= 0.95 * len(recorded_jobs(case))
    assert mine.mean() == pytest.approx(theirs.mean(), rel=0.05)
    assert np.percentile(mine, 99) == pytest.approx(np.percentile(theirs, 99), rel=0.10)
    if case["complete"].lower() == "true":
        table = engine.world.table
        makespan = float(np.nanmax(table.finish))
        assert makespan == pytest.approx(float(case["makespan_s"]), rel=0.10)
        restarts = int(np.maximum(table.starts - 1, 0).sum())
        assert restarts == pytest.approx(int(case["restarts"]), rel=0.10)


@pytest.mark.parametrize("case", cases("gavel"))
def test_gavel_ends_as_recorded(case: Case) -> None:
    """Every JCT, every restart, and which job was where in every round."""
    trace, engine = engine_of(case, "gavel", "objective=max-throughput")
    policy, seen = engine.parts.scheduling, {}
    decide = policy.allocate

    def watched(units: Units, ctx: RoundContext, walk: Walk) -> None:
        decide(units, ctx, walk)
        cluster = ctx.occupancy.cluster
        seen[ctx.now] = {
            str(trace.job_id[row]): (
                cluster.gpu_types[int(cluster.node_type[where.nodes[0]])],
                tuple(mask.bit_count() for mask in where.masks),
            )
            for row, where in ctx.occupancy.held.items()
        }

    policy.allocate = watched  # type: ignore[method-assign]
    engine.run()
    rounds: dict[float, dict[str, tuple[str, Shape]]] = defaultdict(dict)
    for row in rounds_of(case):
        shape = tuple(map(int, row["placement"].split("-")))
        rounds[float(row["time_s"])][row["job"]] = (row["gpu_type"], shape)
    assert {now: held for now, held in seen.items() if held} == rounds
    table = engine.world.table
    starts = dict(zip(map(str, trace.job_id), table.starts.tolist(), strict=True))
    found = {job: (jct, starts[job] - 1) for job, jct in jcts(trace, engine).items()}
    assert found == recorded_jobs(case)


@pytest.mark.exhaustive
@pytest.mark.skipif(not rows_of("golden_summary.csv"), reason=f"no {FOLDER} (set DLSCHED_DATA)")
def test_the_published_order() -> None:
    """Table 3: Sia before Pollux, which does not know types apart, before Gavel."""
    trace = open_trace(FOLDER / "workloads.csv.gz", options=ReadOptions(workload="philly:1"))
    averages = []
    for policy, round_s, options in (
        ("sia", 60.0, ()),
        ("pollux", 60.0, ()),
        ("gavel", 360.0, ("objective=max-throughput",)),
    ):
        engine = prepare(
            trace,
            parse_cluster_spec(CLUSTER),
            RunSettings(
                policy=policy,
                options=("semantics=sia", *options),
                round_s=round_s,
                record=False,
            ),
            applications=applications(),
        )
        engine.run()
        averages.append(float(np.mean(list(jcts(trace, engine).values()))))
    sia, pollux, gavel = averages
    assert 1.2 * sia < pollux
    assert 1.2 * pollux < gavel
