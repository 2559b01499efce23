"""The client: a method for each request to the daemon, over one connection."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from dlsched.client.connection import Connection
from dlsched.client.daemon_address import find_daemon
from dlsched.client.errors import ConnectionLost, RequestRefused, Unavailable
from dlsched.core.errors import BadInput, DlschedError, plural, shorten
from dlsched.record import Record
from dlsched.rpc import messages

if TYPE_CHECKING:  # methods import what they need: most of a command's time is its start
    from dlsched.client.attaching.attachment import Attachment, Told
    from dlsched.client.attaching.forwarding import Forwarding
    from dlsched.client.daemon_address import DaemonAddress
    from dlsched.client.job_ids import JobName
    from dlsched.client.job_records import Job, Queue
    from dlsched.client.records import (
        Checkpoint,
        Detail,
        Metrics,
        Node,
        Shares,
        Sweep,
        Unsaved,
        Usage,
    )
    from dlsched.client.submission.request import Caller, Submission

REFUSED_S = 5.0  # a node may learn of a running job with this delay
WHAT_IF_S = 120.0  # the daemon answers earlier, or says why it does not
RECONNECT_S = 600.0  # how long a waiting call tries to reach a daemon that stopped
ACTIONS = {
    "cancel": messages.ACTION_CANCEL,
    "hold": messages.ACTION_HOLD,
    "release": messages.ACTION_RELEASE,
    "requeue": messages.ACTION_REQUEUE,
    "suspend": messages.ACTION_SUSPEND,
    "resume": messages.ACTION_RESUME,
    "signal": messages.ACTION_SIGNAL,
}
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,100}", re.ASCII)
# Repeating these actions has a further effect.
_ONCE = {"requeue", "signal"}
ACTED_AT_ONCE = 1000  # jobs that one call changes: it answers within a second or two
_NODE_ACTIONS = {
    "drain": messages.NODE_ACTION_DRAIN,
    "resume": messages.NODE_ACTION_RESUME,
    "down": messages.NODE_ACTION_DOWN_CONFIRMED,
}


class Acted(Record):
    """The result of an action: ids as they were named, failures as (subject, why), and remarks."""

    done: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]


class Client:
    """A client of one daemon; close it, or use it as a context manager."""

    def __init__(
        self,
        daemon: str | None = None,
        *,
        insecure_loopback: bool = False,
        wait: str | None = None,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Find the daemon's address; the first request connects.

        Args:
            daemon: HOST:PORT or unix:/PATH, or several, joined by commas, of a daemon and its
                standbys; None: the address that `dlsched` uses.
            insecure_loopback: for development only, see `find_daemon`.
            wait: how long each request waits for a daemon that is away, a duration such as `20s`;
                None: as `dlsched` does.
            on_wait: is called with a line when a request waits for longer than a second.
        """
        address = find_daemon(daemon, insecure_loopback=insecure_loopback, wait=wait)
        self._connection = Connection(address, on_wait)

    @classmethod
    def at(cls, address: DaemonAddress) -> Client:
        """A client of a daemon whose address is known already."""
        client = cls.__new__(cls)
        client._connection = Connection(address)
        return client

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
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
        request_id: str = "",
        **options: object,
    ) -> int:
        """Submit one job or array and return its id when the daemon has stored it.

        Args:
            argv: the command; with a script, the script's arguments.
            script: the script's text, from `#!` on.
            name: name of the job.
            request_id: as for `submit_all`.
            **options: options of `dlsched submit`, such as `gpus="a100:8"`, `time="2h"`.

        Raises:
            DlschedError: an option is malformed, the job is refused, or there is no daemon.
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
        reply = self.submit_all([compose(layer, command, here())], request_id=request_id)
        return int(reply.jobs[0].job)

    def submit_all(
        self,
        submissions: Sequence[Submission],
        *,
        test_only: bool = False,
        require_sla: bool = False,
        request_id: str = "",
    ) -> messages.SubmitReply:
        """Submit all jobs or none, in one transaction.

        The request has an id, so that repeating it after a lost answer cannot submit jobs twice.
        Variables that all jobs have in common are sent once.

        Args:
            submissions: the jobs.
            test_only: submit nothing, return when the jobs would start.
            require_sla: only if all are predicted to keep their deadlines, and let others keep
                theirs; else the reply has no jobs, and says why.
            request_id: letters, digits and `._:-`; the same id with the same jobs returns the jobs
                that it stands for; empty: a new one.

        Raises:
            DlschedError: refused; or the answer was lost, then the error names the request's id.
        """
        if request_id and not _REQUEST_ID.fullmatch(request_id):
            raise BadInput(
                f"request id: {shorten(request_id)!r} is not 1 to 100 letters, digits and ._:-"
            )
        request_id = request_id or os.urandom(16).hex()
        shared = _shared([submission.environment for submission in submissions])
        common = shared.items()
        request = messages.SubmitRequest(
            request_id=request_id, test_only=test_only, require_sla=require_sla
        )
        for variable, value in sorted(shared.items()):
            request.environment.add(name=variable, value=value)
        own: dict[
            int, list[tuple[str, str]]
        ] = {}  # variables of one job only, by the mapping's identity
        for submission in submissions:
            job = request.jobs.add()
            job.CopyFrom(submission.request)
            mapping = submission.environment
            if id(mapping) not in own:
                own[id(mapping)] = sorted(item for item in mapping.items() if item not in common)
            for variable, value in own[id(mapping)]:
                job.environment.add(name=variable, value=value)
        try:
            reply: messages.SubmitReply = self._connection.ask("Submit", request, repeatable=True)
        except (Unavailable, KeyboardInterrupt) as error:
            stopped = isinstance(error, KeyboardInterrupt)
            if test_only or not (stopped or self._connection.fate_unknown):
                raise
            raise ConnectionLost(
                f"{'stopped' if stopped else error}; whether it was submitted is not known: the "
                f"same command with --request-id {request_id} submits nothing twice"
            ) from None
        return reply

    # -- reading ----------------------------------------------------------------------------------

    def queue(
        self,
        chosen: messages.Filter | None = None,
        *,
        predict: bool = False,
        unfold: bool = False,
        brief: bool = False,
    ) -> Queue:
        """Return live jobs; the caller's own unless the filter says otherwise.

        `predict` adds predicted starts and ends; `unfold` gives each array element on its own;
        `brief` leaves `asked` empty, which makes long lists cheaper.
        """
        from dlsched.client.job_reading import queue_of, queue_page_of  # noqa: PLC0415

        request = messages.QueueRequest(
            filter=chosen, predict=predict, unfold=unfold, brief=brief, columns=True
        )
        return queue_of(self._connection.gather("Queue", request, queue_page_of))

    def show(self, chosen: messages.Filter, *, why_order: bool = False) -> list[Detail]:
        """Return all that is known of some jobs; `why_order` adds the policy's numbers."""
        found, total = self.show_page(chosen, why_order=why_order)
        while len(found) < total:
            more, total = self.show_page(chosen, why_order=why_order, skip=len(found))
            if not more:
                break
            found += more
        return found

    def show_page(
        self, chosen: messages.Filter, *, why_order: bool = False, skip: int = 0
    ) -> tuple[list[Detail], int]:
        """Return all that is known of at most 100 jobs after the first `skip`, and their number."""
        from dlsched.client.record_reading import detail_of  # noqa: PLC0415

        request = messages.ShowRequest(filter=chosen, why_order=why_order, skip=skip)
        reply = self._connection.ask("Show", request, repeatable=True)
        return [detail_of(each) for each in reply.jobs], max(reply.total, len(reply.jobs))

    def order(self) -> tuple[str, list[int], dict[str, list[float]]]:
        """Return the order of all waiting jobs.

        Returns:
            the policy, the ids of the jobs, the first first, and the policy's numbers of each by
            name; NaN: it has none.
        """
        request = messages.ShowRequest(filter=messages.Filter(), order_only=True)
        found = self._connection.ask("Show", request, repeatable=True).order
        return found.policy, list(found.jobs), {t.name: list(t.values) for t in found.terms}

    def scripts(self, chosen: messages.Filter) -> dict[int, bytes]:
        """Return the scripts of at most 100 jobs, as far as the caller may see them."""
        request = messages.ShowRequest(filter=chosen)
        reply = self._connection.ask("Show", request, repeatable=True)
        return {each.job.job: bytes(each.request.script) for each in reply.jobs}

    def history(
        self,
        chosen: messages.Filter | None = None,
        *,
        since: float | None = None,
        until: float | None = None,
        limit: int = 0,
        live_too: bool = False,
    ) -> Iterator[Job]:
        """Return jobs that have ended, page by page.

        Args:
            chosen: which jobs.
            since: only jobs that ended then or later, in seconds since the epoch.
            until: only jobs that ended before.
            limit: the last so many; 0: all.
            live_too: also jobs that have not ended.
        """
        from dlsched.client.job_reading import job_of  # noqa: PLC0415

        request = messages.HistoryRequest(
            filter=chosen, since=since, until=until, limit=limit, live_too=live_too
        )
        for page in self._connection.stream("History", request, first_again=True):
            yield from map(job_of, page.jobs)

    def nodes(self, names: Iterable[str] = ()) -> list[Node]:
        """Return nodes, all or by name."""
        from dlsched.client.record_reading import node_of  # noqa: PLC0415

        request = messages.NodesRequest(names=list(names))
        reply = self._connection.ask("Nodes", request, repeatable=True)
        return [node_of(each) for each in reply.nodes]

    def checkpoints(self, chosen: messages.Filter) -> list[Checkpoint]:
        """Return the checkpoints of jobs that are there, latest first."""
        return self.checkpoints_and_unsaved(chosen)[0]

    def checkpoints_and_unsaved(
        self, chosen: messages.Filter
    ) -> tuple[list[Checkpoint], list[Unsaved]]:
        """Return the same, and the jobs among them whose latest checkpoint has failed."""
        from dlsched.client.record_reading import checkpoint_of, unsaved_of  # noqa: PLC0415

        request = messages.CheckpointsRequest(filter=chosen)
        reply = self._connection.ask("Checkpoints", request, repeatable=True)
        return (
            [checkpoint_of(each) for each in reply.checkpoints],
            [unsaved_of(each) for each in reply.unsaved],
        )

    def usage(
        self, *, by: Literal["vc", "account", "user"] = "vc", since: float | None = None
    ) -> list[Usage]:
        """Return GPU time by virtual cluster, account or user."""
        from dlsched.client.record_reading import usage_of  # noqa: PLC0415

        request = messages.UsageRequest(by=by, by_user=by == "user", since=since)
        reply = self._connection.ask("Usage", request, repeatable=True)
        return [usage_of(each) for each in reply.usage]

    def shares(self) -> Shares:
        """Return the tree of fair shares."""
        from dlsched.client.record_reading import shares_of  # noqa: PLC0415

        request = messages.UsageRequest(shares=True)
        return shares_of(self._connection.ask("Usage", request, repeatable=True))

    def status(self) -> messages.StatusReply:
        """Return the state of daemon and cluster."""
        reply: messages.StatusReply = self._connection.ask(
            "Status", messages.StatusRequest(), repeatable=True
        )
        return reply

    # -- changing ---------------------------------------------------------------------------------

    def act(
        self,
        action: str,
        chosen: messages.Filter,
        *,
        signal: int = 0,
        signal_to: str = "",
        step: int | None = None,
        reason: str = "",
        only_count: bool = False,
        fresh: bool = False,
        on_part: Callable[[int], None] = lambda _: None,
    ) -> Acted:
        """Cancel, hold, release, requeue, suspend, resume or signal jobs, a thousand in a call.

        Args:
            action: one of these words.
            chosen: which jobs.
            signal: its number, for `signal`.
            signal_to: what gets it: `script` alone, `steps`; empty: all processes.
            step: only its tasks get the signal.
            reason: stored with the jobs.
            only_count: change nothing, only return the jobs that would be changed.
            fresh: an ended job that is requeued begins without a checkpoint.
            on_part: is called with the number of jobs that are done, while there are more.
        """
        given = here().exported("ALL", {}) if action == "requeue" else {}
        request = messages.ActRequest(
            fresh=fresh,
            environment=[
                messages.EnvironmentVariable(name=name, value=value)
                for name, value in given.items()
            ],
            action=ACTIONS[action],
            filter=chosen,
            signal=signal,
            signal_to=signal_to,
            step=step,
            reason=reason,
            only_count=only_count,
            limit=0 if only_count else ACTED_AT_ONCE,
        )
        repeatable = only_count or action not in _ONCE
        whole = Acted(done=(), failed=(), lines=())
        while True:
            try:
                reply = self._connection.ask("Act", request, repeatable=repeatable)
            except DlschedError as error:
                if whole.done:
                    error.args = (f"{error}; {plural(len(whole.done), 'job')} were done before",)
                raise
            part = _acted(reply)
            whole = Acted(
                done=whole.done + part.done,
                failed=whole.failed + part.failed,
                lines=whole.lines + part.lines,
            )
            if not reply.next:
                return whole
            on_part(len(whole.done))
            request.after = reply.next

    def update(
        self,
        chosen: messages.Filter,
        fields: Mapping[str, str],
        *,
        dependencies: Iterable[messages.Dependency] | None = None,
    ) -> Acted:
        """Change fields of jobs, and their dependencies if `dependencies` is not None."""
        request = messages.UpdateRequest(
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
        """Drain nodes, resume them, or confirm that they are down.

        Args:
            action: drain, resume or down; down: the operator confirms that nothing runs there.
            names: the nodes.
            reason: stored with the nodes.
            now: drain: preempt the jobs that run there.
            by_at: drain: preempt jobs that still run at this time, in seconds since the epoch.
        """
        request = messages.SetNodesRequest(
            action=_NODE_ACTIONS[action], names=list(names), reason=reason, now=now, by_at=by_at
        )
        return _acted(self._connection.ask("SetNodes", request, repeatable=True))

    def set_policy(
        self, parts: Mapping[str, str], options: Iterable[str] = ()
    ) -> messages.SetPolicyReply:
        """Switch parts of the policy while the daemon runs."""
        request = messages.SetPolicyRequest(parts=dict(parts), options=list(options))
        reply: messages.SetPolicyReply = self._connection.ask("SetPolicy", request, repeatable=True)
        return reply

    def what_if(self, request: messages.WhatIfRequest) -> messages.WhatIfReply:
        """Return what would become of a job, or of all, in some alternatives; nothing changes."""
        reply: messages.WhatIfReply = self._connection.ask(
            "WhatIf", request, repeatable=True, within_s=WHAT_IF_S
        )
        return reply

    def shadow(self) -> messages.ShadowReply:
        """Return what has come of the policy in the shadow."""
        request = messages.ShadowRequest()
        reply: messages.ShadowReply = self._connection.ask("Shadow", request, repeatable=True)
        return reply

    def set_shadow(
        self, parts: Mapping[str, str] | None, options: Iterable[str] = ()
    ) -> messages.ShadowReply:
        """Have another policy decide without acting; None: none."""
        request = messages.SetShadowRequest(off=parts is None, parts=parts, options=options)
        reply: messages.ShadowReply = self._connection.ask("SetShadow", request, repeatable=True)
        return reply

    def calibration(self, since: float | None = None) -> messages.CalibrationReply:
        """Return how exact first predictions were: by basis, by policy, and by class of jobs."""
        request = messages.CalibrationRequest(since=since)
        reply: messages.CalibrationReply = self._connection.ask(
            "Calibration", request, repeatable=True
        )
        return reply

    def orphans(self, end: Iterable[str] = ()) -> messages.OrphansReply:
        """Return the runs that nodes hold and the database does not know.

        Args:
            end: run ids of those to end; their processes are killed.
        """
        request = messages.OrphansRequest(end=end)
        reply: messages.OrphansReply = self._connection.ask("Orphans", request, repeatable=True)
        return reply

    def audit(self, request: messages.AuditRequest) -> Iterator[messages.AuditLine]:
        """Return events of the cluster, the newest first."""
        for page in self._connection.stream("Audit", request, first_again=True):
            yield from page.lines

    def confirm_over(self, jobs: Iterable[str]) -> Acted:
        """Confirm that no process of these jobs' runs is left where their nodes cannot tell."""
        request = messages.ConfirmOverRequest(jobs=jobs)
        return _acted(self._connection.ask("ConfirmOver", request, repeatable=True))

    def speeds(
        self, model: str = "", batch_size: int | None = None, gpu_type: str = ""
    ) -> list[messages.SpeedView]:
        """Return the speeds of kinds of trainings; an argument that is not given means all."""
        request = messages.SpeedsRequest(model=model, batch_size=batch_size, gpu_type=gpu_type)
        return list(self._connection.ask("Speeds", request, repeatable=True).speeds)

    def set_speeds(self, speeds: Iterable[messages.SpeedView]) -> int:
        """Store speeds that were measured elsewhere; return their number."""
        request = messages.SetSpeedsRequest(speeds=speeds)
        return int(self._connection.ask("SetSpeeds", request, repeatable=True).count)

    def forget_speeds(
        self, model: str = "", batch_size: int | None = None, gpu_type: str = ""
    ) -> int:
        """Forget speeds; return their number."""
        request = messages.SpeedsRequest(model=model, batch_size=batch_size, gpu_type=gpu_type)
        return int(self._connection.ask("ForgetSpeeds", request, repeatable=True).count)

    def tenants(self, kind: str = "") -> list[messages.Tenant]:
        """Return users, accounts, VCs, partitions, classes and quotas, all or of one kind."""
        request = messages.TenantsRequest(kind=kind)
        return list(self._connection.ask("Tenants", request, repeatable=True).tenants)

    def set_tenant(
        self,
        tenant: messages.Tenant,
        fields: Iterable[str],
        *,
        create: bool,
        ignore_jobs: bool = False,
    ) -> list[str]:
        """Add a tenant, or change some fields of one; return what changed, old -> new."""
        request = messages.SetTenantRequest(
            tenant=tenant, fields=list(fields), create=create, ignore_jobs=ignore_jobs
        )
        return list(self._connection.ask("SetTenant", request, repeatable=not create).lines)

    def remove_tenant(self, kind: str, name: str) -> list[str]:
        """Remove a tenant; return what changed."""
        request = messages.RemoveTenantRequest(kind=kind, name=name)
        return list(self._connection.ask("RemoveTenant", request, repeatable=False).lines)

    def reload(self) -> list[str]:
        """Let the daemon read its configuration again; return what changed."""
        reply = self._connection.ask("Reload", messages.ReloadRequest(), repeatable=True)
        return list(reply.changes)

    def snapshot(self) -> Iterator[bytes]:
        """Return the state that the policy sees, in pieces of one file."""
        for chunk in self._connection.stream(
            "Snapshot", messages.SnapshotRequest(), first_again=True
        ):
            yield chunk.data

    def create_token(
        self, user: str, lifetime_s: float, comment: str = ""
    ) -> messages.CreateTokenReply:
        """Return a token for use from other machines; an empty user is the caller."""
        request = messages.CreateTokenRequest(user=user, lifetime_s=lifetime_s, comment=comment)
        reply: messages.CreateTokenReply = self._connection.ask(
            "CreateToken", request, repeatable=False
        )
        return reply

    def list_tokens(self, user: str = "", *, all_users: bool = False) -> list[messages.TokenView]:
        """Return the stored tokens without their secrets, oldest first."""
        request = messages.ListTokensRequest(user=user, all_users=all_users)
        return list(self._connection.ask("ListTokens", request, repeatable=True).tokens)

    def revoke_token(self, token_id: str) -> messages.TokenView:
        """End a token now."""
        request = messages.RevokeTokenRequest(token_id=token_id)
        reply = self._connection.ask("RevokeToken", request, repeatable=True)
        view: messages.TokenView = reply.view
        return view

    # -- waiting ----------------------------------------------------------------------------------

    def wait(
        self,
        chosen: messages.Filter,
        *,
        on_lost: Callable[[str], None] = lambda _: None,
    ) -> Iterator[Job]:
        """Return jobs as they end, each once; a daemon that stops meanwhile is waited for.

        `on_lost` is called with the error once each time the connection is lost.
        """
        from dlsched.client.job_reading import job_of  # noqa: PLC0415

        told: set[int] = set()
        request = messages.WaitRequest(filter=chosen)
        for reply in self._stream_again("Wait", lambda: request, on_lost):
            job = job_of(reply.job)
            if job.job_id not in told:
                told.add(job.job_id)
                yield job

    def wait_for(self, job: int) -> Job:
        """Wait until a job has ended and return it."""
        from dlsched.client.job_ids import JobName  # noqa: PLC0415

        for ended in self.wait(filter_of([JobName(job=job)])):
            return ended
        raise ConnectionLost(f"job {job}: the daemon did not report its end")

    def metrics(self, job: int) -> Metrics:
        """Return the course of a job's loss, speed and own metrics."""
        from dlsched.client.record_reading import metrics_of  # noqa: PLC0415

        request = messages.MetricsRequest(job=job)
        return metrics_of(self._connection.ask("Metrics", request, repeatable=True))

    def sweep(self, job: int) -> Sweep:
        """Return the jobs of a sweep, by task; `job` is the array or any of its jobs."""
        from dlsched.client.record_reading import sweep_of  # noqa: PLC0415

        request = messages.SweepRequest(job=job)
        return sweep_of(self._connection.ask("Sweep", request, repeatable=True))

    def short_tasks(
        self, job: int, *, after: int = 0, only_failed: bool = False
    ) -> messages.TasksReply:
        """Return how a job's short tasks stand, and a page of them.

        Args:
            job: the array or any of its jobs.
            after: the page begins behind the task of this number.
            only_failed: only tasks that have failed.
        """
        request = messages.TasksRequest(job=job, after=after, only_failed=only_failed)
        reply: messages.TasksReply = self._connection.ask("Tasks", request, repeatable=True)
        return reply

    def logs(
        self,
        job: int,
        *,
        run: int | None = None,
        rank: int | None = None,
        node: str = "",
        error: bool = False,
        tail_lines: int = -1,
        follow: bool = False,
        on_lost: Callable[[str], None] = lambda _: None,
    ) -> Iterator[bytes]:
        """Return a job's output; if it is followed from its start, a lost daemon is waited for.

        Args:
            job: its id.
            run: which run; None: the last.
            rank: only what this rank has written; None: all that is in the file.
            node: on which node; empty: that of the rank, else the first.
            error: the file of standard error.
            tail_lines: only the last lines; -1: all.
            follow: continue while the job writes.
            on_lost: is called with the error once each time the connection is lost.
        """
        request = messages.LogsRequest(
            job=job,
            run=run,
            rank=rank,
            node=node,
            error=error,
            tail_lines=tail_lines,
            follow=follow,
        )
        if not follow or tail_lines >= 0:
            for chunk in self._connection.stream("Logs", request):
                yield chunk.data
            return
        seen = passed = 0

        def again() -> messages.LogsRequest:
            nonlocal passed
            passed = 0
            return request

        for chunk in self._stream_again("Logs", again, on_lost):
            fresh = chunk.data[max(0, seen - passed) :]
            passed += len(chunk.data)
            seen = max(seen, passed)
            if fresh:
                yield fresh

    def attachment(
        self,
        job: int,
        *,
        argv: Sequence[str] = (),
        node: str = "",
        fresh: bool = False,
        wait: bool = False,
        told: Told,
        passes_interrupt: bool = True,
    ) -> Attachment:
        """Prepare an attachment of this program's terminal, or streams, to a process in a job.

        Args:
            job: its id.
            argv: a command to start; empty: a shell.
            node: of the job; empty: its first.
            fresh: a new shell, even if there is one to come back to.
            wait: for the start of the job.
            told: is told what happens.
            passes_interrupt: without a terminal, SIGINT goes to the process; else to the caller.
        """
        from dlsched.client.attaching.attachment import Attachment  # noqa: PLC0415

        return Attachment(
            self._connection,
            job,
            argv=argv,
            node=node,
            fresh=fresh,
            wait=wait,
            told=told,
            passes_interrupt=passes_interrupt,
        )

    def forwarding(self, job: int, port: int, *, node: str = "") -> Forwarding:
        """Prepare connections to a port at which a process of a job listens.

        Args:
            job: its id.
            port: on the node.
            node: of the job; empty: its first.
        """
        from dlsched.client.attaching.forwarding import Forwarding  # noqa: PLC0415

        return Forwarding(self._connection, job, port, node=node)

    def follow(
        self,
        job: int,
        *,
        on_lost: Callable[[str], None] = lambda _: None,
        **wanted: Any,
    ) -> Iterator[bytes]:
        """Wait for a job's start and return its output as it is written; the rest as for `logs`.

        Raises:
            DlschedError: as for `logs`; also if the job ended and has no output.
        """
        from dlsched.client.job_ids import JobName  # noqa: PLC0415

        pause, refused_at, has_ended = 0.1, 0.0, False
        while True:
            begun = False
            try:
                for chunk in self.logs(job, follow=True, on_lost=on_lost, **wanted):
                    begun = True
                    yield chunk
            except RequestRefused:
                # the job waits, or its node does not know it yet
                found = self.show(filter_of([JobName(job=job)]))
                if begun or not found or has_ended:
                    raise
                has_ended = found[0].job.ended_at is not None
                if has_ended:  # meanwhile: now its output is there, if it has any
                    continue
                if not found[0].job.is_pending and found[0].job.state != "STARTING":
                    refused_at = refused_at or time.monotonic()
                    if time.monotonic() - refused_at > REFUSED_S:
                        raise
            else:
                return
            time.sleep(pause)
            pause = min(2.0, pause * 1.3)

    def _stream_again(
        self, method: str, request: Callable[[], Any], on_lost: Callable[[str], None]
    ) -> Iterator[Any]:
        """Open a stream again each time the connection is lost, if the daemon had been reached."""
        lost_at = 0.0
        while True:
            try:
                patient = not self._connection.answered
                for reply in self._connection.stream(method, request(), patient=patient):
                    lost_at = 0.0
                    yield reply
            except Unavailable as error:
                reached = self._connection.answered or isinstance(error, ConnectionLost)
                now = time.monotonic()
                if reached and not lost_at:
                    lost_at = now
                    on_lost(str(error))
                if not reached or now - lost_at > RECONNECT_S:
                    raise
                self._connection.close()  # connect anew: the name may have a new address
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
) -> messages.Filter:
    """Return a filter; if it names jobs or users, it covers the jobs of all users.

    Args:
        names: job ids.
        users: owners of the jobs.
        partitions: partitions of the jobs.
        vcs: virtual clusters of the jobs.
        states: states, as words.
        nodes: nodes on which the jobs run.
        called: names of the jobs.
        all_users: jobs of all users.
    """
    from dlsched.client.job_ids import job_names  # noqa: PLC0415

    chosen = messages.Filter(
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
    """Return this process's folder, umask, host, variables and time."""
    from datetime import datetime  # noqa: PLC0415

    from dlsched.client.submission.request import Caller  # noqa: PLC0415

    try:
        directory = os.getcwd()
    except OSError as error:
        raise BadInput(f"the current folder: {error.strerror}; give --chdir") from None
    umask = os.umask(0o077)  # the only way to read it
    os.umask(umask)
    return Caller(
        directory=directory,
        umask=umask,
        host=socket.gethostname(),
        variables=dict(os.environ),
        now=datetime.now().astimezone(),
    )


def _shared(environments: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the variables that every job has with the same value."""
    if not environments:
        return {}
    first = environments[0]
    others = [each for each in environments[1:] if each is not first]
    return {
        name: value
        for name, value in first.items()
        if all(each.get(name) == value for each in others)
    }


def _acted(reply: messages.ActReply) -> Acted:
    return Acted(
        done=tuple(reply.done),
        failed=tuple((each.subject, each.why) for each in reply.failed),
        lines=tuple(reply.lines),
    )
