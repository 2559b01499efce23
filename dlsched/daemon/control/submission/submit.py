"""Submission: all or none of a call's jobs, in one transaction, answered when they are durable."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from dlsched.core.errors import BadInput, NotAllowed, Unavailable, plural
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.bounds import check_text
from dlsched.daemon.control.predicting.predicted import put_deadline, put_moment
from dlsched.daemon.control.submission.job_dependencies import places_of, resolved
from dlsched.daemon.control.submission.job_validation import (
    ValidJob,
    check_place,
    checked_environment,
    place_of,
    validate,
)
from dlsched.daemon.control.submission.new_jobs import (
    SEPARATOR,
    beginnings,
    described_of,
    first_checkpoints,
    placed,
    reply_of,
    requests_of,
    rows_of,
    size_of,
)
from dlsched.daemon.control.submission.partitions import tenants_of
from dlsched.daemon.control.submission.quotas import (
    JobQuotas,
    Tenants,
    check_columns,
    check_room,
    refuse_beyond_quota,
)
from dlsched.daemon.control.submission.rate_limit import RateLimit
from dlsched.daemon.control.submission.repeated_calls import answer_again, conflict, made_before
from dlsched.daemon.control.submission.required_sla import check_has_deadlines, declined
from dlsched.daemon.control.submission.slas import unplanned
from dlsched.daemon.control.submission.storage_bounds import StorageBounds
from dlsched.daemon.notifying.receivers import unheard
from dlsched.daemon.predictions import Predictions
from dlsched.daemon.rpc_errors import Conflict, TooMuch
from dlsched.daemon.trust import check_may_run
from dlsched.daemon.turns import UserTurns, in_turns
from dlsched.db.contents import ContentSizes, seal_of
from dlsched.db.records import JobSpec
from dlsched.db.stored_bytes import ROW_BYTES
from dlsched.protocol.leader import BatchAsked
from dlsched.protocol.ledger import JobStatus, Request, submissions
from dlsched.protocol.messages import JobId, RequestId
from dlsched.rpc.identity import Identity
from dlsched.rpc.request_bounds import ENVIRONMENT_BYTES, GANG_NODES
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import boottime, wall
from dlsched.system.fault_points import fault_point

DEADLINE_PATIENCE_S = 5.0  # an answer waits so long for what a deadline's prediction says
MOST_TESTED = 200  # jobs, and elements of an array, whose start test_only predicts
MOST_OF_GRAPH = 2000  # jobs of a call that depend on each other; some of it is done in one turn


class Submissions:
    """Takes jobs in.

    Attributes:
        rate_limit: on the calls of each user.
    """

    def __init__(self, cluster: Cluster, predictions: Predictions, storage: StorageBounds) -> None:
        self._cluster = cluster
        self._predictions = predictions
        self._requiring = UserTurns()
        self.rate_limit = RateLimit()
        self._storage = storage

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
            await beginnings(cluster, asked, caller)
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
        known, stored = await made_before(driver, caller.name, first)
        first_job = known or (stored.job if stored is not None else driver.reserved.next_job)
        asked = placed(asked, first_job)
        sizes = ContentSizes()
        requests = [each async for each in in_turns(requests_of(asked, name, caller, now, sizes))]
        if known != driver.reserved.requests.get((caller.name, first)):
            raise Unavailable("the same call was made meanwhile; ask again")
        if before := known or stored:
            return await answer_again(driver, asked, requests, name, caller, before)
        live = cluster.live
        described = await described_of(live, requests)
        begin_at = await beginnings(cluster, asked, caller)
        likely = [each async for each in in_turns(rows_of(asked, first_job, caller, now))]
        submits = [each async for each in in_turns(submissions(requests, first_job))]
        size = sum(size_of(each, sizes) for each in asked)
        await self._storage.look(caller.name)
        await asyncio.sleep(0)  # what follows is one turn: no other call comes in between
        check_room(cluster, caller.name, total, size)
        check_columns(cluster, caller.name, asked)
        JobQuotas(cluster).check(_by_tenants(caller.name, asked))
        self._storage.take(caller.name, total * ROW_BYTES + size)

        def event(token: int) -> BatchAsked:
            next_job = driver.reserved.next_job
            taken, made, rows, expected = requests, submits, likely, described
            if next_job != first_job:
                moved = placed(asked, next_job)
                rows, made = [*rows_of(moved, next_job, caller, now)], []
                if moved is not asked:
                    taken, expected = [*requests_of(moved, name, caller, now, sizes)], {}
            rows += first_checkpoints(cluster, asked, next_job, begin_at)
            if cluster.live is live:
                live.requests.expected = expected
            return BatchAsked(boottime(), token, tuple(taken), next_job, tuple(rows), tuple(made))

        try:
            if require_sla:
                job = await self._ask_if_kept(event, asked, requests, caller)
            else:
                job = await driver.ask(event)
        except Conflict:
            raise conflict(name, None) from None
        if isinstance(job, control_pb2.SubmitReply):
            return job
        assert job is not None
        return await self._with_deadlines(reply_of(asked, job), asked)

    async def _ask_if_kept(
        self,
        event: Callable[[int], BatchAsked],
        asked: Sequence[ValidJob],
        requests: Sequence[Request],
        caller: Identity,
    ) -> JobId | control_pb2.SubmitReply | None:
        """Take jobs in that keep their deadlines; else the reply that says why not."""
        specs = [each.spec for each in requests if isinstance(each.spec, JobSpec)]
        # two calls that fit one by one may not fit together
        async with self._requiring.of(caller.name):
            refused = await declined(self._predictions, asked, specs)
            if refused is None:
                return await self._cluster.driver.ask(event)
        return await refused.told()

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

    async def _test(
        self, asked: list[ValidJob], caller: Identity, total: int
    ) -> control_pb2.SubmitReply:
        """Predict the starts of a call's jobs, without taking them in."""
        reply = control_pb2.SubmitReply(warnings=[f"would be accepted: {plural(total, 'job')}"])
        requests = iter(requests_of(asked, "test", caller, wall(), ContentSizes()))
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
            check_place(place_of(each.body), {}, caller)
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


def _by_tenants(user: str, asked: Sequence[ValidJob]) -> Counter[Tenants]:
    """How many jobs are asked for, by user, account, VC and priority class."""
    found: Counter[Tenants] = Counter()
    for each in asked:
        count = each.elements
        body = each.body
        found[user, body.account, body.vc, body.priority_class] += count
    return found
