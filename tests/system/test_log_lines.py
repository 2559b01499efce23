"""Lines of the log that repeat."""

from __future__ import annotations

import logging
from typing import Any

from dlsched.system.log_lines import MOST_LINES, PERIOD_S, RepeatedLines


class Log:
    """What a filter lets through, at times that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.filter = RepeatedLines(lambda: self.now)

    def line(
        self, text: str, *args: Any, level: int = logging.ERROR, exc: Any = None
    ) -> str | None:
        record = logging.LogRecord("dlsched.x", level, "x.py", 1, text, args, exc)
        return record.getMessage() if self.filter.filter(record) else None


def test_a_line_comes_once_a_minute_and_says_how_often_it_was_left_out() -> None:
    log = Log()
    assert log.line("cannot-store why=%s", "disk full") == "cannot-store why=disk full"
    for _ in range(7):
        log.now += 1.0
        assert log.line("cannot-store why=%s", "disk full") is None
    assert log.line("cannot-store why=%s", "read-only") == "cannot-store why=read-only"
    log.now = PERIOD_S
    assert log.line("cannot-store why=%s", "disk full") == "cannot-store why=disk full repeated=7"
    assert log.line("cannot-store why=%s", "disk full") is None
    log.now = 3 * PERIOD_S
    assert log.line("cannot-store why=%s", "disk full") == "cannot-store why=disk full repeated=1"


def test_warnings_and_tracebacks_are_always_shown() -> None:
    log = Log()
    for _ in range(3):
        assert log.line("job=1 began", level=logging.WARNING)
        assert log.line("defect", exc=(ValueError, ValueError("x"), None))


def test_what_is_remembered_is_bounded() -> None:
    log = Log()
    for number in range(3 * MOST_LINES):
        assert log.line("job=%s", number)
    assert len(log.filter._shown) <= MOST_LINES
