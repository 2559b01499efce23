"""Numbers and groups of users, as this machine knows them."""

from __future__ import annotations

import grp
import pwd


def uid_text(user: str | None) -> str:
    """A user's number; the name where this machine does not know it."""
    try:
        return str(pwd.getpwnam(user or "").pw_uid)
    except KeyError:
        return user or ""


def gid_text(user: str | None) -> str:
    """The number of a user's group; empty where this machine does not know the user."""
    try:
        return str(pwd.getpwnam(user or "").pw_gid)
    except KeyError:
        return ""


def group_text(user: str | None) -> str:
    """The name of a user's group, or its number where it has none."""
    number = gid_text(user)
    try:
        return grp.getgrgid(int(number)).gr_name if number else ""
    except KeyError:
        return number


def with_number(user: str | None) -> str:
    """As scontrol has it: `alice(1002)`; the name alone where this machine does not know it."""
    number = uid_text(user)
    return f"{user}({number})" if number != (user or "") else number


def group_with_number(user: str | None) -> str:
    """As scontrol has it: `users(100)`; `(null)` where this machine does not know the user."""
    number = gid_text(user)
    return f"{group_text(user)}({number})" if number else "(null)"
