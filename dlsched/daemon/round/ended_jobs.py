"""The ended jobs that a new daemon has in its columns, so that policies learn from them.

A policy learns from a job that has ended, or settles its account, at its next decision. So what had
not ended when the last stored decision was made, and has by now, belongs into the columns, beside
what that decision knew as ended.
"""

from __future__ import annotations

from dlsched.daemon.live.live_columns import LEARN_FROM
from dlsched.daemon.round.policy_state import PolicyState
from dlsched.db.reading.loading import Loaded
from dlsched.db.reading.queries import StoredJob
from dlsched.db.store import Store
from dlsched.protocol.messages import JobId


def read_ended(store: Store, loaded: Loaded) -> list[StoredJob]:
    """The jobs that have ended of which policies are to know, in the order of their ends.

    These are the jobs that the last stored decision learned from, the last ones that have ended of
    those that it knew, and the last ones that have completed of all; so many, however long the
    history is. A daemon that was not restarted has the same ones to learn from.

    Args:
        store: the database.
        loaded: what lives, and what the last decision left behind.
    """
    state = PolicyState.from_bytes(loaded.policy_state or b"")
    known = [JobId(job) for job in state.jobs.tolist()]
    place = {JobId(job): number for number, job in enumerate(state.finished.tolist())}
    live = {job for job, row in loaded.ledger.jobs.items() if not row.status.is_terminal}
    chosen = {*place, *store.last_completed(LEARN_FROM)} - live
    chosen.update(store.last_ended((job for job in known if job not in live), LEARN_FROM))
    return sorted(
        store.jobs(chosen), key=lambda each: (place.get(each.job.job, len(place)), *_moment(each))
    )


def _moment(stored: StoredJob) -> tuple[float, int]:
    return stored.facts.ended_at or 0.0, stored.job.job
