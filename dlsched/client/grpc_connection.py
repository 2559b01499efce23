"""A connection over gRPC: connecting, sending requests, repeating them, reading errors.

A request is repeated only if no daemon took it, or if doing it twice has the same effect as doing
it once. While the daemon is away, each repetition asks the next of the addresses.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import socket
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import grpc

from dlsched.client.daemon_address import DaemonAddress
from dlsched.client.errors import ConnectionLost, NotTrusted, Unavailable, refusal
from dlsched.core.errors import BadInput, DlschedError
from dlsched.rpc.channels import ClientTrust, open_blocking_channel
from dlsched.rpc.endpoint import NOT_TAKEN, Endpoint, parse_endpoint
from dlsched.rpc.messages import as_protobuf
from dlsched.rpc.v1.control_pb2_grpc import ControlStub

T = TypeVar("T")
TOLD_AFTER_S = 1.0  # a wait for the daemon that is longer is told
_PAUSE_S = 0.1
_CONNECT_S = 2.0
# a daemon that accepts connections and does not speak by then is passed by: at first, then later
_SOON_READY_S, _READY_S = 1.0, 3.0
_PASSED_SOON = 10
_CUT_S = 1.0  # a daemon that cuts connections for longer refuses this client, rather than ends
_Code = grpc.StatusCode
# Messages of gRPC itself when the transport fails; messages of a daemon begin differently.
_TRANSPORT = re.compile(
    r"failed to connect|socket closed|connection (reset|refused|aborted|closed)|broken pipe"
    r"|recvmsg|sendmsg|goaway|endpoint closing|transport closed|stream removed|ipv[46]:|unix:"
    r"|keepalive|received http2 header|too_many_pings|cancelling all calls|socket is not connected",
    re.I,
)
_NOT_REACHED = re.compile(r"failed to connect", re.I)


class _Hopeless(Unavailable):
    """Waiting does not help: a name that is not known, a socket that this user may not use."""


class GrpcConnection:
    """A channel and its stub, for one thread."""

    def __init__(
        self, address: DaemonAddress, on_wait: Callable[[str], None] = lambda _: None
    ) -> None:
        """Connect later, with the first request.

        Args:
            address: one address, or those of several daemons of which one leads.
            on_wait: is called with a line when the daemon is waited for.
        """
        self.address = address
        self._ends = [parse_endpoint(each.strip()) for each in address.daemon.split(",")]
        self._on_wait = on_wait
        self.answered = False  # has a daemon answered before?
        self.fate_unknown = False  # may a daemon have done the last request all the same?
        self._channel: Any = None
        self._stub: Any = None
        self._passed = 0  # how often a daemon did not speak

    def close(self) -> None:
        """Close the channel and end its calls."""
        if self._channel is not None:
            self._channel.close()
            self._channel = self._stub = None

    def ask(self, method: str, request: Any, *, repeatable: bool, within_s: float) -> Any:
        """Send a request and return the answer; repeat the request while that is safe.

        Args:
            method: a method of the Control service.
            request: its message.
            repeatable: has doing it twice the same effect as doing it once?
            within_s: time limit for each answer, in seconds.

        Raises:
            DlschedError: with one line that says why.
        """
        message = as_protobuf(request)
        answer = self._repeat(
            lambda stub: getattr(stub, method)(message, timeout=within_s), repeatable=repeatable
        )
        self.answered = True
        return answer

    def gather(
        self, method: str, request: Any, read: Callable[[Any], T], *, within_s: float
    ) -> list[T]:
        """Return what is read of every message of a stream that changes nothing.

        Raises:
            DlschedError: as for `ask`.
        """
        message = as_protobuf(request)
        return self._repeat(  # type: ignore[no-any-return]  # grpc has no types
            lambda stub: list(map(read, getattr(stub, method)(message, timeout=within_s))),
            repeatable=True,
        )

    def stream(
        self, method: str, request: Any, *, first_again: bool = False, patient: bool = True
    ) -> Iterator[Any]:
        """Return the messages of a stream as they come.

        Args:
            method: a method of the Control service.
            request: its message.
            first_again: whether to ask again when the connection is lost before the first message.
            patient: whether a daemon that is away is waited for.

        Raises:
            ConnectionLost: the connection was lost.
            DlschedError: as for `ask`.
        """

        def begin(stub: Any) -> tuple[Any, list[Any]]:
            call = getattr(stub, method)(as_protobuf(request))
            return call, list(islice(call, 1 if first_again else 0))

        call, first = self._repeat(begin, repeatable=True, patient=patient)
        try:
            yield from first
            for message in call:
                self.answered = True
                yield message
        except grpc.RpcError as error:
            raise self._error_of(error) from None
        finally:
            call.cancel()

    def converse(self, method: str, requests: Iterator[Any], *, patient: bool) -> BidirectionalCall:
        """Begin a call in both directions.

        Args:
            method: a method of the Control service.
            requests: its messages, read by a thread.
            patient: whether a daemon that is away is waited for.

        Raises:
            DlschedError: as for `ask`.
        """
        call = self._repeat(
            lambda stub: getattr(stub, method)(requests), repeatable=True, patient=patient
        )
        return BidirectionalCall(self, call)

    def error_of(self, error: grpc.RpcError) -> DlschedError:
        """Return the error for the user."""
        return self._error_of(error)

    def _repeat(
        self, asked: Callable[[Any], Any], *, repeatable: bool, patient: bool = True
    ) -> Any:
        began = time.monotonic()
        wait_s = self.address.wait_s if patient else 0.0
        told = False
        while True:
            taken, limit_s = False, wait_s
            try:
                return asked(self._open_stub())
            except grpc.RpcError as error:
                known = self._error_of(error)
                taken = not _NOT_REACHED.search(error.details() or "") and not _is_not_taken(error)
                if isinstance(known, NotTrusted) and error.code() is _Code.UNAVAILABLE:
                    limit_s = min(wait_s, _CUT_S)
                elif not isinstance(known, Unavailable) or error.code() is _Code.DEADLINE_EXCEEDED:
                    limit_s = 0.0
            except _Hopeless as error:
                known, limit_s = error, wait_s if len(self._ends) > 1 else 0.0
            except Unavailable as error:
                known = error
            self.fate_unknown |= taken
            waited = time.monotonic() - began
            if waited >= limit_s or (taken and not repeatable):
                raise known from None
            if waited > TOLD_AFTER_S and not told:
                self._on_wait(f"{known}; waiting for up to {wait_s:g} s (--daemon-wait)")
                told = True
            self.close()
            self._ends.append(self._ends.pop(0))
            time.sleep(_PAUSE_S)

    @property
    def _end(self) -> Endpoint:
        return self._ends[0]

    def _open_stub(self) -> Any:
        if self._stub is None:
            self._reach()
            self._channel = open_blocking_channel(str(self._end), _trust(self.address, self._end))
            if len(self._ends) > 1:
                try:
                    within_s = _SOON_READY_S if self._passed < _PASSED_SOON else _READY_S
                    grpc.channel_ready_future(self._channel).result(within_s)
                except grpc.FutureTimeoutError:
                    self._passed += 1
                    raise self._unreached("no answer") from None
            self._stub = ControlStub(self._channel)  # type: ignore[no-untyped-call]  # generated
        return self._stub

    def _reach(self) -> None:
        """Connect once without gRPC: the kernel reports at once why a daemon cannot be reached."""
        try:
            _connect(self._end, _CONNECT_S)
        except socket.gaierror as error:
            raise _Hopeless(str(self._unreached(error.strerror or "name not known"))) from None
        except TimeoutError:
            raise self._unreached("no answer") from None
        except OSError as error:
            known = self._unreached(error.strerror or str(error))
            if error.errno in {errno.ECONNREFUSED, errno.ENOENT, errno.EAGAIN, errno.ECONNRESET}:
                raise known from None
            raise _Hopeless(str(known)) from None

    def _unreached(self, why: str) -> Unavailable:
        return Unavailable(f"cannot reach the daemon at {self._end} ({why.lower()})")

    def _error_of(self, error: grpc.RpcError) -> DlschedError:
        """Return the error for the user: the daemon's own message, if the daemon sent one."""
        code, text = error.code(), " ".join((error.details() or "").split())
        if code is _Code.UNAVAILABLE and _TRANSPORT.search(text):
            return self._transport_error(text)
        return refusal(code.name, text or code.value[1], str(self._end))

    def _transport_error(self, text: str) -> DlschedError:
        trouble = self._tls_trouble(text)
        if trouble is not None:
            return NotTrusted(trouble)
        if _NOT_REACHED.search(text):
            return self._unreached(_reason(text))
        return ConnectionLost(f"lost the connection to the daemon at {self._end}")

    def _tls_trouble(self, text: str) -> str | None:
        """Return what is wrong with the certificates; None once the daemon has answered."""
        if self.answered or self._end.path or self.address.insecure_loopback:
            return None
        from dlsched.rpc.call_failures import tls_trouble  # noqa: PLC0415  # rarely needed

        return tls_trouble(text, str(self._end), _trust(self.address, self._end))


