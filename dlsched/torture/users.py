"""The users of a torture test, and their submissions.

On a cluster of its own the test claims to be some accounts of this machine, as the development mode
allows. On any other cluster it is the user that has started it.
"""

from __future__ import annotations

import os
import pwd
import threading
import uuid
from dataclasses import dataclass
from datetime import datetime

from dlsched.client.daemon_client import Client
from dlsched.client.submission.request import Caller, Command, compose
from dlsched.core.errors import DlschedError, Unavailable
from dlsched.rpc.channels import ClientTrust, open_blocking_channel
from dlsched.rpc.messages import as_protobuf
from dlsched.rpc.v1 import control_pb2, control_pb2_grpc

_LAST_SYSTEM_ACCOUNT, _UNMAPPED = 999, 65534
ANSWER_S, AGAIN_S = 5.0, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """An account of this machine."""

    name: str
    uid: int


def users_of_this_machine(count: int) -> list[User]:
    """Some accounts as which root may run jobs; without root the own one alone."""
    own = os.geteuid()
    if own != 0:
        return [User(name=pwd.getpwuid(own).pw_name, uid=own)]
    found = [
        User(name=each.pw_name, uid=each.pw_uid)
        for each in sorted(pwd.getpwall(), key=lambda each: each.pw_uid)
        if each.pw_uid not in (0, _UNMAPPED)
    ]
    return found[:count] or [User(name="root", uid=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A job that is to be submitted."""

    script: str
    output: str
    folder: str
    gpus: int


class LocalSubmissions:
    """Submits to a daemon on a port of loopback that believes in names."""

    def __init__(self, port: int, over: threading.Event) -> None:
        """Submit until `over` is set."""
        self._target, self._over = f"127.0.0.1:{port}", over

    def submit(self, user: User, wanted: Wanted) -> int | None:
        """Submit under one request id until a daemon has answered; None when none has in time.

        Raises:
            DlschedError: the daemon refuses the job.
        """
        variables, now = {"HOME": wanted.folder}, datetime.now().astimezone()
        caller = Caller(directory=wanted.folder, host="torture", variables=variables, now=now)
        options = {"output": wanted.output, "gpus": str(wanted.gpus), "chdir": wanted.folder}
        command = Command(script=wanted.script.encode(), name="torture")
        request = control_pb2.SubmitRequest(
            request_id=str(uuid.uuid4()),
            jobs=[as_protobuf(compose(options, command, caller).request)],
        )
        trust = ClientTrust.claimed_user(user.name, user.uid)
        while not self._over.is_set():
            try:
                return self._ask(request, trust)
            except Unavailable:
                self._over.wait(AGAIN_S)
        return None

    def _ask(self, request: control_pb2.SubmitRequest, trust: ClientTrust) -> int:
        import grpc  # noqa: PLC0415  # after a cluster has started its processes

        with open_blocking_channel(self._target, trust) as channel:
            stub = control_pb2_grpc.ControlStub(channel)  # type: ignore[no-untyped-call]  # generated
            try:
                return int(stub.Submit(request, timeout=ANSWER_S).jobs[0].job)
            except grpc.RpcError as error:
                later = {
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                    grpc.StatusCode.CANCELLED,
                    grpc.StatusCode.FAILED_PRECONDITION,
                    grpc.StatusCode.ABORTED,
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                    grpc.StatusCode.UNKNOWN,
                }
                if error.code() in later:
                    raise Unavailable(str(error.details())) from None
                raise DlschedError(str(error.details())) from None


class SiteSubmissions:
    """Submits to the site's daemon, as the user of this process."""

    def __init__(self, daemon: str | None, *, insecure_loopback: bool) -> None:
        """Find the daemon as `dlsched` does, unless one is named."""
        self._daemon, self._insecure = daemon, insecure_loopback

    def client(self) -> Client:
        """A connection of this user."""
        return Client(self._daemon, insecure_loopback=self._insecure, wait="60s")

    def submit(self, user: User, wanted: Wanted) -> int | None:
        """Submit a job; None when the daemon was away for a minute.

        Raises:
            DlschedError: the daemon refuses the job.
        """
        del user
        request_id = str(uuid.uuid4())
        for _ in range(2):
            try:
                with self.client() as client:
                    return client.submit(
                        script=wanted.script.encode(),
                        name="torture",
                        request_id=request_id,
                        output=wanted.output,
                        gpus=str(wanted.gpus),
                        chdir=wanted.folder,
                    )
            except Unavailable:
                continue
        return None
