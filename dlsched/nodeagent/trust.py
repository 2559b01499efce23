"""How an agent proves who it is, and whom it believes: by role certificates, or on loopback."""

from __future__ import annotations

from pathlib import Path

from grpc import aio

from dlsched.core.errors import BadInput
from dlsched.nodeagent.settings import Settings
from dlsched.rpc.channels import ClientTrust, open_channel
from dlsched.rpc.identity import node as node_role
from dlsched.rpc.server import ServerTrust
from dlsched.rpc.tls import KeyFiles


def _files(settings: Settings) -> KeyFiles | None:
    tls = settings.tls
    if tls is None:
        return None
    return KeyFiles(ca=Path(tls.ca), certificate=Path(tls.certificate), key=Path(tls.key))


def client(settings: Settings) -> ClientTrust:
    """Towards the daemon.

    Raises:
        BadInput: when the settings name neither certificates nor loopback.
    """
    files = _files(settings)
    if settings.insecure_loopback:
        return ClientTrust.claimed_role(node_role(settings.name))
    if files is None:
        raise BadInput(
            "an agent needs its certificate ([tls] ca, certificate, key; `dlsched admin ca` makes "
            "it), or --insecure-loopback on one machine"
        )
    return ClientTrust.certificate(files)


def server(settings: Settings) -> ServerTrust:
    """Towards those who call."""
    denied = settings.tls.denied if settings.tls else ""
    return ServerTrust(
        files=_files(settings),
        denied=Path(denied) if denied else None,
        insecure_loopback=settings.insecure_loopback,
    )


def certificate_stamp(settings: Settings) -> object:
    """Changes when the certificate was renewed."""
    files = _files(settings)
    return None if files is None else files.stamp()


def to_peer(settings: Settings, node: str, target: str) -> aio.Channel:
    """A channel to another node's agent."""
    return open_channel(target, client(settings).towards(node_role(node)))
