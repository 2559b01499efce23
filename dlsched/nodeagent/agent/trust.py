"""How an agent proves its role and checks those of others: by certificates, or on loopback."""

from __future__ import annotations

from pathlib import Path

from grpc import aio

from dlsched.core.errors import BadInput
from dlsched.nodeagent.agent.settings import Settings
from dlsched.rpc.channels import ClientTrust, open_channel
from dlsched.rpc.identity import node as node_role
from dlsched.rpc.server import ServerTrust
from dlsched.rpc.tls import KeyFiles


def _files(settings: Settings) -> KeyFiles | None:
    tls = settings.tls
    if tls is None:
        return None
    return KeyFiles(ca=Path(tls.ca), certificate=Path(tls.certificate), key=Path(tls.key))


def trust_of_daemon(settings: Settings) -> ClientTrust:
    """Return how this agent and the daemon that it calls prove themselves to each other.

    Raises:
        BadInput: when the settings name neither certificates nor `insecure_loopback`.
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


def trust_of_callers(settings: Settings) -> ServerTrust:
    """Return how this agent and its callers prove themselves to each other."""
    denied = settings.tls.denied if settings.tls else ""
    return ServerTrust(
        files=_files(settings),
        denied=Path(denied) if denied else None,
        insecure_loopback=settings.insecure_loopback,
    )


def certificate_expiry(settings: Settings) -> float | None:
    """Return when this node's certificate expires, in seconds since the epoch; None: never."""
    files = _files(settings)
    return None if files is None else files.expires_at()


def certificate_stamp(settings: Settings) -> object:
    """Return a value that changes when the certificate is renewed."""
    files = _files(settings)
    return None if files is None else files.stamp()


def open_agent_channel(settings: Settings, node: str, target: str) -> aio.Channel:
    """Open a channel to the agent of another node at the address `target`."""
    return open_channel(target, trust_of_daemon(settings).towards(node_role(node)))
