"""Named places at which a test makes the process die, as a power cut would.

`DLSCHED_FAULTPOINT=NAME` or `NAME:N` (at the N-th passage) arms one. Unarmed, a passage is one
comparison with None.
"""

from __future__ import annotations

import os
import signal

__all__ = ["POINTS", "faultpoint"]

POINTS = (
    "after-submit-read",
    "before-commit",
    "after-commit-before-answer",
    "after-round-commit-before-nudges",
    "between-nudges",
    "before-round-decided",
    "after-round-decided",
    "after-sync-read",
    "before-reply",
    "after-register",
)
_ARMED, _, _AT = os.environ.get("DLSCHED_FAULTPOINT", "").partition(":")
_left = int(_AT) if _AT.isdigit() else 1


def faultpoint(name: str) -> None:
    """Die here, at once and without a trace, when this place is armed."""
    global _left  # noqa: PLW0603  # one count a process
    if not _ARMED or name != _ARMED:
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
