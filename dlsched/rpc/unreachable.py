"""What gRPC says of a connection that did not come about, in one line for the user.

TLS failures all arrive as UNAVAILABLE; what went wrong stands in the details, in the words of the
TLS library, if it arrives at all: a server that refuses a certificate may just hang up.
"""

from __future__ import annotations

from dlsched.rpc.channels import ClientTrust

__all__ = ["tls_trouble"]

NOT_THE_ONE = ("is not in peer certificate", "Hostname Verification Check failed")
NOT_SIGNED = "CERTIFICATE_VERIFY_FAILED"
ALERTS = (
    "CERTIFICATE_REQUIRED",
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REVOKED",
    "HANDSHAKE_FAILURE",
)
HUNG_UP = ("Connection reset", "Socket closed", "Broken pipe", "GOAWAY", "handshake")


def tls_trouble(
    details: str, target: str, trust: ClientTrust, *, answered: bool = False
) -> str | None:
    """One line when it was TLS that failed; None when it was something else.

    Args:
        details: of the error.
        target: what was dialled, over TLS.
        trust: with what.
        answered: it has taken this certificate before, so hanging up has other reasons.
    """
    if any(word in details for word in NOT_THE_ONE):
        who = "the daemon" if trust.server.kind == "daemon" else str(trust.server)
        return f"{target} is not {who} by its certificate"
    if NOT_SIGNED in details:
        return (
            f"{target} shows a certificate that this client's authority ({trust.ca_file}) "
            "has not signed, or that has expired"
        )
    if "WRONG_VERSION_NUMBER" in details:
        return f"{target} does not speak TLS"
    lower = details.lower()
    if not any(word.lower() in lower for word in (ALERTS if answered else (*ALERTS, *HUNG_UP))):
        return None
    if trust.files is None:
        return (
            f"{target} did not take this connection: it asks for a certificate, and this "
            "client has a token only (a daemon's port for tokens is another one)"
        )
    return (
        f"{target} did not take this client's certificate ({trust.files.certificate}): of "
        "another authority, or expired (dlsched admin ca show)"
    )
