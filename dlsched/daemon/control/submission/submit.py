"""Submission: all or none of a call's jobs, in one transaction, answered when they are durable."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from dlsched.core.errors import BadInput, NotAllowed, Unavailable, plural
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.bounds import check_text
from dlsched.daemon.control.predicted import put_deadline, put_moment
from dlsched.daemon.control.submission.job_dependencies import places_of, resolved
from dlsched.daemon.control.submission.job_validation import (
    ValidJob,
    check_priority,
    checked_environment,
    validate,
)
from dlsched.daemon.control.submission.partitions import tenants_of
from dlsched.daemon.control.submission.quotas import (
    JobQuotas,
    Tenants,
    check_room,
    refuse_beyond_quota,
)
from dlsched.daemon.control.submission.rate_limit import RateLimit
from dlsched.daemon.control.submission.required_sla import check_has_deadlines, declined
from dlsched.daemon.control.submission.slas import unplanned
from dlsched.daemon.live.job_requests import Described
from dlsched.daemon.live.live_state import LiveState
from dlsched.daemon.notifying.receivers import unheard
from dlsched.daemon.predictions import Predictions
from dlsched.daemon.rpc_errors import Conflict, TooMuch
from dlsched.daemon.trust import check_may_run
from dlsched.daemon.turns import in_turns
from dlsched.db.contents import ContentGiven, ContentSizes, Repeats, seal_of
from dlsched.db.records import CheckpointCommitted, Event, HoldChanged, JobSpec
from dlsched.protocol.leader import BatchAsked
from dlsched.protocol.ledger import Job, JobStatus, Ledger, Request, submissions
from dlsched.protocol.messages import JobId, RequestId
from dlsched.rpc.authorisation import require_reader
from dlsched.rpc.identity import Identity
from dlsched.rpc.request_bounds import ENVIRONMENT_BYTES, GANG_NODES
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import boottime, wall
from dlsched.system.fault_points import fault_point

DEADLINE_PATIENCE_S = 5.0  # an answer waits so long for what a deadline's prediction says
MOST_TESTED = 200  # jobs, and elements of an array, whose start test_only predicts
MOST_OF_GRAPH = 2000  # jobs of a call that depend on each other; some of it is done in one turn
SEPARATOR = "#"  # between a call's request id and the number of a job in it


class Submissions:
    """Takes jobs in.

    Attributes:
        rate_limit: on the calls of each user.
    """

    def __init__(self, cluster: Cluster, predictions: Predictions) -> None:
        self._cluster = cluster
        self._predictions = predictions
        self._requiring = asyncio.Lock()
        self.rate_limit = RateLimit()

    async def submit(
        self, request: control_pb2.SubmitRequest, caller: Identity
    ) -> control_pb2.SubmitReply:
        """Take the jobs of one call in.

        Raises:
            DlschedError: one line; then none of them was taken.
        """
        fault_point("after-submit-read")
        cluster = self._cluster
        driver, limits = cluster.driver, cluster.settings.limits
        driver.require_lead()
        check_may_run(caller, cluster.settings.trust)
        if not request.jobs:
            raise BadInput("nothing to submit")
        self.rate_limit.take(caller.name, limits.submits_per_s, limits.submit_burst, boottime())
        _check_batch(len(request.jobs), limits.batch_size)
        name = _request_id_of(request)
        asked = await _admit_all(cluster, request, caller)
        total = sum(each.elements for each in asked)
        _check_batch(total, limits.batch_size)
        if any(each.places for each in asked):
            _check_batch(total, MOST_OF_GRAPH)
        asked = await _with_dependencies(cluster, asked)
        if request.require_sla:
            check_has_deadlines(asked)
        if request.test_only:
            await _beginnings(cluster, asked, caller)
            reply = await self._test(asked, caller, total)
        else:
            reply = await self._take_in(asked, name, caller, require_sla=request.require_sla)
        reply.warnings.extend((*_unheard(asked, cluster), *_unsaid_gpus(asked)))
        bodies = [each.body for each in asked]
        reply.warnings.extend(unplanned(bodies, cluster.round_state.settings.policy))
        return reply

    async def _take_in(
        self,
        asked: Sequence[ValidJob],
        name: str,
        caller: Identity,
        *,
        require_sla: bool,
    ) -> control_pb2.SubmitReply:
        """Have the jobs of a call stored; a repeated call gets the same answer again.

        Args:
            asked: its jobs and arrays.
            name: its request id.
            caller: whose call it is.
            require_sla: take them in only if they keep their deadlines.
        """
        cluster, driver = self._cluster, self._cluster.driver
        total, now = sum(each.elements for each in asked), wall()
        first = RequestId(f"{name}{SEPARATOR}0")
        known, stored = await self._looked_up(caller.name, first)
        first_job = known or (stored.job if stored is not None else driver.reserved.next_job)
        asked = _placed(asked, first_job)
        sizes = ContentSizes()
        requests = [each async for each in in_turns(_requests(asked, name, caller, now, sizes))]
        if known != driver.reserved.requests.get((caller.name, first)):
            raise Unavailable("the same call was made meanwhile; ask again")
        if known is not None:
            stored = await self._partly_forgotten(requests, caller, name, known)
        if stored is not None:
            return await _again(asked, stored, name, caller, cluster)
        if known is not None:
            return await self._known_again(asked, requests, known, name)
        live = cluster.live
        described = await _described(live, requests)
        begin_at = await _beginnings(cluster, asked, caller)
        likely = [each async for each in in_turns(_rows(asked, first_job, caller, now))]
        submits = [each async for each in in_turns(submissions(requests, first_job))]
        size = sum(_size(each, sizes) for each in asked)
        await asyncio.sleep(0)  # what follows is one turn: no other call comes in between
        check_room(cluster, caller.name, total, size)
        JobQuotas(cluster).check(_by_tenants(caller.name, asked))

        def event(token: int) -> BatchAsked:
            next_job = driver.reserved.next_job
            taken, made, rows, expected = requests, submits, likely, described
            if next_job != first_job:
                placed = _placed(asked, next_job)
                rows, made = [*_rows(placed, next_job, caller, now)], []
                if placed is not asked:
                    taken, expected = [*_requests(placed, name, caller, now, sizes)], {}
            rows += _first_checkpoints(cluster, asked, next_job, begin_at)
            if cluster.live is live:
                live.requests.expected = expected
            return BatchAsked(boottime(), token, tuple(taken), next_job, tuple(rows), tuple(made))

        try:
            if require_sla:
                job = await self._ask_if_kept(event, asked, requests)
            else:
                job = await driver.ask(event)
        except Conflict:
            raise _conflict(name, None) from None
        if isinstance(job, control_pb2.SubmitReply):
            return job
        assert job is not None
        return await self._with_deadlines(_reply(asked, job), asked)

    async def _known_again(
        self, asked: Sequence[ValidJob], requests: Sequence[Request], known: JobId, name: str
    ) -> control_pb2.SubmitReply:
        """Answer a repeated call whose jobs are in memory, once they are durable.

        Args:
            asked: its jobs and arrays.
            requests: of the call.
            known: the job of the first request.
            name: the call's request id.

        Raises:
            Conflict: the id stands for other jobs.
        """
        driver = self._cluster.driver
        taken = tuple(await _known_requests(driver.reserved, asked, requests, known, name))
        try:
            await driver.ask(lambda token: BatchAsked(boottime(), token, taken, known))
        except Conflict:
            raise _conflict(name, known) from None
        return _reply(asked, known)

    async def _looked_up(self, user: str, first: RequestId) -> tuple[JobId | None, Job | None]:
        """The job of a request that was made before, in memory or as the database knows it."""
        driver, stored = self._cluster.driver, None
        known = driver.reserved.requests.get((user, first))
        if known is None:
            stored = await driver.read(partial(driver.store.request_lookup, user, first))
            known = driver.reserved.requests.get((user, first))
        return known, stored

    async def _ask_if_kept(
        self,
        event: Callable[[int], BatchAsked],
        asked: Sequence[ValidJob],
        requests: Sequence[Request],
    ) -> JobId | control_pb2.SubmitReply | None:
        """Take jobs in that keep their deadlines; else the reply that says why not."""
        specs = [each.spec for each in requests if isinstance(each.spec, JobSpec)]
        async with self._requiring:  # two calls that fit one by one may not fit together
            refused = await declined(self._predictions, asked, specs)
            return refused or await self._cluster.driver.ask(event)

    async def _with_deadlines(
        self, reply: control_pb2.SubmitReply, asked: Sequence[ValidJob]
    ) -> control_pb2.SubmitReply:
        """Say of the first new jobs with a deadline whether they keep it; of arrays the first."""
        until = boottime() + DEADLINE_PATIENCE_S
        pairs = zip(reply.jobs, asked, strict=False)
        due = [
            (each.job, one.body.deadline_at)
            for each, one in pairs
            if one.body.deadline_at is not None
        ]
        for job, deadline_at in due[:MOST_TESTED]:
            forecast = await self._predictions.of(job, max(until - boottime(), 0.0))
            refused = self._declined_by_policy(JobId(job)) or (forecast.refused if forecast else "")
            if refused:
                reply.warnings.append(f"job {job} is cancelled: {refused}")
            elif forecast is not None and not math.isnan(forecast.on_time):
                put_deadline(reply.deadlines.add(), forecast, deadline_at, job)
        return reply

    def _declined_by_policy(self, job: JobId) -> str:
        """Why the policy has refused a job for good; empty while it has not."""
        row = self._cluster.driver.committed.jobs.get(job)
        if row is None or row.status is not JobStatus.CANCELLED:
            return ""
        return row.reason.removeprefix("Admission: ") if row.reason.startswith("Admission") else ""

    async def _partly_forgotten(
        self, requests: list[Request], caller: Identity, name: str, known: JobId
    ) -> Job | None:
        """The stored first job of a repeated call; None while all its jobs are in memory.

        Args:
            requests: of the call.
            caller: whose call it is.
            name: the call's request id.
            known: the job of the first request.

        Raises:
            Conflict: the id stands for more jobs.
        """
        driver = self._cluster.driver
        there = driver.reserved.requests
        if (caller.name, RequestId(f"{name}{SEPARATOR}{len(requests)}")) in there:
            raise _conflict(name, known)
        if all((caller.name, each.request_id) in there for each in requests):
            return None
        first = requests[0].request_id
        return await driver.read(partial(driver.store.request_lookup, caller.name, first))

    async def _test(
        self, asked: list[ValidJob], caller: Identity, total: int
    ) -> control_pb2.SubmitReply:
        """Predict the starts of a call's jobs, without taking them in."""
        reply = control_pb2.SubmitReply(warnings=[f"would be accepted: {plural(total, 'job')}"])
        requests = iter(_requests(asked, "test", caller, wall(), ContentSizes()))
        specs: list[list[JobSpec]] = []
        for each in asked[:MOST_TESTED]:
            count = each.elements
            mine = [next(requests).spec for _ in range(count)]
            seen = () if each.held or each.places else mine[:MOST_TESTED]
            specs.append([spec for spec in seen if isinstance(spec, JobSpec)])
        for each, start in zip(asked, await self._predictions.suppose(specs), strict=False):
            if each.held:
                reply.supposed.add(basis="not predicted while it waits: Held")
            elif each.places:
                reply.supposed.add(basis="not predicted while it waits: Dependency")
            elif isinstance(start, str):
                reply.supposed.add(basis=start)
            else:
                told = reply.supposed.add(start_at=start.at, basis=start.basis)
                put_moment(told.start, start.at, start.p10, start.p90)
                put_moment(told.end, start.end_at, start.end_p10, start.end_p90)
                deadline_at = each.body.deadline_at
                if deadline_at is not None and not math.isnan(start.on_time):
                    put_deadline(told.deadline, start, deadline_at)
        return reply


