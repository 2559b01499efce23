"""Channels: their target, how they check its identity, and how they prove their own.

Over TLS a channel requires a role of its server: an agent accepts a daemon's certificate only, a
daemon that of the dialled node only. A local channel gets its token from the login socket.
"""

from __future__ import annotations

import asyncio
import time
from collections import namedtuple
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from grpc import aio

from dlsched.core.errors import NotTrusted, Unavailable
from dlsched.rpc.endpoint import MAX_MESSAGE_BYTES, Endpoint, check_socket, parse_endpoint
from dlsched.rpc.identity import BEARER, DAEMON, ROLE_KEY, TOKEN_KEY, Role, user_claim
from dlsched.rpc.login import Login, log_in

if TYPE_CHECKING:
    from dlsched.rpc.tls import KeyFiles

BOUNDS: tuple[tuple[str, int | str], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.enable_http_proxy", 0),  # never use a proxy of the environment
    ("grpc.use_local_subchannel_pool", 1),  # channels share no connections
)
Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTrust:
    """How a client checks its server's identity and proves its own."""

    files: KeyFiles | None = None  # mutual TLS
    ca: Path | None = None  # TLS with a token
    token_file: Path | None = None
    secret: str = field(default="", repr=False)  # the token itself, in place of `token_file`
    login_socket: str = ""  # local, with the peer credentials of the kernel
    insecure_loopback: bool = False
    claims: Metadata = ()
    server: Role = DAEMON  # the required role, over TLS

    @classmethod
    def certificate(cls, files: KeyFiles, *, server: Role = DAEMON) -> ClientTrust:
        """Trust with a certificate of the client."""
        return cls(files=files, server=server)

    @classmethod
    def token(cls, ca: Path, token_file: Path) -> ClientTrust:
        """Trust with a token of `dlsched admin token create`, in a file."""
        return cls(ca=ca, token_file=token_file)

    @classmethod
    def token_text(cls, ca: Path, secret: str) -> ClientTrust:
        """Trust with a token that is at hand."""
        return cls(ca=ca, secret=secret)

    @classmethod
    def local(cls, login_socket: str) -> ClientTrust:
        """Trust with the login socket of this machine's daemon."""
        return cls(login_socket=login_socket)

    @classmethod
    def claimed_user(cls, user: str, uid: int) -> ClientTrust:
        """Development on loopback: a claimed user without a proof."""
        return cls(insecure_loopback=True, claims=user_claim(user, uid))

    @classmethod
    def claimed_role(cls, role: Role) -> ClientTrust:
        """Development on loopback: a claimed role without a proof."""
        return cls(insecure_loopback=True, claims=((ROLE_KEY, role.uri),))

    @property
    def ca_file(self) -> Path | None:
        """The certificate of the authority that must have signed the server's."""
        return self.files.ca if self.files else self.ca

    def towards(self, server: Role) -> ClientTrust:
        """The same trust for another server."""
        return replace(self, server=server)


def open_channel(target: str, trust: ClientTrust) -> aio.Channel:
    """A channel for asyncio; `target` is HOST:PORT or unix:/path.

    Raises:
        NotTrusted: the target needs another kind of trust, or the client's files are not valid.
    """
    end, credentials, options = _prepared(target, trust)
    caller = _Caller(trust)
    interceptors = (
        [_AioUnary(caller), _AioStream(caller), _AioBoth(caller)] if caller.identifies else None
    )
    if credentials is None:
        return aio.insecure_channel(str(end), options=options, interceptors=interceptors)
    return aio.secure_channel(str(end), credentials, options=options, interceptors=interceptors)


def open_blocking_channel(target: str, trust: ClientTrust) -> grpc.Channel:
    """A channel for blocking calls; otherwise as `open_channel`."""
    end, credentials, options = _prepared(target, trust)
    caller = _Caller(trust)
    if credentials is None:
        channel = grpc.insecure_channel(str(end), options=options)
    else:
        channel = grpc.secure_channel(str(end), credentials, options=options)
    return grpc.intercept_channel(channel, _Blocking(caller)) if caller.identifies else channel


def _prepared(
    target: str, trust: ClientTrust
) -> tuple[Endpoint, grpc.ChannelCredentials | None, list[tuple[str, int | str]]]:
    end = parse_endpoint(target)
    options = list(BOUNDS)
    if trust.insecure_loopback:
        return end.loopback(), None, options
    if end.path:
        try:
            check_socket(end.path)
        except OSError:
            raise Unavailable(f"no daemon on this machine: {end.path} does not exist") from None
        return end, grpc.local_channel_credentials(grpc.LocalConnectionType.UDS), options
    # the name in the certificate must match the role; the address does not matter
    options.append(("grpc.ssl_target_name_override", trust.server.host))
    if trust.files is not None:
        material = trust.files.read()
        trust.files.check(time.time())
        return (
            end,
            grpc.ssl_channel_credentials(material.ca, material.key, material.certificate),
            options,
        )
    if trust.ca is not None and (trust.token_file is not None or trust.secret):
        try:
            ca = trust.ca.read_bytes()
        except OSError as error:
            raise NotTrusted(f"{trust.ca}: {error.strerror}") from None
        return end, grpc.ssl_channel_credentials(ca), options
    raise NotTrusted(
        f"{target} needs a certificate or a token: dlsched admin token create, or the local socket"
    )


