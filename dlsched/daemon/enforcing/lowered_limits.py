"""Time limits that a policy lowers for jobs which it starts earlier for that (`--time-min`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from dlsched.client.submission.durations import duration_text
from dlsched.daemon.leader_driver import LeaderDriver
from dlsched.db.records import Event, FieldsChanged
from dlsched.protocol import leader
from dlsched.protocol.messages import JobId


def lowered_limits(
    driver: LeaderDriver,
    wanted: Mapping[int, float],
    starting: Iterable[JobId],
    actor: str,
    now: float,
    at: float,
) -> Iterator[tuple[leader.TermsAsked, tuple[FieldsChanged, Event]]]:
    """Give what lowers the limits of jobs that start: for the leader, and to be stored.

    A limit is never raised, nor lowered below what its job allows.

    Args:
        driver: of the leader.
        wanted: limits in seconds, by job.
        starting: the jobs that start now.
        actor: whose decision it is.
        now: of the leader's clock.
        at: the wall clock.
    """
    for job in starting:
        row = driver.reserved.jobs.get(job)
        if job not in wanted or row is None:
            continue
        least, present = (driver.table.field(row, name) for name in ("time_min_s", "time_limit_s"))
        if least is None or present is None:
            continue
        limit = max(least, float(math.floor(wanted[job])))
        if limit >= present:
            continue
        text = f"time limit {duration_text(present)} → {duration_text(limit)}, to start now"
        limits = replace(row.terms.limits, time_s=limit)
        yield (
            leader.TermsAsked(now, job, replace(row.terms, limits=limits)),
            (
                FieldsChanged(job=job, fields={"time_limit_s": limit}, actor=actor),
                Event(at=at, kind="update", actor=actor, job=job, text=text),
            ),
        )
