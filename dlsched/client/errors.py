"""What can come back instead of an answer, each with the one line that the user reads."""

from __future__ import annotations

from dlsched.core.errors import DlschedError, NotAllowed, NotTrusted, Unavailable

__all__ = ["Lost", "NotAllowed", "NotFound", "NotTrusted", "Refused", "Unavailable"]


class Refused(DlschedError):
    """The daemon understood, and will not."""


class NotFound(Refused):
    """No such job, array or node."""


class Lost(Unavailable):
    """The connection went while an answer was under way; the request may have been done."""
