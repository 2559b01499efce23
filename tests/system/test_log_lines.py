"""Lines of the log that repeat."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dlsched.system.log_lines import FORMS, MOST_LINES, PERIOD_S, LogForm, RepeatedLines


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


SPEAKS = """
import logging, os, queue, sys
from logging.handlers import QueueHandler
from dlsched.system.log_lines import log_to_stderr, take_stderr
log_to_stderr("INFO", sys.argv[1])
take_stderr()
log = logging.getLogger("dlsched.x")
log.info("event=round number=%s share=%.2f why=%r", 7, 0.123, 'it says "no"')
log.info("launcher name=%s can=%s", "plain", ["a b"])
log.info("the disk %s is full", "sda")
log.info("event=bare why=%s", "")
logged = queue.Queue()
for name in ("grpc", "stderr"):
    logging.getLogger(name).addHandler(QueueHandler(logged))
os.write(2, b"I1130 07:31:50.866652   26675 transport.cc:1403] Got goaway [2] err=X\\n")
os.write(2, b"of a library\\n")
logged.get(timeout=60), logged.get(timeout=60)
try:
    1 / 0
except ZeroDivisionError:
    log.exception("event=defect")
"""
LOGFMT = re.compile(r'([\w.-]+)=("(?:[^"\\]|\\.)*"|[^\s"=\\]+)(?: |$)')


def parsed(line: str, form: LogForm) -> dict[str, Any]:
    """The keys and values of a line; a line that is not wholly of its form fails."""
    if form == "json":
        found: dict[str, Any] = json.loads(line)
        return found
    assert LOGFMT.sub("", line) == "", line
    return {k: json.loads(v) if v[0] == '"' else v for k, v in LOGFMT.findall(line)}


@pytest.mark.parametrize("form", FORMS)
def test_every_line_has_one_form_also_those_of_libraries(form: LogForm) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPEAKS, form], capture_output=True, text=True, check=True
    )
    found = [parsed(line, form) for line in done.stderr.splitlines()]
    *lines, defect = [
        {k: str(v) for k, v in line.items() if k not in ("time", "level")} for line in found
    ]
    assert lines == [
        {
            "logger": "dlsched.x",
            "event": "round",
            "number": "7",
            "share": "0.12",
            "why": 'it says "no"',
        },
        {
            "logger": "dlsched.x",
            "event": "launcher",
            "name": "plain",
            "can": "['a b']",
        },
        {"logger": "dlsched.x", "msg": "the disk sda is full"},
        {"logger": "dlsched.x", "event": "bare", "why": ""},
        {"logger": "grpc", "at": "transport.cc:1403", "msg": "Got goaway [2] err=X"},
        {"logger": "stderr", "msg": "of a library"},
    ]
    assert defect["event"] == "defect"
    assert defect["traceback"].endswith("\nZeroDivisionError: division by zero")
    assert [line["level"] for line in found[3:]] == ["info", "info", "warning", "error"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found[0]["time"])


@pytest.mark.parametrize("form", FORMS)
def test_a_daemons_log_with_that_of_grpc_in_it_is_of_one_form(
    tmp_path: Path, form: LogForm
) -> None:
    file = tmp_path / "dlsched.toml"
    file.write_text(
        f'[daemon]\ndatabase = "sqlite:///{tmp_path}/d.db"\nlog_format = "{form}"\nmetrics = ""\n'
        f'listen = ["unix:{tmp_path}/s"]\n'
    )
    words = [sys.executable, "-m", "dlsched.daemon", "--config", str(file), "--insecure-loopback"]
    loud = {**os.environ, "GRPC_VERBOSITY": "DEBUG"}
    seen: set[str] = set()
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=loud) as daemon:
        assert daemon.stderr is not None
        for line in daemon.stderr:
            found = parsed(line.rstrip("\n"), form)
            seen |= {found["logger"], found.get("event", "")}
            if {"grpc", "term"} <= seen:
                daemon.terminate()
    assert daemon.returncode == 0
