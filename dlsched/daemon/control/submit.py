"""Submission: all or none of a call's jobs, in one transaction, answered when they are durable."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from dlsched.core.errors import BadInput
from dlsched.daemon.clock import boottime, wall
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.bounds import check_text
from dlsched.daemon.control.depending import resolved
from dlsched.daemon.control.door import Asked, admit
from dlsched.daemon.control.quotas import check_job_quotas, refuse_beyond_quota
from dlsched.daemon.faultpoints import faultpoint
from dlsched.daemon.refusals import Conflict, TooMuch
from dlsched.daemon.trust import check_may_run
from dlsched.db.records import Event, HoldChanged, JobSpec
from dlsched.protocol.leader import BatchAsked
from dlsched.protocol.ledger import Request
from dlsched.protocol.messages import JobId, RequestId
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2

__all__ = ["submit"]

MOST_SUPPOSED = 200  # jobs, and elements of an array, whose start is foretold by test_only
SEPARATOR = "#"  # between a call's request id and the number of a job in it


async def submit(
    cluster: Cluster, request: control_pb2.SubmitRequest, caller: Identity
) -> control_pb2.SubmitReply:
    """Take jobs in.

    Raises:
        DlschedError: one line; then none of them was taken.
    """
    faultpoint("after-submit-read")
    shell, limits = cluster.shell, cluster.settings.limits
    shell.require_lead()
    check_may_run(caller, cluster.settings.trust)
    if not request.jobs:
        raise BadInput("nothing to submit")
    cluster.pace.take(caller.name, limits.submits_per_s, limits.submit_burst, boottime())
    if len(request.jobs) > limits.batch_size:
        raise TooMuch(f"{len(request.jobs)} jobs in one call, at most {limits.batch_size}")
    name = request.request_id or secrets.token_hex(12)
    check_text("request id", name, 200)
    if SEPARATOR in name:
        raise BadInput(f"request id: {SEPARATOR!r} is not allowed in it")
    asked = await _admit_all(cluster, request, caller)
    total = sum(len(a.array.tasks) if a.array is not None else 1 for a in asked)
    if total > limits.batch_size:
        raise TooMuch(f"{total} jobs in one call, at most {limits.batch_size}")
    for place, each in enumerate(asked):
        if each.body.dependencies:
            found = await resolved(cluster, each.body.dependencies, each.tasks)
            asked[place] = replace(each, body=replace(each.body, dependencies=found))
    if request.test_only:
        return await _supposed(cluster, asked, caller, total)
    now = wall()
    first = RequestId(f"{name}{SEPARATOR}0")
    known = shell.reserved.requests.get((caller.name, first))
    stored = None
    if known is None:
        stored = await shell.read(partial(shell.store.request_lookup, caller.name, first))
        known = shell.reserved.requests.get((caller.name, first))
    if known is not None:
        spec = shell.reserved.jobs[known].request.spec
        now = spec.submitted_at if isinstance(spec, JobSpec) else now
    elif stored is not None:
        return await _again(asked, stored, name, caller, cluster)
    requests = list(_requests(asked, name, caller, now))
    if known is None:
        _check_room(cluster, caller, total)
        check_job_quotas(cluster, caller.name, asked)

    def event(token: int) -> BatchAsked:
        next_job = shell.reserved.next_job
        return BatchAsked(
            boottime(), token, tuple(requests), next_job, _rows(asked, next_job, caller, now)
        )

    job = await shell.ask(event)
    assert job is not None
    return _reply(asked, job)


async def _supposed(
    cluster: Cluster, asked: list[Asked], caller: Identity, total: int
) -> control_pb2.SubmitReply:
    """What would become of a call's jobs; nothing is taken in."""
    reply = control_pb2.SubmitReply(warnings=[f"would be accepted: {total} jobs"])
    requests = iter(_requests(asked, "test", caller, wall()))
    specs: list[list[JobSpec]] = []
    for each in asked[:MOST_SUPPOSED]:
        count = len(each.array.tasks) if each.array is not None else 1
        mine = [next(requests).spec for _ in range(count)]
        seen = () if each.held else mine[:MOST_SUPPOSED]
        specs.append([spec for spec in seen if isinstance(spec, JobSpec)])
    for each, told in zip(asked, await cluster.predictions.suppose(specs), strict=False):
        if each.held:
            reply.supposed.add(basis="not predicted while it waits: Held")
        elif isinstance(told, str):
            reply.supposed.add(basis=told)
        else:
            reply.supposed.add(start_at=told.at, basis=told.basis)
    return reply


