"""Signals by name or number, and `--signal USR1@60`: a warning ahead of the time limit."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass

from dlsched.client.submission.texts import shorten, whole_number
from dlsched.core.errors import BadInput

__all__ = ["WarningSignal", "parse_warning", "signal_number"]

_FORM = re.compile(r"(?:([BbRr]+):)?([A-Za-z0-9+-]+)(?:@(\d{1,6}))?", re.ASCII)
_DEFAULT_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class WarningSignal:
    """A signal, and how long before the time limit it comes; `batch_only` as Slurm's `B:`."""

    number: int
    before_s: float
    batch_only: bool = False


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
    """Read `[B:]SIGNAL[@SECONDS]`; 60 s when not said.

    Raises:
        BadInput: malformed, or Slurm's `R:`, which is about reservations.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None or "R" in (match[1] or "").upper():
        raise BadInput(f"{what}: {shorten(text)!r} is not a warning (USR1@60)")
    return WarningSignal(
        number=signal_number(what, match[2]),
        before_s=float(match[3] or _DEFAULT_S),
        batch_only=bool(match[1]),
    )
