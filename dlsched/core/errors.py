"""The small tree of errors that reach a user, each mapped once to an exit code.

Exit code 2 means the client could tell that the input was wrong, 1 that the thing asked for was
refused or failed. Every message is one line that names what is wrong, where, and what would be
right.
"""

from __future__ import annotations

__all__ = [
    "BadInput",
    "DlschedError",
    "InvariantBroken",
    "NotAllowed",
    "NotTrusted",
    "PolicyFailed",
    "Unavailable",
]


class DlschedError(Exception):
    """Any error whose text is meant for the user; `exit_code` is the process's."""

    exit_code = 1


class BadInput(DlschedError):
    """The client's own input is wrong (usage, unreadable or malformed files, options)."""

    exit_code = 2


class PolicyFailed(DlschedError):
    """A policy raised, or returned a plan that the verifier refuses."""


class InvariantBroken(DlschedError):
    """The world broke one of its own rules: a defect in dlsched, never in the input."""


class NotTrusted(DlschedError):
    """Who asks could not be established: certificates, tokens, sockets."""


class NotAllowed(DlschedError):
    """Who asks is known, and may not."""


class Unavailable(DlschedError):
    """Nobody answers, or not now; the same may work later."""
