"""Made-up results: a small first-come cluster, played out job by job, or columns drawn at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from simulate.results.tables import ClusterShape, JobOutcomes, ReplayResult, Segments, Timeline

Make = Callable[..., ReplayResult]


def texts(values: Any) -> np.ndarray:
    return np.array(list(values), dtype=object)


def shape(nodes: int, per: int = 4) -> ClusterShape:
    return ClusterShape(
        spec=f"{nodes}x{per}:v100",
        node_name=texts(f"n{i + 1}" for i in range(nodes)),
        node_gpus=np.full(nodes, per, dtype=np.int64),
        node_type=texts(["v100"] * nodes),
    )


def outcomes(
    submit: np.ndarray,
    start: np.ndarray,
    finish: np.ndarray,
    gpus: np.ndarray,
    duration: np.ndarray,
    preemptions: np.ndarray,
    vcs: tuple[str, ...],
) -> JobOutcomes:
    n = submit.shape[0]
    zero = np.zeros(n, dtype=np.int64)
    done = np.isfinite(finish)
    return JobOutcomes(
        job_id=texts(f"job-{i}" for i in range(n)),
        user=texts(f"u{i % 7}" for i in range(n)),
        vc=texts(vcs[i % len(vcs)] for i in range(n)),
        num_gpus=gpus.astype(np.int64),
        submit_time=submit,
        first_start_time=start,
        finish_time=finish,
        gpu_seconds=np.where(done, duration, 0.0) * gpus,
        starts=np.isfinite(start).astype(np.int64) + preemptions,
        preemptions=preemptions.astype(np.int64),
        migrations=zero,
        resizes=zero,
        lost_seconds=preemptions * 30.0,
        status=texts(np.where(done, "completed", "unfinished")),
        reason=texts([""] * n),
        counted=np.ones(n, dtype=np.bool_),
        duration=duration,
    )


def summary(policy: str, jobs: JobOutcomes, cluster: ClusterShape) -> dict[str, Any]:
    jct = jobs.jct[np.isfinite(jobs.jct)]
    gpus = int(cluster.node_gpus.sum())
    span = float(np.nanmax(jobs.finish_time)) if jct.size else math.nan
    rho = jct / jobs.duration[np.isfinite(jobs.jct)] / max(1.0, len(jobs) / gpus)

    def known(value: float) -> float | None:
        return float(value) if jct.size else None

    return {
        "policy": policy,
        "semantics": "rounds",
        "options": {"round": 300.0, "placement": {"name": "min-nodes"}, "limit": None},
        "jobs": len(jobs),
        "completed": int(jct.size),
        "refused": 0,
        "unfinished": len(jobs) - int(jct.size),
        "avg_jct": known(jct.mean()) if jct.size else None,
        "median_jct": known(np.median(jct)) if jct.size else None,
        "p95_jct": known(np.percentile(jct, 95)) if jct.size else None,
        "p99_jct": known(np.percentile(jct, 99)) if jct.size else None,
        "makespan": known(span),
        "avg_queueing_delay": float(np.nanmean(jobs.queueing_delay)) if jct.size else None,
        "gpu_utilization": float(jobs.gpu_seconds.sum() / (gpus * span)) if jct.size else None,
        "preemptions": int(jobs.preemptions.sum()),
        "restarts": int(jobs.preemptions.sum()),
        "resizes": 0,
        "rounds": 10,
        "finish_time_fairness": {
            "variant": "shockwave-static",
            "max": float(rho.max()) if jct.size else None,
            "mean": float(rho.mean()) if jct.size else None,
            "unfair_fraction": float((rho > 1).mean()) if jct.size else None,
        },
        "wall_seconds": 1.0,
        "cpu_seconds": 1.0,
        "peak_rss_bytes": None,
    }


def play(
    label: str = "fifo",
    *,
    n: int = 60,
    seed: int = 1,
    load: float | None = None,
    nodes: int = 4,
    shortest_first: bool = False,
    segments: bool = True,
    trace: str = "small",
    vcs: tuple[str, ...] = ("vision", "speech"),
    warnings: tuple[str, ...] = (),
) -> ReplayResult:
    """Jobs start in order when their gang fits; every seventh is cut once halfway."""
    rng = np.random.default_rng(seed)
    cluster = shape(nodes)
    submit = np.sort(rng.uniform(0, 4000.0, n)) / (load or 1.0)
    if n:
        submit -= submit[0]
    gpus = rng.choice([1, 2, 4, 8], n, p=[0.5, 0.2, 0.2, 0.1])
    duration = rng.lognormal(6.0, 1.2, n)
    order = np.lexsort((np.arange(n), duration if shortest_first else submit))
    free_at = np.zeros((nodes, 4))
    start = np.full(n, math.nan)
    finish = np.full(n, math.nan)
    cuts = np.zeros(n, dtype=np.int64)
    rows: list[tuple[int, int, int, float, float]] = []
    for job in order.tolist():
        lanes = np.argsort(free_at, axis=None, kind="stable")[: gpus[job]]
        begin = max(float(submit[job]), float(free_at.ravel()[lanes].max()))
        end = begin + duration[job]
        start[job], finish[job] = begin, end
        held = np.bincount(lanes // 4, minlength=nodes)
        stretches = [(begin, end)]
        if job % 7 == 3 and shortest_first:
            half = (begin + end) / 2
            cuts[job] = 1
            finish[job] = end + 100.0
            stretches = [(begin, half), (half + 100.0, end + 100.0)]
        for a, b in stretches:
            rows += [(job, node, int(k), a, b) for node, k in enumerate(held.tolist()) if k]
        free_at.ravel()[lanes] = finish[job]
    jobs = outcomes(submit, start, finish, gpus, duration, cuts, vcs)
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    kept = Segments(
        job=np.array(columns[0], dtype=np.int64),
        node=np.array(columns[1], dtype=np.int64),
        gpus=np.array(columns[2], dtype=np.int64),
        start=np.array(columns[3], dtype=np.float64),
        end=np.array(columns[4], dtype=np.float64),
    )
    return ReplayResult(
        label=label,
        policy=label.split("/", maxsplit=1)[0],
        trace=trace,
        load=load,
        seed=seed,
        jobs=jobs,
        timeline=timeline_of(jobs, kept, nodes * 4),
        segments=kept if segments else None,
        cluster=cluster,
        summary=summary(label, jobs, cluster),
        warnings=warnings,
    )


def timeline_of(jobs: JobOutcomes, kept: Segments, gpus: int) -> Timeline:
    """Counts from the stretches themselves."""
    moments = np.unique(np.concatenate([[0.0], kept.start, kept.end, jobs.submit_time]))

    def over(start: np.ndarray, end: np.ndarray, weight: np.ndarray) -> np.ndarray:
        at = np.zeros(moments.shape[0] + 1)
        np.add.at(at, np.searchsorted(moments, start), weight)
        np.add.at(at, np.searchsorted(moments, end), -weight)
        return np.rint(np.cumsum(at)[:-1]).astype(np.int64)

    ones = np.ones(len(jobs))
    return Timeline(
        time=moments,
        allocated_gpus=over(kept.start, kept.end, kept.gpus.astype(np.float64)),
        total_gpus=np.full(moments.shape[0], gpus, dtype=np.int64),
        running_jobs=over(jobs.first_start_time, jobs.finish_time, ones),
        waiting_jobs=over(jobs.submit_time, jobs.first_start_time, ones),
        waiting_gpus=over(jobs.submit_time, jobs.first_start_time, jobs.num_gpus.astype(float)),
    )


def draw(n: int, *, label: str = "fifo", seed: int = 1, nodes: int = 64) -> ReplayResult:
    """Many jobs as columns without playing them out; each is alone on its GPUs."""
    rng = np.random.default_rng(seed)
    cluster = shape(nodes)
    submit = np.sort(rng.uniform(0, 30 * 86400.0, n))
    gpus = rng.choice([1, 2, 4], n)
    duration = rng.lognormal(6.5, 1.8, n)
    start = submit + rng.lognormal(4.0, 2.0, n)
    jobs = outcomes(
        submit, start, start + duration, gpus, duration, rng.poisson(0.4, n), ("a", "b", "c", "d")
    )
    kept = Segments(
        job=np.arange(n, dtype=np.int64),
        node=rng.integers(0, nodes, n),
        gpus=gpus.astype(np.int64),
        start=start,
        end=start + duration,
    )
    return ReplayResult(
        label=label,
        policy=label,
        trace="large",
        load=None,
        seed=seed,
        jobs=jobs,
        timeline=timeline_of(jobs, kept, nodes * 4),
        segments=kept,
        cluster=cluster,
        summary=summary(label, jobs, cluster),
    )


@pytest.fixture(scope="session")
def make() -> Make:
    """A played-out run; see `play`."""
    return play


@pytest.fixture(scope="session")
def make_large() -> Make:
    """A run of many jobs; see `draw`."""
    return draw


@pytest.fixture(scope="session")
def study_runs() -> list[ReplayResult]:
    """Two policies, two loads, three seeds."""
    return [
        play(label, seed=seed, load=load, shortest_first=label == "srtf", n=50)
        for label in ("fifo", "srtf")
        for load in (0.8, 1.2)
        for seed in (1, 2, 3)
    ]
