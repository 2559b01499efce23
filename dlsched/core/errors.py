"""The small tree of errors that reach a user, each mapped once to an exit code.

Exit code 2 means the client could tell that the input was wrong, 1 that the thing asked for was
refused or failed. Every message is one line that names what is wrong, where, and what would be
right.
"""

from __future__ import annotations

from collections.abc import Iterable


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
    """The caller's identity could not be established: certificates, tokens, sockets."""


class NotAllowed(DlschedError):
    """The caller is known, and may not do this."""


class Unavailable(DlschedError):
    """There is no answer now; the same may work later."""


def not_known(subject: str, name: str, known: Iterable[str]) -> BadInput:
    """Return the refusal of a name: those that are known, and the nearest of them.

    `subject` says what the name is of, as in `policy` or `--stage:`; it may be empty.
    """
    from difflib import get_close_matches  # noqa: PLC0415  # only errors need it

    known = list(dict.fromkeys(known))
    near = get_close_matches(name, known, 1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    what = f"{subject} {shorten(name)!r}".strip()
    return BadInput(f"{what} is not known; known: {', '.join(known) or 'none'}{meant}")


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: `1 job`, `2 jobs`, `1,000 jobs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def shorten(text: str) -> str:
    """A text as an error quotes it: at most 60 characters."""
    return text if len(text) <= 60 else text[:57] + "..."
