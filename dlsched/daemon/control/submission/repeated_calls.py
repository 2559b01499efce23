"""Submissions that were made before: the same call again gets the same jobs, another a conflict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from dlsched.daemon.control.submission.job_validation import ValidJob
from dlsched.daemon.control.submission.new_jobs import SEPARATOR, reply_of, requests_of
from dlsched.daemon.leader_driver import LeaderDriver
from dlsched.daemon.rpc_errors import Conflict
from dlsched.daemon.turns import in_turns
from dlsched.db.contents import ContentSizes, Repeats
from dlsched.protocol.leader import BatchAsked
from dlsched.protocol.ledger import Job, Ledger, Request
from dlsched.protocol.messages import JobId, RequestId
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import boottime


async def made_before(
    driver: LeaderDriver, user: str, first: RequestId
) -> tuple[JobId | None, Job | None]:
    """The job of a request that was made before, in memory or as the database knows it."""
    stored = None
    known = driver.reserved.requests.get((user, first))
    if known is None:
        stored = await driver.read(partial(driver.store.request_lookup, user, first))
        known = driver.reserved.requests.get((user, first))
    return known, stored


async def answer_again(
    driver: LeaderDriver,
    asked: Sequence[ValidJob],
    requests: Sequence[Request],
    name: str,
    caller: Identity,
    first: JobId | Job,
) -> control_pb2.SubmitReply:
    """Answer a repeated call with the same ids, once they are durable.

    Args:
        driver: with the ledger and the database.
        asked: the jobs and arrays of the call.
        requests: of the call.
        name: the call's request id.
        caller: whose call it is.
        first: the job of the first request, in memory or as the database knows it.

    Raises:
        Conflict: the id stands for other jobs.
    """
    if isinstance(first, Job):
        return await _from_database(driver, asked, name, caller, first)
    there = driver.reserved.requests
    if (caller.name, RequestId(f"{name}{SEPARATOR}{len(requests)}")) in there:
        raise conflict(name, first)
    if not all((caller.name, each.request_id) in there for each in requests):
        lookup = partial(driver.store.request_lookup, caller.name, requests[0].request_id)
        if stored := await driver.read(lookup):
            return await _from_database(driver, asked, name, caller, stored)
    taken = tuple(await _known_requests(driver.reserved, asked, requests, first, name))
    try:
        await driver.ask(lambda token: BatchAsked(boottime(), token, taken, first))
    except Conflict:
        raise conflict(name, first) from None
    return reply_of(asked, first)


async def _known_requests(
    ledger: Ledger, asked: Iterable[ValidJob], requests: Sequence[Request], known: JobId, name: str
) -> list[Request]:
    """The accepted requests of a repeated call.

    Args:
        ledger: that has them.
        asked: the jobs and arrays of the call.
        requests: of the call, which are to be the same.
        known: the job of the first request.
        name: the call's request id.

    Raises:
        Conflict: they are others.
    """
    repeats, found = Repeats(), []
    contents = (each.content for each in asked for _ in range(each.elements))
    async for request, content in in_turns(zip(requests, contents, strict=True)):
        job = ledger.requests.get((request.user, request.request_id))
        accepted = None if job is None else ledger.jobs[job].request
        if accepted is None or not repeats.is_same(accepted, request, content):
            raise conflict(name, known)
        found.append(accepted)
    return found


async def _from_database(
    driver: LeaderDriver, asked: Sequence[ValidJob], name: str, caller: Identity, stored: Job
) -> control_pb2.SubmitReply:
    """Answer a repeated call whose jobs have left memory: with the same ids, or a conflict."""
    requests = list(requests_of(asked, name, caller, 0.0, ContentSizes()))
    last = requests[-1].request_id
    end = await driver.read(partial(driver.store.request_lookup, caller.name, last))
    beyond = RequestId(f"{name}{SEPARATOR}{len(requests)}")
    more = await driver.read(partial(driver.store.request_lookup, caller.name, beyond))
    pairs = ((stored, requests[0], asked[0]), (end, requests[-1], asked[-1]))
    if more is not None or not all(
        job is not None and Repeats().is_same(job.request, request, each.content)
        for job, request, each in pairs
    ):
        raise conflict(name, stored.job)
    return reply_of(asked, stored.job)


def conflict(name: str, job: JobId | None) -> Conflict:
    """The refusal of a request id that stands for others already."""
    what = "other jobs" if job is None else f"job {job}, submitted with another content"
    return Conflict(
        f"request id {name!r} stands for {what} (script, options, variables, time or folder differ)"
    )
