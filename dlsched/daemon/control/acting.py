"""Cancel, hold, release, requeue, suspend, resume, signal: on all that can be, a line a failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from dlsched.core.errors import BadInput, DlschedError, NotAllowed
from dlsched.daemon.clock import boottime, wall
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.bounds import check_text
from dlsched.daemon.control.choosing import chosen_ids, live, names_jobs, owner_of, subject
from dlsched.daemon.refusals import Refused
from dlsched.db.records import Event, HoldChanged
from dlsched.protocol import leader
from dlsched.protocol.ledger import Job, JobStatus
from dlsched.protocol.messages import JobId, RunKey
from dlsched.rpc.authorisation import require_owner
from dlsched.rpc.conversion import to_wire
from dlsched.rpc.hanging_up import answer
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2, node_pb2

__all__ = ["act"]

log = logging.getLogger("dlsched.daemon.control")
SIGNAL_S = 5.0
AT_ONCE = 500  # jobs changed in one transaction


class _Action:
    """One kind of action on one job; `apply` returns the events that do it."""

    def __init__(self, cluster: Cluster, caller: Identity, request: control_pb2.ActRequest) -> None:
        self.cluster = cluster
        self.caller = caller
        self.request = request

    def event(self, row: Job, kind: str, text: str = "") -> leader.AttachAsked:
        """The line in the job's story."""
        said = text or self.request.reason
        note = Event(at=wall(), kind=kind, actor=self.caller.name, job=row.job, text=said)
        return leader.AttachAsked(boottime(), (note,))

    def cancel(self, row: Job, token: int) -> list[object]:
        if row.status.is_terminal:
            raise Refused("it has ended already")
        return [self.event(row, "cancel"), leader.CancelAsked(boottime(), token, row.job)]

    def hold(self, row: Job, token: int) -> list[object]:
        if row.status.is_terminal:
            raise Refused("it has ended already")
        who = "user" if self.caller.name == owner_of(self.cluster, row) else "admin"
        held = self.cluster.shell.table.of(row.job).held
        if held == "admin" and who == "user":
            raise NotAllowed("an operator holds it")
        return self._hold(row, token, who, "hold")

    def release(self, row: Job, token: int) -> list[object]:
        if self.cluster.shell.table.of(row.job).held == "admin" and not self.caller.is_operator:
            raise NotAllowed("an operator holds it")
        return self._hold(row, token, "", "release")

    def _hold(self, row: Job, token: int, held: str, kind: str) -> list[object]:
        change = HoldChanged(job=row.job, held=held, actor=self.caller.name)
        return [self.event(row, kind), leader.AttachAsked(boottime(), (change,), token)]

    def requeue(self, row: Job, token: int) -> list[object]:
        if row.status.is_terminal:
            raise Refused("it has ended already")
        if row.status is JobStatus.PENDING:
            raise Refused("it is pending")
        return [self.event(row, "requeue"), leader.RequeueAsked(boottime(), token, row.job)]

    def suspend(self, row: Job, token: int) -> list[object]:
        if row.status is not JobStatus.RUNNING:
            raise Refused(f"it is {row.status.value}, not running")
        asked = leader.SuspendAsked(boottime(), row.job, True)
        hold = HoldChanged(job=row.job, held="user", actor=self.caller.name)
        held = leader.AttachAsked(boottime(), (hold,), token)
        return [self.event(row, "suspend"), asked, held]

    def resume(self, row: Job, token: int) -> list[object]:
        if row.status is not JobStatus.SUSPENDED:
            raise Refused(f"it is {row.status.value}, not suspended")
        if self.cluster.shell.table.of(row.job).held == "admin" and not self.caller.is_operator:
            raise NotAllowed("an operator holds it")
        run = self.cluster.shell.reserved.live_run(row.job)
        if run is not None and run.gives_way:
            raise Refused("others have its GPUs; it goes on when they are free")
        asked = leader.SuspendAsked(boottime(), row.job, False)
        hold = HoldChanged(job=row.job, held="", actor=self.caller.name)
        return [self.event(row, "resume"), asked, leader.AttachAsked(boottime(), (hold,), token)]


