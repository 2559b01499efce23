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
]


class RequestRefused(DlschedError):
    """The daemon understood the request and refused it."""


class NotFound(RequestRefused):
    """There is no such job, array or node."""


class ConnectionLost(Unavailable):
    """The connection was lost before the answer came; the daemon may have done the request."""
