"""`dlsched replay`: replay traces, a database's history, or a saved live state.

The options are in the table of `call`. Modules that do the work are imported when there is any.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from dlsched.cli.replay.call import ReplayCall
from dlsched.core.errors import BadInput


def replay_command(call: ReplayCall) -> None:
    """Replay a trace on a cluster and print what would have happened.

    Values with commas make a study: every policy at every load with every seed on every trace, on
    all processors, in one table.
    """
    raise SystemExit(_replay(call))


def _replay(call: ReplayCall) -> int:
    """Choose the kind of replay, run it, and return the exit code."""
    sources = [bool(call.paths), call.from_db is not None, call.snapshot is not None]
    if sum(sources) != 1:
        raise BadInput("give traces, --from-db or --snapshot, and only one of them")
    if call.since is not None and call.from_db is None:
        raise BadInput("--since: only with --from-db")
    if call.snapshot is not None:
        from dlsched.cli.replay.snapshot_replay import replay_snapshot  # noqa: PLC0415

        return replay_snapshot(call, call.snapshot)
    from dlsched.cli.replay.study_replay import replay_study  # noqa: PLC0415  # numpy is heavy

    call = replace(call, policy=call.policy or "fifo")
    if call.what_if is not None:
        from dlsched.cli.replay.what_if_replay import replay_what_if  # noqa: PLC0415

        if call.from_db is not None:
            raise BadInput("--what-if: only with a trace")
        return replay_what_if(call, call.what_if)
    if call.explain is not None:
        from dlsched.cli.replay.explain_replay import replay_explained  # noqa: PLC0415

        if call.from_db is not None:
            raise BadInput("--explain: only with a trace")
        return replay_explained(call, call.explain)
    if call.what_if_gpus is not None or call.what_if_arrivals:
        raise BadInput("--what-if-gpus and --what-if-arrivals: only with --what-if JOB")
    if call.from_db is None:
        return replay_study(call)
    from dlsched.cli.replay.history_replay import open_history  # noqa: PLC0415

    history = open_history(call.from_db, call.since)
    try:
        if history.left_out:
            print(f"dlsched: --from-db: {history.left_out}", file=sys.stderr)
        call = replace(call, traces=[history.trace], format="dlsched")
        return replay_study(call, cluster=history.cluster)
    finally:
        history.close()
