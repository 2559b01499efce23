"""The words of one `dlsched replay` call, as they were typed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from dlsched.core.errors import BadInput

__all__ = ["ReplayWords", "replay_called"]


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
    restart_overhead: float
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


def replay_called(words: ReplayWords) -> int:
    """Do what a call asks: traces, a database's history or a live state; the exit code.

    Raises:
        DlschedError: one line; nothing was written.
    """
    sources = [bool(words.traces), words.from_db is not None, words.snapshot is not None]
    if sum(sources) != 1:
        raise BadInput("give traces, --from-db or --snapshot, and only one of them")
    if words.since is not None and words.from_db is None:
        raise BadInput("--since: only with --from-db")
    if words.snapshot is not None:
        from dlsched.cli.replay_snapshot import replay_snapshot  # noqa: PLC0415  # numpy is heavy

        return replay_snapshot(words, words.snapshot)
    from dlsched.cli.replay_study import replay_study  # noqa: PLC0415

    words = replace(words, policy=words.policy or "fifo")
    if words.from_db is None:
        return replay_study(words)
    from dlsched.cli.replay_stored import open_history  # noqa: PLC0415

    history = open_history(words.from_db, words.since)
    try:
        words = replace(words, traces=(history.trace,), format="dlsched")
        return replay_study(words, cluster=history.cluster)
    finally:
        history.close()