async def act(
    cluster: Cluster, request: control_pb2.ActRequest, caller: Identity
) -> control_pb2.ActReply:
    """Do one thing to every job that a filter means."""
    check_text("reason", request.reason, 1024)
    action = _Action(cluster, caller, request)
    if request.action == control_pb2.ACTION_SIGNAL and not 1 <= request.signal <= 64:
        raise BadInput(f"signal {request.signal}: not within 1 and 64")
    make: dict[int, Callable[[Job, int], list[object]]] = {
        control_pb2.ACTION_CANCEL: action.cancel,
        control_pb2.ACTION_HOLD: action.hold,
        control_pb2.ACTION_RELEASE: action.release,
        control_pb2.ACTION_REQUEUE: action.requeue,
        control_pb2.ACTION_SUSPEND: action.suspend,
        control_pb2.ACTION_RESUME: action.resume,
    }
    if request.action != control_pb2.ACTION_SIGNAL and request.action not in make:
        raise BadInput(f"action {request.action} is not known to this version")
    cluster.shell.require_lead()
    reply = control_pb2.ActReply()
    rows = await _meant(cluster, request.filter, caller, reply)
    if request.only_count:
        reply.done.extend(subject(row, cluster) for row in rows)
        return reply
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        if request.action == control_pb2.ACTION_SIGNAL:
            await _each(cluster, some, partial(_signal, cluster, request.signal), reply)
        else:
            await _together(cluster, some, make[request.action], reply)
    return reply


async def _meant(
    cluster: Cluster,
    wanted: control_pb2.Filter,
    caller: Identity,
    reply: control_pb2.ActReply,
) -> list[Job]:
    """The jobs that may be touched; the others are failures in the reply."""
    if not names_jobs(wanted):
        rows, _ = live(cluster, wanted, caller)  # a filter touches one's own only
        return [row for row in rows if caller.is_operator or owner_of(cluster, row) == caller.name]
    found = chosen_ids(cluster, wanted)
    for name, job in found.missing:
        stored = await cluster.shell.read(partial(cluster.shell.store.jobs, [job])) if job else []
        why = "it has ended already" if stored else "there is no such job"
        reply.failed.add(subject=f"job {name}", why=why)
    allowed = []
    for row in found.rows.values():
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
    make: Callable[[Job, int], list[object]],
    reply: control_pb2.ActReply,
) -> None:
    """Many jobs in one transaction, each with its own answer."""
    shell = cluster.shell
    events: list[object] = []
    waits: list[tuple[Job, asyncio.Future[JobId | None]]] = []
    for row in rows:
        token, future = shell.expect()
        current = shell.reserved.jobs.get(row.job, row)
        try:
            events += make(current, token)
            waits.append((row, future))
        except DlschedError as error:
            shell.give_up(token)
            reply.failed.add(subject=f"job {subject(row, cluster)}", why=str(error))
    if not waits:
        return
    shell.step(leader.Together(boottime(), tuple(events)))  # type: ignore[arg-type]
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


async def _signal(cluster: Cluster, number: int, row: Job) -> None:
    run = cluster.shell.committed.live_run(row.job)
    if run is None or not run.released:
        raise Refused("it is not running")

    async def send(node: str, key: RunKey) -> None:
        stub = cluster.agents.stub(node)  # type: ignore[arg-type]
        if stub is None:
            raise Refused(f"node {node} has not said where its agent listens")
        message = node_pb2.SignalRequest(key=to_wire(key), number=number)
        await answer(stub.SendSignal(message, timeout=SIGNAL_S))

    await asyncio.gather(*(send(node, run.key) for node in run.members))