class _Caller:
    """The metadata that identifies the caller of each call."""

    def __init__(self, trust: ClientTrust) -> None:
        self._trust = trust
        self._login: Login | None = None
        self.identifies = bool(
            trust.claims or trust.login_socket or trust.token_file or trust.secret
        )

    def ready(self) -> Metadata | None:
        """The metadata if it is known already; None: it must be fetched."""
        trust = self._trust
        if trust.claims:
            return trust.claims
        if trust.secret:
            return ((TOKEN_KEY, BEARER + trust.secret),)
        if self._login is not None and time.monotonic() < self._login.renew_at:
            return ((TOKEN_KEY, BEARER + self._login.token),)
        return None

    def fetch(self) -> Metadata:
        """The metadata; may ask the login socket or read a file."""
        found = self.ready()
        if found is not None:
            return found
        trust = self._trust
        if trust.token_file is not None:
            from dlsched.rpc.tls import read_secret  # noqa: PLC0415  # for a quick start

            return ((TOKEN_KEY, BEARER + read_secret(trust.token_file).decode().strip()),)
        self._login = log_in(trust.login_socket)
        return ((TOKEN_KEY, BEARER + self._login.token),)

    def forget(self) -> None:
        """Drop a refused token: a restarted daemon knows none of the earlier ones."""
        self._login = None


Next = Callable[[grpc.ClientCallDetails, object], grpc.Call]
AioNext = Callable[[aio.ClientCallDetails, object], Awaitable[aio.Call]]
_Details = namedtuple(  # grpc wants these attributes
    "_Details", ("method", "timeout", "metadata", "credentials", "wait_for_ready", "compression")
)


class _Blocking(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]  # grpc has no types
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamStreamClientInterceptor,  # type: ignore[misc]
):
    def __init__(self, caller: _Caller) -> None:
        self._caller = caller

    def _call(
        self, continuation: Next, details: grpc.ClientCallDetails, request: object
    ) -> grpc.Call:
        metadata = (*(details.metadata or ()), *self._caller.fetch())
        call = continuation(
            _Details(
                details.method,
                details.timeout,
                metadata,
                details.credentials,
                details.wait_for_ready,
                details.compression,
            ),
            request,
        )
        call.add_done_callback(self._done)
        return call

    intercept_unary_unary = _call
    intercept_unary_stream = _call
    intercept_stream_stream = _call

    def _done(self, call: grpc.Call) -> None:
        if call.code() is grpc.StatusCode.UNAUTHENTICATED:
            self._caller.forget()


class _AioBase:
    def __init__(self, caller: _Caller) -> None:
        self._caller = caller

    async def _call(
        self, continuation: AioNext, details: aio.ClientCallDetails, request: object
    ) -> aio.Call:
        found = self._caller.ready()
        if found is None:
            found = await asyncio.to_thread(self._caller.fetch)
        metadata = aio.Metadata(*(details.metadata or ()), *found)
        return await continuation(details._replace(metadata=metadata), request)

    async def _begin(
        self, continuation: AioNext, details: aio.ClientCallDetails, request: object
    ) -> aio.Call:
        call = await self._call(continuation, details, request)
        looking = asyncio.ensure_future(self._look(call))
        call.add_done_callback(lambda _: looking)  # held as long as the call
        return call

    async def _look(self, call: aio.Call) -> None:
        if await call.code() is grpc.StatusCode.UNAUTHENTICATED:
            self._caller.forget()


class _AioUnary(_AioBase, aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # grpc has no types
    async def intercept_unary_unary(
        self, continuation: AioNext, details: aio.ClientCallDetails, request: object
    ) -> aio.Call:
        call = await self._call(continuation, details, request)
        try:
            await self._look(call)
        except asyncio.CancelledError:
            call.cancel()  # its server would go on with it
            raise
        return call


class _AioStream(_AioBase, aio.UnaryStreamClientInterceptor):  # type: ignore[misc]  # grpc has no types
    async def intercept_unary_stream(
        self, continuation: AioNext, details: aio.ClientCallDetails, request: object
    ) -> aio.Call:
        return await self._begin(continuation, details, request)


class _AioBoth(_AioBase, aio.StreamStreamClientInterceptor):  # type: ignore[misc]  # grpc has no types
    async def intercept_stream_stream(
        self, continuation: AioNext, details: aio.ClientCallDetails, requests: object
    ) -> aio.Call:
        return await self._begin(continuation, details, requests)
