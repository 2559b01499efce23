"""Log lines of the daemon and the agents: to stderr, and not the same line again and again.

A full disk or a database that is away fails every second; their log must not fill what is left.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass

from dlsched.system.clock import boottime

PERIOD_S = 60.0
MOST_LINES = 1000  # that are remembered


def log_to_stderr(level: int | str, form: str) -> None:
    """Log to stderr in a format of `logging`, for the service manager's journal."""
    logging.basicConfig(level=level, stream=sys.stderr, format=form)
    for handler in logging.getLogger().handlers:
        handler.addFilter(RepeatedLines())


@dataclass(slots=True)
class _Shown:
    at: float
    left_out: int = 0


class RepeatedLines(logging.Filter):
    """Lets an error of one text through once a minute.

    When it is shown again, it says how often it was left out. Warnings, which tell of separate
    events, and lines with a traceback are always shown.
    """

    def __init__(self, clock: Callable[[], float] = boottime) -> None:
        """Remember no line yet; `clock` gives seconds."""
        super().__init__()
        self._clock = clock
        self._shown: dict[tuple[str, str], _Shown] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is shown."""
        if record.levelno < logging.ERROR or record.exc_info:
            return True
        text, now = record.getMessage(), self._clock()
        known = self._shown.get((record.name, text))
        if known is not None and now - known.at < PERIOD_S:
            known.left_out += 1
            return False
        if known is not None and known.left_out:
            record.msg, record.args = f"{text} repeated={known.left_out}", ()
        if len(self._shown) >= MOST_LINES:
            recent = {key: line for key, line in self._shown.items() if now - line.at < PERIOD_S}
            self._shown = recent if len(recent) < MOST_LINES else {}
        self._shown[record.name, text] = _Shown(now)
        return True
