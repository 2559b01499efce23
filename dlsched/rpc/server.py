"""Servers: where they listen, by what they tell callers apart, and their bounds.

Every server made here has the authorisation interceptor; a port without TLS is a unix socket, or
loopback behind a flag of its own.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from dlsched.core.errors import BadInput, DlschedError, NotTrusted, Unavailable
from dlsched.rpc.authentication import Authenticator
from dlsched.rpc.authorisation import RULES, AuthorisationInterceptor, Rule
from dlsched.rpc.endpoint import MAX_MESSAGE_BYTES, Endpoint, parse_endpoint
from dlsched.rpc.login import take_path
from dlsched.rpc.tls import DenyList, KeyFiles, Stamp
from dlsched.rpc.tokens import LocalTokens, TokenStore

__all__ = ["ServerTrust", "add_ports", "new_server"]

log = logging.getLogger(__name__)
USERS = "users:"  # a port for users at a distance: TLS without a certificate of theirs
BOUNDS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.compression_enabled_algorithms_bitset", 1),  # none: nothing small unpacks to much
    ("grpc.max_metadata_size", 16 * 1024),
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
    """By what a server tells its callers apart.

    `files` are needed for every port that is neither a unix socket nor `insecure_loopback`.
    """

    files: KeyFiles | None = None
    denied: Path | None = None
    insecure_loopback: bool = False
    local: LocalTokens | None = None
    remote: TokenStore | None = None
    operators: frozenset[str] = frozenset()
    socket_mode: int = 0o666  # of unix sockets: a token is asked for behind it


def new_server(
    trust: ServerTrust, *, rules: Mapping[str, Rule] = RULES, interceptors: Sequence[Any] = ()
) -> aio.Server:
    """A server whose calls all pass the rules.

    Args:
        trust: how callers are told apart.
        rules: by full method name.
        interceptors: further ones; they see only calls that were let in.
    """
    authenticator = Authenticator(
        insecure_loopback=trust.insecure_loopback,
        local=trust.local,
        remote=trust.remote,
        denied=DenyList(trust.denied),
        operators=trust.operators,
    )
    door = AuthorisationInterceptor(authenticator, rules)
    return aio.server(interceptors=(door, *interceptors), options=BOUNDS)


def add_ports(server: aio.Server, listen: Sequence[str], trust: ServerTrust) -> list[int]:
    """Bind a server's addresses: `HOST:PORT`, `users:HOST:PORT`, `unix:/path`.

    Returns:
        The ports, as bound; 0 for a unix socket.

    Raises:
        NotTrusted: when an address may not be used like that.
        Unavailable: when one cannot be bound.
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


def _bind(end: Endpoint, add: Any, *arguments: Any) -> int:
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


def _credentials(trust: ServerTrust, text: str, *, mutual: bool) -> Any:
    """TLS from files that are read again when they change: a renewal needs no restart."""
    files = trust.files
    if files is None:
        raise NotTrusted(
            f"{text} needs certificates (dlsched admin init makes them); "
            "--insecure-loopback goes without, on this machine only"
        )
    files.check(time.time(), "daemon", "node")
    seen: list[Stamp] = [files.stamp()]

    def configuration() -> Any:
        material = files.read()
        pair = ((material.key, material.certificate),)
        return grpc.ssl_server_certificate_configuration(pair, material.ca)

    def changed() -> Any:
        stamp = files.stamp()
        if stamp == seen[0]:
            return None
        seen[0] = stamp
        try:
            files.check(time.time(), "daemon", "node")
            return configuration()
        except DlschedError as error:
            log.error("certificate-not-renewed why=%s", error)
            return None  # the old one serves on

    return grpc.dynamic_ssl_server_credentials(
        configuration(), changed, require_client_authentication=mutual
    )