async def _described(live: LiveState, requests: Iterable[Request]) -> dict[int, Described]:
    """What the jobs of a call ask for, by the identity of their bodies, made in turns."""
    found: dict[int, Described] = {}
    async for each in in_turns(requests):
        if isinstance(each.spec, JobSpec) and id(each.spec.body) not in found:
            found[id(each.spec.body)] = live.requests.described(each.spec)
    return found


def _unsaid_gpus(asked: Sequence[ValidJob]) -> list[str]:
    """What to say of jobs that get GPUs though no option asks for them."""
    unsaid = sum(each.gpus_unsaid for each in asked)
    if not unsaid:
        return []
    which = "it gets 1 GPU" if len(asked) == 1 else f"{plural(unsaid, 'job')} get 1 GPU each"
    return [f"no option says how many GPUs: {which} (--gpus 0: none)"]


def _unheard(asked: Iterable[ValidJob], cluster: Cluster) -> Iterable[str]:
    """What the jobs ask to be told and this site does not tell, each once."""
    site = cluster.settings.notifications
    lines: dict[str, None] = {}
    for body in (each.body for each in asked):
        if body.notify or body.notify_url or body.mail_user:
            found = unheard(site, notify=body.notify, url=body.notify_url, addresses=body.mail_user)
            lines |= dict.fromkeys(found)
    return lines


