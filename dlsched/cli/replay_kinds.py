"""Which of the replays a call asks for."""

from __future__ import annotations

from dataclasses import replace

from dlsched.cli.replay_call import ReplayWords
from dlsched.core.errors import BadInput

__all__ = ["replay_called"]


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
    if words.snapshot is not None and words.compare_isolated:
        raise BadInput("--compare-isolated: not with --snapshot, whose jobs have begun already")
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
