"""Cancel, hold, release, requeue, suspend, resume, signal; a job that fails gets a line."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType

from dlsched.core.errors import BadInput, DlschedError, NotAllowed, shorten
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.bounds import check_number, check_text
from dlsched.daemon.control.job_filters import (
    check_filter,
    chosen_ids,
    live_jobs,
    names_jobs,
    owner_of,
    stored_names,
    subject,
)
from dlsched.daemon.control.restarting import Restarts
from dlsched.daemon.control.submission.storage_bounds import StorageBounds
from dlsched.daemon.rpc_errors import NotPossible
from dlsched.daemon.turns import in_turns
from dlsched.db.records import Event, HoldChanged
from dlsched.protocol import leader
from dlsched.protocol.ledger import Job, JobStatus
from dlsched.protocol.messages import JobId, RunKey
from dlsched.rpc.authorisation import require_owner
from dlsched.rpc.call_failures import answer
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2, node_pb2
from dlsched.system.clock import boottime, wall

log = logging.getLogger("dlsched.daemon.control")
SIGNAL_S = 5.0
Asked = leader.AttachAsked | leader.CancelAsked | leader.RequeueAsked | leader.SuspendAsked
AT_ONCE = 200  # jobs changed in one transaction
MOST_IN_A_PART = 1_000_000  # jobs, of one call
# The kinds of events of what could be done without end. What ends a job, and what follows on one of
# these (a release of what is held, a resume), may always be done.
BOUNDED: Mapping[int, str] = MappingProxyType(
    {
        control_pb2.ACTION_HOLD: "hold",
        control_pb2.ACTION_RELEASE: "release",
        control_pb2.ACTION_REQUEUE: "requeue",
        control_pb2.ACTION_SUSPEND: "suspend",
    }
)


class _Action:
    """The actions on one job; each method returns the events that carry it out."""

    def __init__(self, cluster: Cluster, caller: Identity, request: control_pb2.ActRequest) -> None:
        self.cluster = cluster
        self.caller = caller
        self.request = request
        self.restarts = Restarts(cluster, request, caller)

    def event(self, row: Job, kind: str, text: str = "") -> leader.AttachAsked:
        """The event that is recorded for the job."""
        said = text or self.request.reason
        note = Event(at=wall(), kind=kind, actor=self.caller.name, job=row.job, text=said)
        return leader.AttachAsked(boottime(), (note,))

    def cancel(self, row: Job, token: int) -> list[Asked]:
        if row.status.is_terminal:
            raise NotPossible("it has ended already")
        return [self.event(row, "cancel"), leader.CancelAsked(boottime(), token, row.job)]

    def hold(self, row: Job, token: int) -> list[Asked]:
        if row.status.is_terminal:
            raise NotPossible("it has ended already")
        holder = "user" if self.caller.name == owner_of(self.cluster, row) else "admin"
        held = self.cluster.driver.table.of(row.job).held
        if held == "admin" and holder == "user":
            raise NotAllowed("an operator holds it")
        return self._hold(row, token, holder, "hold")

    def release(self, row: Job, token: int) -> list[Asked]:
        if row.status.is_terminal:
            raise NotPossible("it has ended already")
        if self.cluster.driver.table.of(row.job).held == "admin" and not self.caller.is_operator:
            raise NotAllowed("an operator holds it")
        return self._hold(row, token, "", "release")

    def _hold(self, row: Job, token: int, held: str, kind: str) -> list[Asked]:
        change = HoldChanged(job=row.job, held=held, actor=self.caller.name)
        return [self.event(row, kind), leader.AttachAsked(boottime(), (change,), token)]

    def requeue(self, row: Job, token: int) -> list[Asked]:
        if self.cluster.driver.table.spec(row).body.terminal:
            raise NotPossible("it is interactive and starts once")
        if row.status.is_terminal:
            given, asked = self.restarts.restart(row)
            attach = leader.AttachAsked(boottime(), given)
            again = leader.RequeueAsked(boottime(), token, row.job, asked)
            return [self.event(row, "requeue"), attach, again]
        if self.request.fresh:
            raise NotPossible(f"it is {row.status.value}; only an ended job begins anew")
        if row.status is JobStatus.PENDING:
            raise NotPossible("it is pending")
        return [self.event(row, "requeue"), leader.RequeueAsked(boottime(), token, row.job)]

    def suspend(self, row: Job, token: int) -> list[Asked]:
        if row.status is not JobStatus.RUNNING:
            raise NotPossible(f"it is {row.status.value}, not running")
        asked = leader.SuspendAsked(boottime(), row.job, True)
        hold = HoldChanged(job=row.job, held="user", actor=self.caller.name)
        held = leader.AttachAsked(boottime(), (hold,), token)
        return [self.event(row, "suspend"), asked, held]

    def resume(self, row: Job, token: int) -> list[Asked]:
        held = self.cluster.driver.table.of(row.job).held
        if held == "admin" and not self.caller.is_operator:
            raise NotAllowed("an operator holds it")
        if row.status is JobStatus.PENDING and held:  # its run is over, the hold is not
            raise NotPossible(f"it is pending, not suspended, and held: dlsched release {row.job}")
        if row.status is not JobStatus.SUSPENDED:
            raise NotPossible(f"it is {row.status.value}, not suspended")
        run = self.cluster.driver.reserved.live_run(row.job)
        if run is not None and run.gives_way:
            raise NotPossible("others have its GPUs; it goes on when they are free")
        asked = leader.SuspendAsked(boottime(), row.job, False)
        hold = HoldChanged(job=row.job, held="", actor=self.caller.name)
        return [self.event(row, "resume"), asked, leader.AttachAsked(boottime(), (hold,), token)]


async def act(
    cluster: Cluster, request: control_pb2.ActRequest, caller: Identity, storage: StorageBounds
) -> control_pb2.ActReply:
    """Do one thing to every job that a filter means."""
    check_text("reason", request.reason, 1024)
    check_filter(request.filter)
    action = _Action(cluster, caller, request)
    if request.action == control_pb2.ACTION_SIGNAL:
        _check_signal(request)
    make: dict[int, Callable[[Job, int], list[Asked]]] = {
        control_pb2.ACTION_CANCEL: action.cancel,
        control_pb2.ACTION_HOLD: action.hold,
        control_pb2.ACTION_RELEASE: action.release,
        control_pb2.ACTION_REQUEUE: action.requeue,
        control_pb2.ACTION_SUSPEND: action.suspend,
        control_pb2.ACTION_RESUME: action.resume,
    }
    if request.action != control_pb2.ACTION_SIGNAL and request.action not in make:
        raise BadInput(f"action {request.action} is not known to this version")
    cluster.driver.require_lead()
    reply = control_pb2.ActReply()
    rows = await _meant(action, reply)
    if request.only_count:
        reply.done.extend(subject(row, cluster) for row in rows)
        return reply
    if request.after:  # the part before has told of the names without a job
        del reply.failed[:]
    if request.after or request.limit:
        check_number("limit", request.limit, 0, MOST_IN_A_PART)
        rows = sorted((row for row in rows if row.job > request.after), key=lambda row: row.job)
        if request.limit and len(rows) > request.limit:
            rows = rows[: request.limit]
            reply.next = rows[-1].job
    if kind := BOUNDED.get(request.action):
        new = [
            row for row in rows if kind != "release" or not cluster.driver.table.of(row.job).held
        ]
        if new:
            await storage.take_action(caller.name, kind, len(new), len(request.reason))
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        if request.action == control_pb2.ACTION_SIGNAL:
            await _each(cluster, some, partial(_signal, cluster, request), reply)
        else:
            if request.action == control_pb2.ACTION_REQUEUE:
                await action.restarts.look_up([row.job for row in some if row.status.is_terminal])
            await _together(cluster, some, make[request.action], reply)
    return reply


async def _meant(action: _Action, reply: control_pb2.ActReply) -> list[Job]:
    """The jobs that the caller may change; the others become failures in the reply."""
    cluster, caller, wanted = action.cluster, action.caller, action.request.filter
    if not names_jobs(wanted):
        rows, _ = await live_jobs(
            cluster, wanted, caller
        )  # without names, a user changes only own jobs
        return [row for row in rows if caller.is_operator or owner_of(cluster, row) == caller.name]
    restarts = action.request.action == control_pb2.ACTION_REQUEUE
    found = chosen_ids(cluster, wanted)
    known = list(found.rows.values())
    ended: list[JobId] = []
    for name, ids in (await stored_names(cluster, found.missing)).items():
        if ids and restarts:
            ended += ids
        else:
            why = "it has ended already" if ids else "there is no such job"
            reply.failed.add(subject=f"job {name}", why=why)
    stored = await cluster.driver.read(partial(cluster.driver.store.jobs, ended))
    known += [each.job for each in stored]
    allowed = []
    async for row in in_turns(known):
        name = subject(row, cluster)
        owner = owner_of(cluster, row)
        try:
            require_owner(caller, owner, f"job {name}")
        except NotAllowed:
            reply.failed.add(subject=f"job {name}", why=f"not yours (owner {owner})")
            continue
        allowed.append(row)
    whole = len(allowed) > 1 and any(not row.status.is_terminal for row in allowed)
    return [row for row in allowed if not (whole and row.status.is_terminal)]


async def _together(
    cluster: Cluster,
    rows: list[Job],
    make: Callable[[Job, int], list[Asked]],
    reply: control_pb2.ActReply,
) -> None:
    """Change many jobs in one transaction, with one answer for each."""
    driver = cluster.driver
    events: list[Asked] = []
    waits: list[tuple[Job, asyncio.Future[JobId | None]]] = []
    for row in rows:
        token, future = driver.expect()
        current = driver.reserved.jobs.get(row.job, row)
        try:
            events += make(current, token)
            waits.append((row, future))
        except DlschedError as error:
            driver.give_up(token)
            reply.failed.add(subject=f"job {subject(row, cluster)}", why=str(error))
    if not waits:
        return
    driver.step(leader.Together(boottime(), tuple(events)))
    for row, future in waits:
        name = subject(row, cluster)
        try:
            await future
        except DlschedError as error:
            reply.failed.add(subject=f"job {name}", why=str(error))
        else:
            reply.done.append(name)


async def _each(
    cluster: Cluster,
    rows: list[Job],
    do: Callable[[Job], Awaitable[None]],
    reply: control_pb2.ActReply,
) -> None:
    outcomes = await asyncio.gather(*(do(row) for row in rows), return_exceptions=True)
    for row, outcome in zip(rows, outcomes, strict=True):
        name = subject(row, cluster)
        if isinstance(outcome, DlschedError):
            reply.failed.add(subject=f"job {name}", why=str(outcome))
        elif isinstance(outcome, BaseException):
            log.warning("event=act-failed job=%s why=%r", name, outcome)
            reply.failed.add(subject=f"job {name}", why="its node did not answer")
        else:
            reply.done.append(name)


def _check_signal(request: control_pb2.ActRequest) -> None:
    if not 1 <= request.signal <= 64:
        raise BadInput(f"signal {request.signal}: not within 1 and 64")
    if request.signal_to not in ("", "script", "steps"):
        raise BadInput(f"signal_to {shorten(request.signal_to)!r}: script, steps or nothing")
    if request.step < 0:
        raise BadInput(f"step {request.step}: below 0")


async def _signal(cluster: Cluster, request: control_pb2.ActRequest, row: Job) -> None:
    run = cluster.driver.committed.live_run(row.job)
    if run is None or not run.released:
        raise NotPossible("it is not running")

    async def send(node: str, key: RunKey) -> None:
        stub = cluster.agents.stub(node)  # type: ignore[arg-type]
        if stub is None:
            raise NotPossible(f"node {node} has not said where its agent listens")
        message = node_pb2.SignalRequest(
            key=to_wire(key), number=request.signal, to=request.signal_to
        )
        if request.HasField("step"):
            message.step = request.step
        await answer(stub.SendSignal(message, timeout=SIGNAL_S))

    nodes = [*run.members]
    if request.HasField("step"):  # the first node passes it on
        nodes = nodes[:1]
    await asyncio.gather(*(send(node, run.key) for node in nodes))
