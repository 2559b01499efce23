"""The Philly job log (`cluster_job_log`): one JSON array of jobs, each with its attempts.

A job's gang is that of its first attempt. Its duration is last end minus first start, the waits
between attempts included; `service_time` is the sum over the attempts, and `gpu_seconds` the same
weighted with each attempt's GPUs. The published machine list doesn't agree with this log, so no
gang is checked against it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.errors import BadInput
from simulate.traces.clock import parse_wall_times
from simulate.traces.formats.philly_tables import ATTEMPTS, PHILLY_ZONE, philly_utc_offset
from simulate.traces.ledger import Ledger
from simulate.traces.normal import Rows, Source, normal_trace
from simulate.traces.options import ReadOptions
from simulate.traces.status import normal_statuses
from simulate.traces.textfile import first_line, open_text
from simulate.traces.trace import FloatColumn, Trace

NO_ATTEMPT = "no attempt: size unknown"
NO_START = "start of the first attempt lost"
NO_END = "no end of the last attempt: still running at the snapshot, or lost"
CLOCK_CHANGE = (
    "times are US Pacific wall time: jobs that ran through the night of 2017-11-05, "
    "when the clock was set back, appear one hour too short"
)


LOG = Source(source="philly", is_log=True, wall_clock=True, utc_offset=philly_utc_offset)


@dataclass(slots=True)
class _Log:
    """The jobs of the log and all their attempts; `job` has the row of each attempt's job."""

    line: list[int] = field(default_factory=list)
    job_id: list[str] = field(default_factory=list)
    user: list[str] = field(default_factory=list)
    vc: list[str] = field(default_factory=list)
    status: list[str] = field(default_factory=list)
    submitted: list[str] = field(default_factory=list)
    num_gpus: list[float] = field(default_factory=list)
    num_nodes: list[float] = field(default_factory=list)
    job: list[int] = field(default_factory=list)
    start: list[str] = field(default_factory=list)
    end: list[str] = field(default_factory=list)
    gpus: list[float] = field(default_factory=list)

    def add(self, line: int, record: dict[str, Any]) -> None:
        """Take one job; raises KeyError, TypeError or AttributeError if it isn't one."""
        attempts = [
            (
                _text(attempt.get("start_time")),
                _text(attempt.get("end_time")),
                [len(machine["gpus"]) for machine in attempt.get("detail") or ()],
            )
            for attempt in record["attempts"] or ()
        ]
        job_id, status, submitted = record["jobid"], record["status"], record["submitted_time"]
        gang = attempts[0][2] if attempts else []
        row = len(self.line)
        self.line.append(line)
        self.job_id.append(str(job_id))
        self.user.append(_text(record.get("user")))
        self.vc.append(_text(record.get("vc")))
        self.status.append(_text(status))
        self.submitted.append(_text(submitted))
        self.num_gpus.append(float(sum(gang)) if gang else np.nan)
        self.num_nodes.append(float(len(gang)) if gang else np.nan)
        for start, end, gpus in attempts:
            self.job.append(row)
            self.start.append(start)
            self.end.append(end)
            self.gpus.append(float(sum(gpus)))


def read(path: Path, options: ReadOptions) -> Trace:
    """Read the job log; also the attempts table that some projects made of it.

    Raises:
        BadInput: see `normal_trace`; text that isn't JSON (also when bad rows are skipped: nothing
            after it can be trusted), an object that isn't a job, a malformed time.
    """
    if not first_line(path).lstrip().startswith("["):
        return ATTEMPTS.read(path, options)
    ledger = Ledger(path, skip_bad_rows=options.skip_bad_rows)
    log = _Log()
    for line, record in _objects(path):
        try:
            log.add(line, record)
        except (KeyError, TypeError, AttributeError):
            ledger.refuse(
                line,
                "not a job",
                "not a job; it needs status, jobid, submitted_time and attempts "
                "with start_time, end_time and detail",
            )
    return normal_trace(_rows(log, ledger), ledger, options, LOG)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the array's objects one by one with the line each begins in."""
    with open_text(path) as file:
        text = file.read()
    decoder = json.JSONDecoder()
    line, counted = 1, 0
    at = _skip_blank(text, text.index("[") + 1)
    try:
        while not text.startswith("]", at):
            line += text.count("\n", counted, at)
            counted = at
            record, at = decoder.raw_decode(text, at)
            yield line, record
            at = _skip_blank(text, at)
            if text.startswith(",", at):
                at = _skip_blank(text, at + 1)
            elif not text.startswith("]", at):
                raise json.JSONDecodeError("a comma or ] is missing", text, at)
    except json.JSONDecodeError as error:
        raise BadInput(f"{path}:{error.lineno}: not JSON ({error.msg})") from None


