"""The words of one `dlsched replay` call, as they were typed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["ReplayWords"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayWords:
    """The words of a call as they were typed; None where nothing was."""

    traces: tuple[str, ...]
    format: str
    cluster: str | None
    profiles: str | None
    policy: str | None
    placement: str | None
    admission: str | None
    fairness: str | None
    estimate: str | None
    launch: str | None
    preemption: str | None
    metrics: str | None
    options: tuple[str, ...]
    clock: str | None
    round_s: float | None
    restart_overhead: float | None
    checkpoint_interval: float | None
    min_run: float
    load: str | None
    seed: str
    warmup: float
    track: str | None
    events: str | None
    mtbf: float | None
    mttr: float | None
    skip_bad_rows: bool
    resume: Path | None
    executor: str
    jobs_out: str | None
    summary_out: str | None
    report: Path | None
    plots: Path | None
    snapshot: str | None = None
    from_db: str | None = None
    since: str | None = None
    compare_isolated: bool = False
    workload: str | None = None
    courses_out: Path | None = None
    interference: float = 0.0