def _request_id_of(request: control_pb2.SubmitRequest) -> str:
    name = request.request_id or secrets.token_hex(12)
    check_text("request id", name, 200)
    if SEPARATOR in name:
        raise BadInput(f"request id: {SEPARATOR!r} is not allowed in it")
    return name


async def _with_dependencies(cluster: Cluster, asked: list[ValidJob]) -> list[ValidJob]:
    """The jobs with dependencies on ids of jobs that exist, resolved together."""
    needs = [need for each in asked for need in each.body.dependencies]
    if not needs:
        return asked
    found = iter(await resolved(cluster, needs, [task for each in asked for task in each.tasks]))
    return [
        replace(each, body=replace(each.body, dependencies=tuple(islice(found, len(each.tasks)))))
        if each.tasks
        else each
        for each in asked
    ]


def _placed(asked: Sequence[ValidJob], first: JobId) -> Sequence[ValidJob]:
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


def _check_batch(jobs: int, most: int) -> None:
    if jobs > most:
        raise TooMuch(f"{jobs} jobs in one call, at most {most}")


async def _admit_all(
    cluster: Cluster,
    request: control_pb2.SubmitRequest,
    caller: Identity,
) -> list[ValidJob]:
    now, capacity = wall(), cluster.capacity()
    whose = await tenants_of(cluster, caller)
    most = cluster.settings.limits.environment_bytes
    common = checked_environment({}, request.environment, most)
    asked: list[ValidJob] = []
    total, seals = _Work(), _Seals()
    async for number, wanted in in_turns(enumerate(request.jobs, 1)):
        try:
            each = validate(wanted, common, cluster.settings, capacity, now, whose)
            total.add(each)
            check_priority(each.body.priority, None, caller)
            refuse_beyond_quota(cluster, caller.name, each.body)
            places = places_of(wanted.dependencies, number)
            asked.append(seals.sealed(replace(each, places=places) if places else each))
        except (BadInput, NotAllowed) as error:
            if len(request.jobs) == 1:
                raise
            raise type(error)(f"job {number} of {len(request.jobs)}: {error}") from None
    return asked


