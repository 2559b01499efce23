"""Calls that fail below the application: no connection for a reason of TLS, or a closed channel.

A TLS failure always arrives as UNAVAILABLE. The reason is in the details, in the words of the TLS
library, if it arrives at all: a server that refuses a certificate may just close the connection.

A channel that its own side closes ends a waiting call with asyncio's cancellation: the task would
end silently, as if it had been cancelled itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from grpc.aio import UsageError

from dlsched.core.errors import DlschedError
from dlsched.rpc.channels import ClientTrust

T = TypeVar("T")
WRONG_NAME = ("is not in peer certificate", "Hostname Verification Check failed")
NOT_SIGNED = "CERTIFICATE_VERIFY_FAILED"
ALERTS = (
    "CERTIFICATE_REQUIRED",
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED",
    "HANDSHAKE_FAILURE",
)
CLOSED = ("Connection reset", "Socket closed", "Broken pipe", "GOAWAY", "handshake")


def tls_trouble(
    details: str, target: str, trust: ClientTrust, *, answered: bool = False
) -> str | None:
    """One line for the user when TLS failed; None for any other failure.

    Args:
        details: the details of the error.
        target: the dialled address.
        trust: the client's trust.
        answered: whether the server has accepted this client before; then a closed connection has
            other reasons.
    """
    if any(word in details for word in WRONG_NAME):
        server = "the daemon" if trust.server.kind == "daemon" else str(trust.server)
        return f"{target} has a certificate of another role than {server}"
    if NOT_SIGNED in details:
        return (
            f"{target} shows a certificate that this client's authority ({trust.ca_file}) "
            "has not signed, or that has expired"
        )
    if "WRONG_VERSION_NUMBER" in details:
        return f"{target} does not use TLS"
    lower = details.lower()
    if not any(word.lower() in lower for word in (ALERTS if answered else (*ALERTS, *CLOSED))):
        return None
    if trust.files is None:
        return (
            f"{target} refused this connection: it requires a certificate, and this "
            "client has only a token (a daemon has another port for tokens)"
        )
    return (
        f"{target} refused this client's certificate ({trust.files.certificate}): it is "
        "of another authority, or expired (dlsched admin ca show)"
    )


class ChannelClosed(DlschedError):
    """The client closed its channel before the answer arrived."""


async def answer(call: Awaitable[T]) -> T:
    """The answer of a call; a cancellation of the waiting task itself stays a cancellation.

    Raises:
        ChannelClosed: the channel was closed meanwhile.
        AioRpcError: the call failed.
    """
    try:
        return await call
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise ChannelClosed("the channel was closed before the answer arrived") from None
    except UsageError as error:
        raise ChannelClosed(f"the channel was closed before the call: {error}") from None