class BidirectionalCall:
    """The answers of a call in both directions."""

    def __init__(self, connection: GrpcConnection, call: Any) -> None:
        """Wrap a gRPC call that was begun over a connection."""
        self._connection, self._call = connection, call

    def __iter__(self) -> Iterator[Any]:
        """Give the answers.

        Raises:
            DlschedError: as for `ask`.
        """
        try:
            for message in self._call:
                self._connection.answered = True
                yield message
        except grpc.RpcError as error:
            raise self._connection.error_of(error) from None

    def close(self) -> None:
        """End the call; a thread that reads its answers gets an error."""
        self._call.cancel()


def _is_not_taken(error: Any) -> bool:
    """Return whether a daemon says that it did nothing: it does not lead, or cannot store."""
    return any(key == NOT_TAKEN for key, _ in error.trailing_metadata() or ())


def _connect(end: Endpoint, within_s: float) -> None:
    if end.path:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(within_s)
            probe.connect(end.path)
        return
    with socket.create_connection((end.host, end.port), timeout=within_s):
        pass


def _reason(text: str) -> str:
    """Return the reason, such as `Connection refused`, from gRPC's long message."""
    found = re.findall(r"([A-Z][a-z]+(?: [a-z]+)*) \(\d+\)", text)
    return found[-1] if found else "no connection"


def _trust(address: DaemonAddress, end: Endpoint) -> ClientTrust:
    """Return how client and daemon authenticate each other; only this function decides it."""
    if address.insecure_loopback:
        uid = os.getuid()
        try:
            name = pwd.getpwuid(uid).pw_name
        except KeyError:
            name = str(uid)
        return ClientTrust.claimed_user(name, uid)
    if end.path:
        beside = os.path.join(os.path.dirname(end.path), "login.sock")
        return ClientTrust.local(address.login_socket or beside)
    if address.ca and address.certificate and address.key:
        from dlsched.rpc.tls import KeyFiles  # noqa: PLC0415  # few users have a certificate

        return ClientTrust.certificate(
            KeyFiles(
                ca=Path(address.ca), certificate=Path(address.certificate), key=Path(address.key)
            )
        )
    if address.ca and address.token:
        return ClientTrust.token_text(Path(address.ca), address.token)
    if address.ca and address.token_file:
        return ClientTrust.token(Path(address.ca), Path(address.token_file))
    raise BadInput(
        f"{end}: without a token or a certificate only the local socket can be used "
        "(ca and token_file in config.toml; --insecure-loopback for development)"
    )