class _Work:
    """What a call has the daemon store, counted over its jobs."""

    def __init__(self) -> None:
        self._sizes = ContentSizes()
        self._nodes = self._bytes = 0

    def add(self, job: ValidJob) -> None:
        """Count one more job or array.

        Raises:
            BadInput: the call is too much work; one line that names the bound.
        """
        self._nodes += len(job.request.gang) * job.elements
        if self._nodes > GANG_NODES:
            raise BadInput(f"more than {GANG_NODES} nodes in one call, counted for each element")
        self._bytes += self._sizes.of_environment(job.content.environment)
        if self._bytes > ENVIRONMENT_BYTES:
            raise BadInput(f"more than {ENVIRONMENT_BYTES} bytes of environments in one call")


class _Seals:
    """Seals what the jobs of a call ask for; each environment once, and all with one salt."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(16)
        self._made: dict[int, tuple[Mapping[str, str], str]] = {}  # by id, which it keeps

    def sealed(self, job: ValidJob) -> ValidJob:
        """The job with the seal of its environment."""
        variables = job.content.environment
        if id(variables) not in self._made:
            self._made[id(variables)] = variables, seal_of(variables, self._salt)
        return replace(job, body=replace(job.body, seal=self._made[id(variables)][1]))


def _size(job: ValidJob, sizes: ContentSizes) -> int:
    """About how many bytes of memory the content of a job, or of an array, takes."""
    lines = 0 if job.array is None else job.array.short_task_bytes
    return sizes.of(job.body, job.content) + lines


def _requests(
    asked: Iterable[ValidJob], name: str, caller: Identity, now: float, sizes: ContentSizes
) -> Iterable[Request]:
    number = 0
    for each in asked:
        mine = _size(each, sizes) // each.elements
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


def _rows(
    asked: Iterable[ValidJob], first: JobId, caller: Identity, now: float
) -> Iterator[object]:
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


async def _beginnings(
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


def _first_checkpoints(
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


def _reply(asked: Iterable[ValidJob], first: JobId) -> control_pb2.SubmitReply:
    reply, job = control_pb2.SubmitReply(), first
    for each in asked:
        count = each.elements
        reply.jobs.add(job=job, elements=count if each.array is not None else 0)
        job = JobId(job + count)
    return reply


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
            raise _conflict(name, known)
        found.append(accepted)
    return found


async def _again(
    asked: Sequence[ValidJob], stored: Job, name: str, caller: Identity, cluster: Cluster
) -> control_pb2.SubmitReply:
    """Answer a repeated call whose jobs have left memory: with the same ids, or a conflict."""
    requests = list(_requests(asked, name, caller, 0.0, ContentSizes()))
    driver, last = cluster.driver, requests[-1].request_id
    end = await driver.read(partial(driver.store.request_lookup, caller.name, last))
    beyond = RequestId(f"{name}{SEPARATOR}{len(requests)}")
    more = await driver.read(partial(driver.store.request_lookup, caller.name, beyond))
    pairs = ((stored, requests[0], asked[0]), (end, requests[-1], asked[-1]))
    if more is not None or not all(
        job is not None and Repeats().is_same(job.request, request, each.content)
        for job, request, each in pairs
    ):
        raise _conflict(name, stored.job)
    return _reply(asked, stored.job)


def _conflict(name: str, job: JobId | None) -> Conflict:
    what = "other jobs" if job is None else f"job {job}, submitted with another content"
    return Conflict(
        f"request id {name!r} stands for {what} (script, options, variables, time or folder differ)"
    )


def _by_tenants(user: str, asked: Sequence[ValidJob]) -> Counter[Tenants]:
    """How many jobs are asked for, by user, account, VC and priority class."""
    found: Counter[Tenants] = Counter()
    for each in asked:
        count = each.elements
        body = each.body
        found[user, body.account, body.vc, body.priority_class] += count
    return found