def _skip_blank(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at


def _rows(log: _Log, ledger: Ledger) -> Rows:
    count = len(log.line)
    lines = np.array(log.line, dtype=np.int64)
    usable = np.ones(count, dtype=np.bool_)

    def refuse(row: int, name: str, value: str, right: str) -> None:
        if usable[row]:
            ledger.refuse(log.line[row], f"{name} is malformed", f"{name} is {value!r}, {right}")
            usable[row] = False

    def times(name: str, cells: list[str], owner: list[int]) -> FloatColumn:
        parsed = parse_wall_times(cells)
        for at in parsed.malformed:
            refuse(owner[at], name, cells[at], "not a time like 2017-10-07 01:11:39")
        return parsed.seconds

    submit = times("submitted_time", log.submitted, list(range(count)))
    start = times("start_time", log.start, log.job)
    end = times("end_time", log.end, log.job)
    status, unknown = normal_statuses(log.status)
    for row in unknown:
        refuse(row, "status", log.status[row], "neither Pass, Killed nor Failed")

    job = np.array(log.job, dtype=np.int64)
    attempts = np.bincount(job, minlength=count).astype(np.float64)
    last = np.cumsum(attempts).astype(np.int64) - 1  # in the flat columns, if there is one
    some = attempts > 0
    first_start, last_end = np.full(count, np.nan), np.full(count, np.nan)
    first_start[some] = start[last[some] - attempts[some].astype(np.int64) + 1]
    last_end[some] = end[last[some]]
    ran = end - start
    rows = Rows(
        job_id=np.array(log.job_id, dtype=object),
        submit_time=submit,
        num_gpus=np.array(log.num_gpus),
        duration=last_end - first_start,
        user=np.array(log.user, dtype=object),
        vc=np.array(log.vc, dtype=object),
        status=status,
        lines=lines,
        usable=usable,
        columns={
            "start_time": first_start,
            "end_time": last_end,
            "num_nodes": np.array(log.num_nodes),
            "attempts": attempts,
            "attempt_durations": _attempt_durations(job, ran, count),
            "service_time": np.bincount(job, weights=ran, minlength=count),
            "gpu_seconds": np.bincount(job, weights=ran * np.array(log.gpus), minlength=count),
            "note": _notes(attempts, first_start, last_end),
        },
        zone=PHILLY_ZONE,
    )
    if _spans_clock_change(rows):
        rows.notes = (CLOCK_CHANGE,)
    return rows


def _attempt_durations(job: NDArray[np.int64], ran: FloatColumn, count: int) -> NDArray[np.object_]:
    """Each job's attempts [s] as "74+193182", "?" where a start or an end is lost."""
    texts = [""] * count
    for row, seconds in zip(job.tolist(), ran.tolist(), strict=True):
        one = "?" if math.isnan(seconds) else f"{seconds:.0f}"
        texts[row] = f"{texts[row]}+{one}" if texts[row] else one
    return np.array(texts, dtype=object)


def _notes(attempts: FloatColumn, start: FloatColumn, end: FloatColumn) -> NDArray[np.object_]:
    notes = np.full(len(attempts), "", dtype=object)
    notes[np.isnan(end)] = NO_END
    notes[np.isnan(start)] = NO_START
    notes[attempts == 0] = NO_ATTEMPT
    return notes


def _spans_clock_change(rows: Rows) -> bool:
    begin, end = rows.submit_time, rows.columns["end_time"]
    known = ~np.isnan(begin) & ~np.isnan(end)
    return any(
        philly_utc_offset(first) != philly_utc_offset(last)
        for first, last in zip(begin[known], end[known], strict=True)
    )
