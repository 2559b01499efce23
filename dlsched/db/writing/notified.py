"""The notices that follow from a transaction's changes, of jobs whose users asked for them.

They are derived from the same lines of the jobs' stories as the events. What is told of an array is
told once, of the whole of it, unless its user asked for `array_tasks`. What happens to many
elements of an array in one transaction is told together in any case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from sqlalchemy import Connection, func, select

from dlsched.core.errors import plural
from dlsched.db import schema
from dlsched.db.notices import Notice, Notify, asked_events
from dlsched.db.rows import state_word
from dlsched.db.writing.events import moves
from dlsched.protocol.ledger import Job, JobStatus, Ledger
from dlsched.protocol.messages import JobId

_WORDS = {  # of the ends that a job can have, in the order in which they are looked for
    JobStatus.COMPLETED: ("end",),
    JobStatus.CANCELLED: ("end",),
    JobStatus.FAILED: ("fail", "end"),
    JobStatus.TIMEOUT: ("time_limit", "fail", "end"),
}
OF_ARRAYS = ("begin", "end", "fail")
MOST_SINGLE = 10  # elements of an array to which the same happens, and which are told of one by one


def notices_of(
    connection: Connection,
    asked: Mapping[JobId, Notify],
    before: Ledger,
    after: Ledger,
    at: float,
) -> list[Notice]:
    """The notices of some changes; the changed rows are stored already.

    Args:
        connection: in the transaction.
        asked: of the jobs whose users want to be told.
        before: the ledger before the transaction.
        after: the ledger after it.
        at: for display.
    """
    found: list[Notice] = []
    of_elements: dict[tuple[JobId, str], list[Notice]] = defaultdict(list)
    of_arrays: dict[tuple[JobId, str], list[Notice]] = defaultdict(list)
    for number, notify in asked.items():
        job, wanted = after.jobs[number], asked_events(notify.events)
        array = None if "array_tasks" in wanted else notify.array_job
        if array is not None and {"end", "fail"} & wanted:
            wanted |= {"end"}  # an element's end may be that of the whole array
        for event, text in _wanted_events(before.jobs.get(number), job, after, wanted):
            notice = Notice(
                job=number,
                event=event,
                state=state_word(job),
                run=job.runs,
                text=text,
                at=at,
                user=job.request.user,
            )
            if array is not None and event in OF_ARRAYS:
                of_arrays[array, "begin" if event == "begin" else "end"].append(notice)
            else:
                of_elements[notify.array_job or number, event].append(notice)
    for (array, _), some in of_elements.items():
        found += some if len(some) <= MOST_SINGLE else [_together(array, some)]
    for (array, moment), some in of_arrays.items():
        wanted = asked_events(asked[some[0].job].events)
        told = _begun(connection, array, some) if moment == "begin" else None
        if moment == "end":
            told = _ended(connection, array, some[-1], wanted)
        if told is not None:
            found.append(told)
    return found


def _wanted_events(
    old: Job | None, job: Job, after: Ledger, wanted: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """Event and text of what one job's user wants to be told of its changes."""
    if old is not None and job.preemptions > old.preemptions and "preempt" in wanted:
        yield "preempt", job.reason
    for kind, text in moves(old, job):
        if kind == "release" and "begin" in wanted:
            yield "begin", text
        elif kind in ("requeue", "restart") and "requeue" in wanted:
            had_begun = any(run.released and run.is_over for run in after.runs_of_job(job.job))
            again = old is None or old.status.is_terminal  # its user asked for it
            preempted = old is not None and job.preemptions > old.preemptions
            if had_begun and not again and not (preempted and "preempt" in wanted):
                yield "requeue", text
        elif kind == "end" and job.status in _WORDS:
            words = list(_WORDS[job.status])
            if job.reason.startswith("DependencyNeverSatisfied"):
                words.insert(0, "invalid_depend")
            event = next((word for word in words if word in wanted), None)
            if event is not None:
                yield event, text


def _begun(connection: Connection, array: JobId, some: list[Notice]) -> Notice | None:
    """That the first element of an array begins, if it does."""
    jobs = schema.jobs.c
    begun = select(jobs.job).where(
        jobs.array_job == array,
        jobs.first_started_at.is_not(None),
        jobs.job.not_in([notice.job for notice in some]),
    )
    if connection.execute(begun.order_by(jobs.array_task).limit(1)).first() is not None:
        return None
    return _of_array(array, some[0], "begin", f"its first element, job {some[0].job}, began")


def _ended(
    connection: Connection, array: JobId, last: Notice, wanted: frozenset[str]
) -> Notice | None:
    """That the last element of an array has ended, if it has."""
    jobs = schema.jobs.c
    live = select(jobs.job).where(jobs.array_job == array, jobs.ended_at.is_(None))
    last_first = live.order_by(jobs.array_task.desc()).limit(1)  # the last to end, most often
    if connection.execute(last_first).first() is not None:
        return None
    counted = select(jobs.state, func.count()).where(jobs.array_job == array).group_by(jobs.state)
    ends: dict[str, int] = {row[0]: row[1] for row in connection.execute(counted)}
    failed = sum(n for word, n in ends.items() if word not in ("COMPLETED", "CANCELLED"))
    event = "fail" if failed and "fail" in wanted else "end"
    if event not in wanted:
        return None
    text = ", ".join(f"{count} {word}" for word, count in sorted(ends.items()))
    text = f"{plural(sum(ends.values()), 'element')}: {text}"
    return _of_array(array, last, event, text, "FAILED" if failed else last.state)


def _together(array: JobId, some: list[Notice]) -> Notice:
    """That the same has happened to many elements of an array."""
    first = some[0]
    text = f"{plural(len(some), 'element')}; the first, job {first.job}: {first.text}"
    return replace(_of_array(array, first, first.event, text), elements=len(some))


def _of_array(array: JobId, notice: Notice, event: str, text: str, state: str = "") -> Notice:
    return Notice(
        job=array,
        event=event,
        state=state or notice.state,
        run=notice.run,
        text=text,
        at=notice.at,
        user=notice.user,
        whole_array=True,
    )
