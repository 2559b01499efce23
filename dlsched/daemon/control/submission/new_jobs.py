"""What a call's new jobs are for the ledger and for the database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dlsched.core.errors import BadInput
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.submission.job_validation import ValidJob
from dlsched.daemon.live.job_requests import Described
from dlsched.daemon.live.live_state import LiveState
from dlsched.daemon.turns import in_turns
from dlsched.db.contents import ContentGiven, ContentSizes
from dlsched.db.records import CheckpointCommitted, Event, HoldChanged, JobSpec
from dlsched.protocol.ledger import Request
from dlsched.protocol.messages import JobId, RequestId
from dlsched.rpc.authorisation import require_reader
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2

SEPARATOR = "#"  # between a call's request id and the number of a job in it


def placed(asked: Sequence[ValidJob], first: JobId) -> Sequence[ValidJob]:
    """The jobs of a call with dependencies on each other by id, if the first one gets this id."""
    if not any(each.places for each in asked):
        return asked
    ids, job = [], first
    for each in asked:
        ids.append(job)
        job = JobId(job + each.elements)
    return [
        replace(
            each,
            body=replace(
                each.body,
                dependencies=tuple(
                    replace(need, job=ids[place - 1]) if place else need
                    for need, place in zip(each.body.dependencies, each.places, strict=True)
                ),
            ),
        )
        if each.places
        else each
        for each in asked
    ]


def size_of(job: ValidJob, sizes: ContentSizes) -> int:
    """About how many bytes of memory the content of a job, or of an array, takes."""
    lines = 0 if job.array is None else job.array.short_task_bytes
    return sizes.of(job.body, job.content) + lines


def requests_of(
    asked: Iterable[ValidJob], name: str, caller: Identity, now: float, sizes: ContentSizes
) -> Iterable[Request]:
    """The requests of a call's jobs, one for each element of an array.

    Args:
        asked: the jobs and arrays.
        name: the call's request id.
        caller: whose call it is.
        now: when it was made, by the wall clock.
        sizes: of contents, which count once for all that share them.
    """
    number = 0
    for each in asked:
        mine = size_of(each, sizes) // each.elements
        for index in range(each.elements):
            spec = JobSpec(
                body=each.body,
                user=caller.name,
                uid=caller.uid if caller.uid is not None else -1,
                submitted_at=now,
                array=each.array,
                index=index,
                content_bytes=mine,
            )
            yield replace(
                each.request,
                request_id=RequestId(f"{name}{SEPARATOR}{number}"),
                user=caller.name,
                spec=spec,
            )
            number += 1


def rows_of(
    asked: Iterable[ValidJob], first: JobId, caller: Identity, now: float
) -> Iterator[object]:
    """The rows that become durable with jobs: their events, contents and holds."""
    job = first
    for each in asked:
        count = each.elements
        text = f"array of {count}" if each.array is not None else each.body.name
        yield Event(at=now, kind="submit", actor=caller.name, job=job, text=text)
        yield ContentGiven(job=job, content=each.content)
        if each.held:
            for k in range(count):
                yield HoldChanged(job=JobId(job + k), held="user", actor=caller.name)
        job = JobId(job + count)


async def beginnings(
    cluster: Cluster, asked: Iterable[ValidJob], caller: Identity
) -> dict[str, CheckpointCommitted]:
    """The newest checkpoints of the jobs that some new jobs resume from, by those jobs' names.

    Raises:
        DlschedError: one of them has none, or is not the caller's to use.
    """
    shared, found = cluster.settings.checkpoints.shared, {}
    for each in asked:
        name = each.body.resume_from
        if not name:
            continue
        job, spec, saved = await cluster.checkpoints.named(name)
        account = spec.body.account if spec is not None else ""
        fellow = shared == "account" and account != "" and account == each.body.account
        allowed = shared == "all" or fellow
        require_reader(caller, job.request.user, f"resume from {name}: job {name}", shared=allowed)
        if saved is None:
            yet = "" if job.status.is_terminal else " yet"
            raise BadInput(f"resume from {name}: job {name} has no checkpoint{yet}")
        found[name] = saved
    return found


def first_checkpoints(
    cluster: Cluster,
    asked: Iterable[ValidJob],
    first: JobId,
    begin_at: Mapping[str, CheckpointCommitted],
) -> list[object]:
    """The rows of new jobs that begin at checkpoints.

    Args:
        cluster: with the checkpoints.
        asked: the jobs and arrays.
        first: the id of the first of them.
        begin_at: checkpoints by the names of the jobs that they are of.
    """
    rows: list[object] = []
    job = first
    for each in asked:
        count = each.elements
        if each.body.resume_from:
            at = begin_at[each.body.resume_from]
            rows += [cluster.checkpoints.first_of(JobId(job + k), at) for k in range(count)]
        job = JobId(job + count)
    return rows


async def described_of(live: LiveState, requests: Iterable[Request]) -> dict[int, Described]:
    """What the jobs of a call ask for, by the identity of their bodies, made in turns."""
    found: dict[int, Described] = {}
    async for each in in_turns(requests):
        if isinstance(each.spec, JobSpec) and id(each.spec.body) not in found:
            found[id(each.spec.body)] = live.requests.described(each.spec)
    return found


def reply_of(asked: Iterable[ValidJob], first: JobId) -> control_pb2.SubmitReply:
    """The answer to a call whose jobs have consecutive ids from `first` on."""
    reply, job = control_pb2.SubmitReply(), first
    for each in asked:
        count = each.elements
        reply.jobs.add(job=job, elements=count if each.array is not None else 0)
        job = JobId(job + count)
    return reply
