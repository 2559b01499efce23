"""One connection to the daemon: dialling, asking, asking again, and what errors mean.

A request is asked again only when the daemon was not reached, or when doing it twice is doing it
once.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

from dlsched.client.errors import Lost, NotAllowed, NotFound, NotTrusted, Refused, Unavailable
from dlsched.client.where import Where
from dlsched.core.errors import BadInput, DlschedError
from dlsched.rpc.channels import ClientTrust, open_blocking_channel
from dlsched.rpc.endpoint import Endpoint, parse_endpoint
from dlsched.rpc.v1.control_pb2_grpc import ControlStub

__all__ = ["Connection"]

REACH_S = 2.0  # how long a daemon that is being started again is knocked at
ANSWER_S = 60.0
_PAUSE_S = 0.1
_Code = grpc.StatusCode
# What gRPC itself says when the transport fails; a daemon's own words begin otherwise.
_TRANSPORT = re.compile(
    r"failed to connect|socket closed|connection (reset|refused|aborted|closed)|broken pipe"
    r"|recvmsg|sendmsg|goaway|endpoint closing|transport closed|stream removed|ipv[46]:|unix:"
    r"|keepalive|received http2 header|too_many_pings|cancelling all calls|socket is not connected",
    re.I,
)
_NOT_REACHED = re.compile(r"failed to connect", re.I)


class Connection:
    """A channel and its stub; used as a context manager, from one thread."""

    def __init__(self, where: Where) -> None:
        self.where = where
        self._end = parse_endpoint(where.daemon)
        self.answered = False  # has this daemon, or one before it, ever answered?
        self._channel: Any = None
        self._stub: Any = None

    def close(self) -> None:
        """Close the channel; calls under way end."""
        if self._channel is not None:
            self._channel.close()
            self._channel = self._stub = None

    def ask(
        self, method: str, request: Any, *, repeatable: bool, within_s: float = ANSWER_S
    ) -> Any:
        """Ask once, and again while that is safe.

        Args:
            method: of the Control service.
            request: its message.
            repeatable: doing it twice is doing it once.
            within_s: seconds for each answer.

        Raises:
            DlschedError: with the one line that tells why.
        """
        answer = self._persist(
            lambda stub: getattr(stub, method)(request, timeout=within_s), repeatable=repeatable
        )
        self.answered = True
        return answer

    def gather(self, method: str, request: Any, *, within_s: float = ANSWER_S) -> list[Any]:
        """Every message of a stream that only reads."""
        return self._persist(  # type: ignore[no-any-return]  # grpc has no types
            lambda stub: list(getattr(stub, method)(request, timeout=within_s)), repeatable=True
        )

    def stream(self, method: str, request: Any) -> Iterator[Any]:
        """Messages as they come; when the connection goes, `Lost`.

        Raises:
            DlschedError: as for `ask`.
        """
        call = self._persist(lambda stub: getattr(stub, method)(request), repeatable=True)
        try:
            for message in call:
                self.answered = True
                yield message
        except grpc.RpcError as error:
            raise self._told(error) from None
        finally:
            call.cancel()

    def _persist(self, asked: Callable[[Any], Any], *, repeatable: bool) -> Any:
        until = time.monotonic() + REACH_S
        while True:
            try:
                answer = asked(self._opened(until))
            except grpc.RpcError as error:
                told = self._told(error)
                reached = not _NOT_REACHED.search(error.details() or "")
                again = isinstance(told, Unavailable) and error.code() is _Code.UNAVAILABLE
                if not again or (reached and not repeatable) or time.monotonic() > until:
                    raise told from None
            else:
                return answer
            time.sleep(_PAUSE_S)

    def _opened(self, until: float) -> Any:
        if self._stub is None:
            self._knock(until)
            self._channel = open_blocking_channel(str(self._end), _trust(self.where, self._end))
            self._stub = ControlStub(self._channel)  # type: ignore[no-untyped-call]  # generated
        return self._stub

    def _knock(self, until: float) -> None:
        """Is anybody there? The kernel says so at once, and why not."""
        while True:
            left = max(0.1, until - time.monotonic())
            try:
                _dial(self._end, left)
            except socket.gaierror as error:
                raise self._unreached(error.strerror or "name not known") from None
            except TimeoutError:
                raise self._unreached("no answer") from None
            except OSError as error:
                starting = error.errno in {errno.ECONNREFUSED, errno.ENOENT, errno.EAGAIN}
                if not starting or time.monotonic() + _PAUSE_S > until:
                    raise self._unreached(error.strerror or str(error)) from None
            else:
                return
            time.sleep(_PAUSE_S)

    def _unreached(self, why: str) -> Unavailable:
        return Unavailable(f"cannot reach the daemon at {self._end} ({why.lower()})")

    def _told(self, error: grpc.RpcError) -> DlschedError:
        """The line that the user reads: the daemon's own, where it was the daemon that spoke."""
        code, text = error.code(), " ".join((error.details() or "").split())
        if code is _Code.UNAVAILABLE and _TRANSPORT.search(text):
            return self._no_transport(text)
        if code is _Code.DEADLINE_EXCEEDED:
            return Unavailable(f"no answer from the daemon at {self._end}")
        kinds: dict[Any, type[DlschedError]] = {
            _Code.NOT_FOUND: NotFound,
            _Code.PERMISSION_DENIED: NotAllowed,
            _Code.UNAUTHENTICATED: NotTrusted,
            _Code.UNAVAILABLE: Unavailable,
        }
        if code is _Code.UNIMPLEMENTED:
            return Refused(f"the daemon at {self._end} does not know this request; is it older?")
        if code in {_Code.INTERNAL, _Code.UNKNOWN}:
            return Refused(f"the daemon at {self._end} failed: {text or code.value[1]}")
        return kinds.get(code, Refused)(text or code.value[1])

    def _no_transport(self, text: str) -> DlschedError:
        trouble = self._tls_trouble(text)
        if trouble is not None:
            return NotTrusted(trouble)
        if _NOT_REACHED.search(text):
            return self._unreached(_reason(text))
        return Lost(f"lost the connection to the daemon at {self._end}")

    def _tls_trouble(self, text: str) -> str | None:
        """What certificates have to do with it; nothing any more once the daemon has answered."""
        if self.answered or self._end.path or self.where.insecure_loopback:
            return None
        from dlsched.rpc.unreachable import tls_trouble  # noqa: PLC0415  # rarely needed

        return tls_trouble(text, str(self._end), _trust(self.where, self._end))


