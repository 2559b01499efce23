"""Signals by name or number, and `--signal USR1@60`: a warning ahead of the time limit.

`P:` is dlsched's own: the signal is sent at a preemption too, in place of TERM.
"""

from __future__ import annotations

import re
import signal

from dlsched.client.submission.texts import whole_number
from dlsched.core.errors import BadInput, shorten
from dlsched.record import Record

_FORM = re.compile(r"(?:([BbPpRr]{1,3}):)?([A-Za-z0-9+-]+)(?:@(\d{1,6}))?", re.ASCII)
_DEFAULT_S = 60


class WarningSignal(Record):
    """A signal, how long before the time limit it comes, and the prefixes `B:`, `P:` and `R:`."""

    number: int
    before_s: float
    script_only: bool = False
    at_preemption: bool = False
    overlaps_reservations: bool = False


def signal_number(what: str, text: str) -> int:
    """Read `USR1`, `SIGUSR1` or `10`.

    Raises:
        BadInput: there is no such signal.
    """
    word = text.strip().upper()
    if word.isascii() and word.isdigit():
        return whole_number(what, word, least=1, most=int(signal.SIGRTMAX))
    name = word if word.startswith("SIG") else f"SIG{word}"
    found = signal.Signals.__members__.get(name)
    if found is None:
        raise BadInput(f"{what}: {shorten(text)!r} is not a signal")
    return int(found)


def parse_warning(what: str, text: str) -> WarningSignal:
    """Read `[B|P|R:]SIGNAL[@SECONDS]`, with any of the prefixes; 60 s when not said.

    Raises:
        BadInput: malformed.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise BadInput(f"{what}: {shorten(text)!r} is not a warning (USR1@60, B:USR1@60)")
    prefix = (match[1] or "").upper()
    return WarningSignal(
        number=signal_number(what, match[2]),
        before_s=float(match[3] or _DEFAULT_S),
        script_only="B" in prefix,
        at_preemption="P" in prefix,
        overlaps_reservations="R" in prefix,
    )
