"""Servers: their ports, how they authenticate callers, and their limits.

Every server has an interceptor (see `interceptor`). A port without TLS is a unix socket, or a
loopback port that needs a flag of its own.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc import aio

from dlsched.core.errors import BadInput, DlschedError, NotTrusted, Unavailable
from dlsched.rpc.authentication import Authenticator
from dlsched.rpc.authorisation import RULES, Rule
from dlsched.rpc.connection_limits import ConnectionLimits
from dlsched.rpc.endpoint import MAX_MESSAGE_BYTES, Endpoint, parse_endpoint
from dlsched.rpc.interceptor import CallInterceptor
from dlsched.rpc.login import take_path
from dlsched.rpc.tls import DenyList, KeyFiles, Stamp, check_deny_list
from dlsched.rpc.tokens import LocalTokens, TokenStore

log = logging.getLogger(__name__)
USERS = "users:"  # a port for remote users: TLS without a client certificate
BOUNDS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    (
        "grpc.compression_enabled_algorithms_bitset",
        1,
    ),  # none: a small message must not unpack to a large one
    ("grpc.max_metadata_size", 16 * 1024),
    # what a call may send before its caller is known: no more than this waits for its handler
    ("grpc.http2.lookahead_bytes", 64 * 1024),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_concurrent_streams", 256),  # a connection
    ("grpc.so_reuseport", 0),  # two daemons on one port are an error
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 600_000),
    ("grpc.keepalive_time_ms", 60_000),  # half-open connections are found and closed
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTrust:
    """How a server authenticates its callers.

    `files` are needed for every port that is neither a unix socket nor `insecure_loopback`.
    """

    files: KeyFiles | None = None
    denied: Path | None = None
    insecure_loopback: bool = False
    local: LocalTokens | None = None
    remote: TokenStore | None = None
    operators: frozenset[str] = frozenset()
    socket_mode: int = 0o666  # of unix sockets: calls need a token in any case


def new_interceptor(
    trust: ServerTrust,
    *,
    rules: Mapping[str, Rule] = RULES,
    connections: ConnectionLimits | None = None,
) -> CallInterceptor:
    """An interceptor that checks every call against the rules, by full method name."""
    authenticator = Authenticator(
        insecure_loopback=trust.insecure_loopback,
        local=trust.local,
        remote=trust.remote,
        denied=DenyList(trust.denied),
        operators=trust.operators,
    )
    return CallInterceptor(authenticator, rules, connections)


def new_server(
    trust: ServerTrust,
    *,
    rules: Mapping[str, Rule] = RULES,
    connections: ConnectionLimits | None = None,
    interceptor: CallInterceptor | None = None,
) -> aio.Server:
    """A server behind an interceptor; without one, behind one of its own."""
    interceptor = interceptor or new_interceptor(trust, rules=rules, connections=connections)
    return aio.server(interceptors=(interceptor,), options=BOUNDS)


def add_ports(server: aio.Server, listen: Sequence[str], trust: ServerTrust) -> list[int]:
    """Bind a server's addresses: `HOST:PORT`, `users:HOST:PORT`, `unix:/path`.

    Returns:
        The ports, as bound; 0 for a unix socket.

    Raises:
        NotTrusted: an address needs another kind of trust.
        Unavailable: an address cannot be bound.
    """
    if not listen:
        raise BadInput("a server needs an address to listen on")
    mutual = for_users = None
    ports = []
    for text in listen:
        end = parse_endpoint(text.removeprefix(USERS))
        if end.path:
            ports.append(_add_socket(server, end, trust))
        elif trust.insecure_loopback:
            ports.append(_bind(end, server.add_insecure_port, str(end.loopback())))
        elif text.startswith(USERS):
            for_users = for_users or _credentials(trust, text, mutual=False)
            ports.append(_bind(end, server.add_secure_port, str(end), for_users))
        else:
            mutual = mutual or _credentials(trust, text, mutual=True)
            ports.append(_bind(end, server.add_secure_port, str(end), mutual))
    return ports


def _bind(end: Endpoint, add: Callable[..., int], *arguments: object) -> int:
    try:
        port = int(add(*arguments))
    except RuntimeError:
        port = 0
    if port == 0:
        raise Unavailable(f"cannot listen on {end}: in use, or not an address of this machine")
    return port


def _add_socket(server: aio.Server, end: Endpoint, trust: ServerTrust) -> int:
    path = Path(end.path)
    take_path(path)
    credentials = grpc.local_server_credentials(grpc.LocalConnectionType.UDS)
    _bind(end, server.add_secure_port, str(end), credentials)
    os.chmod(path, trust.socket_mode)
    return 0


def _credentials(trust: ServerTrust, text: str, *, mutual: bool) -> grpc.ServerCredentials:
    """TLS credentials from files that are read again after a change, without a restart."""
    files = trust.files
    if files is None:
        raise NotTrusted(
            f"{text} needs certificates (dlsched admin init makes them); "
            "--insecure-loopback goes without, on this machine only"
        )
    files.check(time.time(), "daemon", "node")
    if mutual and trust.denied is not None:
        check_deny_list(trust.denied)
    seen: list[Stamp] = [files.stamp()]

    def configuration() -> grpc.ServerCertificateConfiguration:
        material = files.read()
        pair = ((material.key, material.certificate),)
        return grpc.ssl_server_certificate_configuration(pair, material.ca)

    def changed() -> grpc.ServerCertificateConfiguration | None:
        stamp = files.stamp()
        if stamp == seen[0]:
            return None
        seen[0] = stamp
        try:
            files.check(time.time(), "daemon", "node")
            return configuration()
        except DlschedError as error:
            log.error("certificate-not-renewed why=%s", error)
            return None  # the old certificate stays in use

    return grpc.dynamic_ssl_server_credentials(
        configuration(), changed, require_client_authentication=mutual
    )
