"""The client: every request of the daily verbs, typed, over one connection."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dlsched.client.connection import Connection
from dlsched.client.errors import Lost, Refused, Unavailable
from dlsched.client.where import find_daemon
from dlsched.core.errors import BadInput
from dlsched.rpc.v1 import control_pb2

if TYPE_CHECKING:  # each verb imports what it needs: a start is most of what a call costs
    from dlsched.client.ids import JobName
    from dlsched.client.submission.request import Caller, Submission
    from dlsched.client.views import Detail, Job, Node, Queue, Usage

__all__ = ["Acted", "Client", "filter_of", "here"]

REFUSED_S = 5.0  # a running job's node may not know of it for so long
PATIENCE_S = 600.0  # for a daemon that went away while something was waited for
ACTIONS = {
    "cancel": control_pb2.ACTION_CANCEL,
    "hold": control_pb2.ACTION_HOLD,
    "release": control_pb2.ACTION_RELEASE,
    "requeue": control_pb2.ACTION_REQUEUE,
    "suspend": control_pb2.ACTION_SUSPEND,
    "resume": control_pb2.ACTION_RESUME,
    "signal": control_pb2.ACTION_SIGNAL,
}
# Doing these twice is more than doing them once.
_ONCE = {"requeue", "signal"}
_NODE_ACTIONS = {
    "drain": control_pb2.NODE_ACTION_DRAIN,
    "resume": control_pb2.NODE_ACTION_RESUME,
    "down": control_pb2.NODE_ACTION_DOWN_CONFIRMED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Acted:
    """What came of an action: ids as they were named, failures as (subject, why), and remarks."""

    done: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]


class Client:
    """A connection to the daemon; close it, or use it as a context manager."""

    def __init__(self, daemon: str | None = None, *, insecure_loopback: bool = False) -> None:
        """Find the daemon; nothing is dialled before the first request.

        Args:
            daemon: HOST:PORT or unix:/PATH; None: as `dlsched` finds it.
            insecure_loopback: development only, see `find_daemon`.
        """
        self._connection = Connection(find_daemon(daemon, insecure_loopback=insecure_loopback))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    # -- submitting -------------------------------------------------------------------------------

    def submit(
        self,
        argv: Sequence[str] = (),
        *,
        script: bytes = b"",
        name: str = "",
        **options: object,
    ) -> int:
        """Submit one job or array and return its id, once it is durable.

        Args:
            argv: the command; with a script, the script's arguments.
            script: its text, from `#!` on.
            name: of the job.
            **options: those of `dlsched submit`, such as `gpus="a100:8"`, `time="2h"`.

        Raises:
            DlschedError: malformed, refused, or no daemon.
        """
        from dlsched.client.submission.options import BY_NAME, put  # noqa: PLC0415
        from dlsched.client.submission.request import Command, compose  # noqa: PLC0415

        layer: dict[str, str] = {}
        for key, value in options.items():
            if key not in BY_NAME:
                raise BadInput(f"{key!r} is not an option of submit")
            put(layer, BY_NAME[key], key, str(value))
        first = os.path.basename(argv[0]) if argv else "script"
        command = Command(argv=tuple(argv), script=script, name=name or first)
        reply = self.submit_all([compose(layer, command, here())])
        return int(reply.jobs[0].job)

    def submit_all(
        self, submissions: Sequence[Submission], *, test_only: bool = False
    ) -> control_pb2.SubmitReply:
        """Submit all or none, in one transaction.

        The request carries an id of its own, so that asking again after a lost answer cannot
        submit twice. Variables that all jobs share are sent once.
        """
        shared = _shared([submission.environment for submission in submissions])
        common = shared.items()
        request = control_pb2.SubmitRequest(request_id=str(uuid.uuid4()), test_only=test_only)
        for variable, value in sorted(shared.items()):
            request.environment.add(name=variable, value=value)
        own: dict[int, list[tuple[str, str]]] = {}  # what is not shared, by the mapping's identity
        for submission in submissions:
            job = request.jobs.add()
            job.CopyFrom(submission.request)
            mapping = submission.environment
            if id(mapping) not in own:
                own[id(mapping)] = sorted(item for item in mapping.items() if item not in common)
            for variable, value in own[id(mapping)]:
                job.environment.add(name=variable, value=value)
        reply: control_pb2.SubmitReply = self._connection.ask("Submit", request, repeatable=True)
        return reply

    # -- looking ----------------------------------------------------------------------------------

    def queue(
        self,
        chosen: control_pb2.Filter | None = None,
        *,
        predict: bool = False,
        unfold: bool = False,
    ) -> Queue:
        """Live jobs; one's own when the filter does not say otherwise."""
        from dlsched.client.reading import queue_of  # noqa: PLC0415

        request = control_pb2.QueueRequest(filter=chosen, predict=predict, unfold=unfold)
        return queue_of(self._connection.gather("Queue", request))

    def show(self, chosen: control_pb2.Filter, *, why_order: bool = False) -> list[Detail]:
        """All about some jobs."""
        from dlsched.client.reading import detail_of  # noqa: PLC0415

        request = control_pb2.ShowRequest(filter=chosen, why_order=why_order)
        reply = self._connection.ask("Show", request, repeatable=True)
        return [detail_of(each) for each in reply.jobs]

    def history(
        self,
        chosen: control_pb2.Filter | None = None,
        *,
        since: float | None = None,
        until: float | None = None,
        limit: int = 0,
        live_too: bool = False,
    ) -> Iterator[Job]:
        """Jobs that have ended, as pages come in."""
        from dlsched.client.reading import job_of  # noqa: PLC0415

        request = control_pb2.HistoryRequest(
            filter=chosen, since=since, until=until, limit=limit, live_too=live_too
        )
        for page in self._connection.stream("History", request):
            yield from map(job_of, page.jobs)

    def nodes(self, names: Iterable[str] = ()) -> list[Node]:
        """Nodes, all or by name."""
        from dlsched.client.reading import node_of  # noqa: PLC0415

        request = control_pb2.NodesRequest(names=list(names))
        reply = self._connection.ask("Nodes", request, repeatable=True)
        return [node_of(each) for each in reply.nodes]

    def usage(self, *, by_user: bool = False, since: float | None = None) -> list[Usage]:
        """GPU time by account, or by user."""
        from dlsched.client.reading import usage_of  # noqa: PLC0415

        request = control_pb2.UsageRequest(by_user=by_user, since=since)
        reply = self._connection.ask("Usage", request, repeatable=True)
        return [usage_of(each) for each in reply.usage]

    def status(self) -> control_pb2.StatusReply:
        """How the cluster is."""
        reply: control_pb2.StatusReply = self._connection.ask(
            "Status", control_pb2.StatusRequest(), repeatable=True
        )
        return reply

    # -- doing ------------------------------------------------------------------------------------

    def act(
        self,
        action: str,
        chosen: control_pb2.Filter,
        *,
        signal: int = 0,
        reason: str = "",
        only_count: bool = False,
    ) -> Acted:
        """Cancel, hold, release, requeue, suspend, resume or signal all that can be."""
        request = control_pb2.ActRequest(
            action=ACTIONS[action],
            filter=chosen,
            signal=signal,
            reason=reason,
            only_count=only_count,
        )
        repeatable = only_count or action not in _ONCE
        return _acted(self._connection.ask("Act", request, repeatable=repeatable))

    def update(
        self,
        chosen: control_pb2.Filter,
        fields: Mapping[str, str],
        *,
        dependencies: Iterable[control_pb2.Dependency] | None = None,
    ) -> Acted:
        """Change fields of jobs, and whom they wait for when `dependencies` says."""
        request = control_pb2.UpdateRequest(
            filter=chosen,
            fields=dict(fields),
            set_dependencies=dependencies is not None,
            dependencies=dependencies or (),
        )
        return _acted(self._connection.ask("Update", request, repeatable=True))

    def set_nodes(
        self,
        action: str,
        names: Iterable[str],
        *,
        reason: str = "",
        now: bool = False,
        by_at: float | None = None,
    ) -> Acted:
        """Drain, resume or (an operator's word) down."""
        request = control_pb2.SetNodesRequest(
            action=_NODE_ACTIONS[action], names=list(names), reason=reason, now=now, by_at=by_at
        )
        return _acted(self._connection.ask("SetNodes", request, repeatable=True))

    def set_policy(
        self, parts: Mapping[str, str], options: Iterable[str] = ()
    ) -> control_pb2.SetPolicyReply:
        """Switch parts of the policy while running."""
        request = control_pb2.SetPolicyRequest(parts=dict(parts), options=list(options))
        reply: control_pb2.SetPolicyReply = self._connection.ask(
            "SetPolicy", request, repeatable=True
        )
        return reply

    def calibration(self, since: float | None = None) -> list[control_pb2.CalibrationView]:
        """How well starts were foretold, by what the predictions rested on."""
        request = control_pb2.CalibrationRequest(since=since)
        return list(self._connection.ask("Calibration", request, repeatable=True).by_basis)

    def speeds(
        self, model: str = "", batch_size: int | None = None, gpu_type: str = ""
    ) -> list[control_pb2.SpeedView]:
        """How fast kinds of trainings run; what is not said means all."""
        request = control_pb2.SpeedsRequest(model=model, batch_size=batch_size, gpu_type=gpu_type)
        return list(self._connection.ask("Speeds", request, repeatable=True).speeds)

    def set_speeds(self, speeds: Iterable[control_pb2.SpeedView]) -> int:
        """Take over speeds that were measured elsewhere; how many."""
        request = control_pb2.SetSpeedsRequest(speeds=speeds)
        return int(self._connection.ask("SetSpeeds", request, repeatable=True).count)

    def forget_speeds(
        self, model: str = "", batch_size: int | None = None, gpu_type: str = ""
    ) -> int:
        """Forget speeds; how many."""
        request = control_pb2.SpeedsRequest(model=model, batch_size=batch_size, gpu_type=gpu_type)
        return int(self._connection.ask("ForgetSpeeds", request, repeatable=True).count)

    def tenants(self, kind: str = "") -> list[control_pb2.Tenant]:
        """Users, accounts, virtual clusters, partitions and quotas, all or of a kind."""
        request = control_pb2.TenantsRequest(kind=kind)
        return list(self._connection.ask("Tenants", request, repeatable=True).tenants)

    def set_tenant(
        self, tenant: control_pb2.Tenant, fields: Iterable[str], *, create: bool
    ) -> list[str]:
        """Add a tenant, or change some fields of one; what changed, old -> new."""
        request = control_pb2.SetTenantRequest(tenant=tenant, fields=list(fields), create=create)
        return list(self._connection.ask("SetTenant", request, repeatable=not create).lines)

    def remove_tenant(self, kind: str, name: str) -> list[str]:
        """Take a tenant away."""
        request = control_pb2.RemoveTenantRequest(kind=kind, name=name)
        return list(self._connection.ask("RemoveTenant", request, repeatable=False).lines)

    def reload(self) -> list[str]:
        """Have the daemon read its configuration again; what changed."""
        reply = self._connection.ask("Reload", control_pb2.ReloadRequest(), repeatable=True)
        return list(reply.changes)

    def snapshot(self) -> Iterator[bytes]:
        """The scheduler's state, for debugging elsewhere."""
        for chunk in self._connection.stream("Snapshot", control_pb2.SnapshotRequest()):
            yield chunk.data

    def create_token(
        self, user: str, lifetime_s: float, comment: str = ""
    ) -> control_pb2.CreateTokenReply:
        """A token for use from a distance; an empty user is the caller."""
        request = control_pb2.CreateTokenRequest(user=user, lifetime_s=lifetime_s, comment=comment)
        reply: control_pb2.CreateTokenReply = self._connection.ask(
            "CreateToken", request, repeatable=False
        )
        return reply

    def list_tokens(
        self, user: str = "", *, all_users: bool = False
    ) -> list[control_pb2.TokenView]:
        """What is known of tokens, oldest first."""
        request = control_pb2.ListTokensRequest(user=user, all_users=all_users)
        return list(self._connection.ask("ListTokens", request, repeatable=True).tokens)

    def revoke_token(self, token_id: str) -> control_pb2.TokenView:
        """End a token now."""
        request = control_pb2.RevokeTokenRequest(token_id=token_id)
        reply = self._connection.ask("RevokeToken", request, repeatable=True)
        view: control_pb2.TokenView = reply.view
        return view

    # -- waiting ----------------------------------------------------------------------------------

    def wait(
        self,
        chosen: control_pb2.Filter,
        *,
        on_lost: Callable[[str], None] = lambda _: None,
    ) -> Iterator[Job]:
        """Jobs as they end, each once; a daemon that goes away meanwhile is waited for.

        Args:
            chosen: which.
            on_lost: is told, once each time, that the daemon went away.
        """
        from dlsched.client.reading import job_of  # noqa: PLC0415

        told: set[int] = set()
        request = control_pb2.WaitRequest(filter=chosen)
        for reply in self._patiently("Wait", lambda: request, on_lost):
            job = job_of(reply.job)
            if job.job_id not in told:
                told.add(job.job_id)
                yield job

    def wait_for(self, job: int) -> Job:
        """One job's end."""
        from dlsched.client.ids import JobName  # noqa: PLC0415

        for ended in self.wait(filter_of([JobName(job=job)])):
            return ended
        raise Lost(f"job {job}: the daemon did not tell its end")

    def logs(
        self,
        job: int,
        *,
        run: int | None = None,
        rank: int = 0,
        error: bool = False,
        tail_lines: int = -1,
        follow: bool = False,
        on_lost: Callable[[str], None] = lambda _: None,
    ) -> Iterator[bytes]:
        """What a job wrote; when followed from the start, a daemon that goes away is waited for."""
        request = control_pb2.LogsRequest(
            job=job, run=run, rank=rank, error=error, tail_lines=tail_lines, follow=follow
        )
        if not follow or tail_lines >= 0:
            for chunk in self._connection.stream("Logs", request):
                yield chunk.data
            return
        seen = passed = 0

        def again() -> control_pb2.LogsRequest:
            nonlocal passed
            passed = 0
            return request

        for chunk in self._patiently("Logs", again, on_lost):
            fresh = chunk.data[max(0, seen - passed) :]
            passed += len(chunk.data)
            seen = max(seen, passed)
            if fresh:
                yield fresh

    def follow(
        self,
        job: int,
        *,
        on_lost: Callable[[str], None] = lambda _: None,
        **wanted: Any,
    ) -> Iterator[bytes]:
        """What a job writes, from when it starts; `wanted` is as for `logs`.

        Raises:
            DlschedError: also when it ended without having written anything that is there.
        """
        from dlsched.client.ids import JobName  # noqa: PLC0415

        pause, refused_at = 0.1, 0.0
        while True:
            begun = False
            try:
                for chunk in self.logs(job, follow=True, on_lost=on_lost, **wanted):
                    begun = True
                    yield chunk
            except Refused:
                # it waits, or its node does not know it yet
                found = self.show(filter_of([JobName(job=job)]))
                if begun or not found or found[0].job.ended_at is not None:
                    raise
                if not found[0].job.is_pending and found[0].job.state != "STARTING":
                    refused_at = refused_at or time.monotonic()
                    if time.monotonic() - refused_at > REFUSED_S:
                        raise
            else:
                return
            time.sleep(pause)
            pause = min(2.0, pause * 1.3)

    def _patiently(
        self, method: str, request: Callable[[], Any], on_lost: Callable[[str], None]
    ) -> Iterator[Any]:
        """A stream that is opened again after the daemon went away, once it had been reached."""
        lost_at = 0.0
        while True:
            try:
                for reply in self._connection.stream(method, request()):
                    lost_at = 0.0
                    yield reply
            except Unavailable as error:
                reached = self._connection.answered or isinstance(error, Lost)
                now = time.monotonic()
                if reached and not lost_at:
                    lost_at = now
                    on_lost(str(error))
                if not reached or now - lost_at > PATIENCE_S:
                    raise
                self._connection.close()  # dial anew: the name may have moved
                time.sleep(0.2)
            else:
                return