def _dial(end: Endpoint, within_s: float) -> None:
    if end.path:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
            knock.settimeout(within_s)
            knock.connect(end.path)
        return
    with socket.create_connection((end.host, end.port), timeout=within_s):
        pass


def _reason(text: str) -> str:
    """`Connection refused` of gRPC's long account."""
    found = re.findall(r"([A-Z][a-z]+(?: [a-z]+)*) \(\d+\)", text)
    return found[-1] if found else "no connection"


def _trust(where: Where, end: Endpoint) -> ClientTrust:
    """How the client makes sure of the daemon and says who calls: the one place that decides it."""
    if where.insecure_loopback:
        uid = os.getuid()
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:
            name = str(uid)
        return ClientTrust.claimed_user(name, uid)
    if end.path:
        beside = os.path.join(os.path.dirname(end.path), "login.sock")
        return ClientTrust.local(where.login_socket or beside)
    if where.ca and where.certificate and where.key:
        from dlsched.rpc.tls import KeyFiles  # noqa: PLC0415  # few users have one

        return ClientTrust.certificate(
            KeyFiles(ca=Path(where.ca), certificate=Path(where.certificate), key=Path(where.key))
        )
    if where.ca and where.token_file:
        return ClientTrust.token(Path(where.ca), Path(where.token_file))
    raise BadInput(
        f"{end}: without a token or a certificate only the local socket can be used "
        "(ca and token_file in config.toml; --insecure-loopback for development)"
    )
