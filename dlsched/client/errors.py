"""The errors of a request, each with the one line that the user reads."""

from __future__ import annotations

from dlsched.core.errors import DlschedError, NotAllowed, NotTrusted, Unavailable

__all__ = [
    "ConnectionLost",
    "NotAllowed",
    "NotFound",
    "NotTrusted",
    "RequestRefused",
    "Unavailable",
    "refusal",
]


class RequestRefused(DlschedError):
    """The daemon understood the request and refused it."""


class NotFound(RequestRefused):
    """There is no such job, array or node."""


class ConnectionLost(Unavailable):
    """The connection was lost before the answer came; the daemon may have done the request."""


_KINDS: dict[str, type[DlschedError]] = {
    "NOT_FOUND": NotFound,
    "PERMISSION_DENIED": NotAllowed,
    "UNAUTHENTICATED": NotTrusted,
    "UNAVAILABLE": Unavailable,
}


def refusal(code: str, text: str, end: str) -> DlschedError:
    """Return the error for the user.

    Args:
        code: the name of the status in the answer.
        text: the daemon's own message.
        end: the daemon's address.
    """
    if code == "CANCELLED":  # the server stops
        return ConnectionLost(f"lost the connection to the daemon at {end}")
    if code == "DEADLINE_EXCEEDED":
        return Unavailable(f"no answer from the daemon at {end}")
    if code == "UNIMPLEMENTED":
        return RequestRefused(f"the daemon at {end} does not know this request; is it older?")
    if code in {"INTERNAL", "UNKNOWN"}:
        return RequestRefused(f"the daemon at {end} failed: {text}")
    return _KINDS.get(code, RequestRefused)(text)