def filter_of(
    names: Iterable[JobName | str] = (),
    *,
    users: Iterable[str] = (),
    partitions: Iterable[str] = (),
    vcs: Iterable[str] = (),
    states: Iterable[str] = (),
    nodes: Iterable[str] = (),
    called: Iterable[str] = (),
    all_users: bool = False,
) -> control_pb2.Filter:
    """A filter; whoever names jobs or users means whosever jobs they are."""
    from dlsched.client.ids import job_names  # noqa: PLC0415

    chosen = control_pb2.Filter(
        users=list(users),
        partitions=list(partitions),
        vcs=list(vcs),
        states=list(states),
        nodes=list(nodes),
        names=list(called),
    )
    for name in names:
        for each in job_names([name]) if isinstance(name, str) else [name]:
            if each.tasks:
                chosen.elements.add(array_job=each.job, tasks=each.tasks)
            else:
                chosen.jobs.append(each.job)
    chosen.all_users = bool(all_users or chosen.users or chosen.jobs or chosen.elements)
    return chosen


def here() -> Caller:
    """This process's place, time and variables."""
    from dlsched.client.submission.request import Caller  # noqa: PLC0415

    try:
        directory = str(Path.cwd())
    except OSError as error:
        raise BadInput(f"the present folder: {error.strerror}; say --chdir") from None
    return Caller(
        directory=directory,
        host=socket.gethostname(),
        variables=dict(os.environ),
        now=datetime.now().astimezone(),
    )


def _shared(environments: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Variables that every job has with the same value."""
    if not environments:
        return {}
    first = environments[0]
    others = [each for each in environments[1:] if each is not first]
    return {
        name: value
        for name, value in first.items()
        if all(each.get(name) == value for each in others)
    }


def _acted(reply: control_pb2.ActReply) -> Acted:
    return Acted(
        done=tuple(reply.done),
        failed=tuple((each.subject, each.why) for each in reply.failed),
        lines=tuple(reply.lines),
    )
