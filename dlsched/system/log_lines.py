"""Log lines of the daemon and the agents: to stderr, in one form that programs read.

Each event is a line of keys and values, logfmt or JSON, also those that gRPC and other libraries
write to stderr by themselves. The same line does not come again and again: a full disk or a
database that is away fails every second, and their log must not fill what is left.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any, Literal

from dlsched.system.clock import boottime

PERIOD_S = 60.0
MOST_LINES = 1000  # that are remembered


LogForm = Literal["logfmt", "json"]
FORMS: tuple[LogForm, ...] = ("logfmt", "json")
_CONVERSION = re.compile(r"%[-#0 +]*[0-9*]*(?:\.[0-9*]+)?([a-zA-Z])")
_PLAIN = re.compile(r"[^\s\"=\\\x00-\x1f\x7f]+")  # a value that logfmt needs no quotes for
_OF_ABSEIL = re.compile(r"([IWEF])\d{4} [\d:.]+ +\d+ (\S+)\] (.*)")  # as gRPC logs
_LEVELS = {"I": logging.INFO, "W": logging.WARNING, "E": logging.ERROR, "F": logging.CRITICAL}
_began_with = [2]
_LONGEST = 8192  # bytes of a line that a library wrote


def log_to_stderr(level: int | str, form: LogForm = "logfmt") -> None:
    """Log to stderr, a line for each event, for the service manager's journal."""
    logging.basicConfig(level=level, stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(LineFormatter(form))
        handler.addFilter(RepeatedLines())


def take_stderr() -> None:
    """From now on log what libraries write to this process's stderr, line by line.

    What ends the process by a signal, such as an error in C code, is written to the old one.
    """
    _began_with[0] = old = os.dup(2)
    kept = os.fdopen(old, "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(kept)
    sys.stderr = kept
    faulthandler.enable(kept)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    lines = os.fdopen(reading, "rb")
    threading.Thread(target=_log_lines, args=(lines,), name="stderr", daemon=True).start()


def own_stderr() -> int:
    """The descriptor of the stderr with which this process began, for one that outlives it."""
    return _began_with[0]


def _log_lines(lines: IO[bytes]) -> None:
    while line := lines.readline(_LONGEST):
        text = line.decode(errors="backslashreplace").rstrip()
        if found := _OF_ABSEIL.fullmatch(text):
            level, where, said = found.groups()
            logging.getLogger("grpc").log(_LEVELS[level], "at=%s msg=%s", where, said)
        elif text:
            logging.getLogger("stderr").warning("msg=%s", text)


class LineFormatter(logging.Formatter):
    """Makes one line of a record: time (UTC), level, logger, and the keys of its message.

    A message is a template of words `key=%s`, of which the first may be the event's bare name. Of
    another one the whole text is the value of `msg`.
    """

    def __init__(self, form: LogForm) -> None:
        super().__init__()
        self._is_json = form == "json"

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        found: dict[str, Any] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **_fields_of(record),
        }
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        if self._is_json:
            return json.dumps(found, default=str)
        return " ".join(f"{key}={_quoted(str(value))}" for key, value in found.items())


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = {}
    given = record.args if isinstance(record.args, tuple) else ()
    values = iter(given)
    try:
        for number, word in enumerate(str(record.msg).split(" ")):
            key, mark, template = word.partition("=")
            if not mark and number == 0 and re.fullmatch(r"[a-z][\w-]*", word):
                found["event"] = word
                continue
            if not (mark and re.fullmatch(r"[a-zA-Z][\w.-]*", key)):
                raise ValueError(word)
            kinds = _CONVERSION.findall(template)
            taken = tuple(next(values) for _ in kinds)
            if template in ("%s", "%r"):
                found[key] = taken[0]
            else:
                found[key] = template % taken if kinds else template
                if len(kinds) == 1 and kinds[0] in "dfg" and template.endswith(kinds[0]):
                    found[key] = float(found[key]) if kinds[0] in "fg" else int(found[key])
    except (ValueError, TypeError, RuntimeError, StopIteration):
        return {"msg": record.getMessage()}
    return found if next(values, found) is found else {"msg": record.getMessage()}


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


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
            given = record.args if isinstance(record.args, tuple) else ()
            record.msg, record.args = f"{record.msg} repeated=%d", (*given, known.left_out)
        if len(self._shown) >= MOST_LINES:
            recent = {key: line for key, line in self._shown.items() if now - line.at < PERIOD_S}
            self._shown = recent if len(recent) < MOST_LINES else {}
        self._shown[record.name, text] = _Shown(now)
        return True