async def _admit_all(
    cluster: Cluster, request: control_pb2.SubmitRequest, caller: Identity
) -> list[Asked]:
    now, capacity = wall(), cluster.capacity()
    resolve = partial(cluster.tenants.resolve, caller.name, operator=caller.is_operator)
    asked: list[Asked] = []
    for number, wanted in enumerate(request.jobs, 1):
        try:
            each = admit(wanted, request.environment, cluster.settings, capacity, now, resolve)
            refuse_beyond_quota(cluster, caller.name, each.body)
            asked.append(each)
        except BadInput as error:
            if len(request.jobs) == 1:
                raise
            raise BadInput(f"job {number} of {len(request.jobs)}: {error}") from None
        if number % 200 == 0:
            await asyncio.sleep(0)  # others are served meanwhile
    return asked


def _requests(asked: Iterable[Asked], name: str, caller: Identity, now: float) -> Iterable[Request]:
    number = 0
    for each in asked:
        for index in range(len(each.array.tasks) if each.array is not None else 1):
            spec = JobSpec(
                body=each.body,
                user=caller.name,
                uid=caller.uid if caller.uid is not None else -1,
                submitted_at=now,
                array=each.array,
                index=index,
            )
            yield replace(
                each.request,
                request_id=RequestId(f"{name}{SEPARATOR}{number}"),
                user=caller.name,
                spec=spec,
            )
            number += 1


def _rows(asked: Iterable[Asked], first: JobId, caller: Identity, now: float) -> tuple[object, ...]:
    rows: list[object] = []
    job = first
    for each in asked:
        count = len(each.array.tasks) if each.array is not None else 1
        text = f"array of {count}" if each.array is not None else each.body.name
        rows.append(Event(at=now, kind="submit", actor=caller.name, job=job, text=text))
        if each.held:
            rows += [
                HoldChanged(job=JobId(job + k), held="user", actor=caller.name)
                for k in range(count)
            ]
        job = JobId(job + count)
    return tuple(rows)


def _check_room(cluster: Cluster, caller: Identity, more: int) -> None:
    """Refuse floods: live jobs of one user and of all are bounded.

    Raises:
        TooMuch: naming the bound.
    """
    limits, jobs = cluster.settings.limits, cluster.shell.reserved.jobs
    if len(jobs) + more > limits.jobs:
        raise TooMuch(f"the cluster has {len(jobs)} live jobs, at most {limits.jobs}")
    if len(jobs) + more > limits.jobs_per_user:  # else nobody can have so many
        mine = Counter(row.request.user for row in jobs.values() if not row.status.is_terminal)
        if mine[caller.name] + more > limits.jobs_per_user:
            raise TooMuch(
                f"{caller.name} has {mine[caller.name]} live jobs, at most {limits.jobs_per_user}"
            )


def _reply(asked: Iterable[Asked], first: JobId) -> control_pb2.SubmitReply:
    reply, job = control_pb2.SubmitReply(), first
    for each in asked:
        count = len(each.array.tasks) if each.array is not None else 1
        reply.jobs.add(job=job, elements=count if each.array is not None else 0)
        job = JobId(job + count)
    return reply


async def _again(
    asked: list[Asked], stored: object, name: str, caller: Identity, cluster: Cluster
) -> control_pb2.SubmitReply:
    """The same call again, when its jobs have left memory: the same ids, or a conflict."""
    requests = list(_requests(asked, name, caller, 0.0))
    shell = cluster.shell
    last = requests[-1].request_id
    end = await shell.read(partial(shell.store.request_lookup, caller.name, last))
    beyond = RequestId(f"{name}{SEPARATOR}{len(requests)}")
    more = await shell.read(partial(shell.store.request_lookup, caller.name, beyond))
    first_same = stored.is_same(requests[0])  # type: ignore[attr-defined]
    if not first_same or more is not None or end is None or not end.is_same(requests[-1]):
        raise Conflict("the request id stands for other jobs")
    return _reply(asked, stored.job)  # type: ignore[attr-defined]
