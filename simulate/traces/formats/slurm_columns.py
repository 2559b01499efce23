"""The fields of `sacct` as columns of numbers, one entry a printed row.

A field that wasn't printed is unknown everywhere. Fields outside their grammar are refused with
their row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from simulate.traces.formats.slurm_fields import (
    count_of,
    gres_gpus,
    limit_minutes_s,
    memory_gb,
    requested_memory,
    span_seconds,
    tres_count,
    tres_gpus,
    tres_memory_gb,
)
from simulate.traces.table import Table
from simulate.traces.trace import FloatColumn, TextColumn

GPU_FIELDS = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
RUN_FIELDS = ("ElapsedRaw", "Elapsed", "End")


class SlurmColumns:
    """What every row says.

    Attributes:
        submit: Unix or naive seconds, by `zone`.
        start: likewise; NaN when not started.
        end: likewise; NaN when not ended.
        zone: see `WallTimes`.
        run_s: seconds between start and end without those suspended; NaN without start or end.
        status: one of the four.
        num_nodes: held or asked for.
        num_cpus: held or asked for.
        num_gpus: of the whole job, held or asked for; 0 when it ran and no field names one.
        gpu_type: "" when not told; several joined by "+".
        memory_gb: held or asked for by the whole job.
        used_memory_gb: the largest resident set of a task.
        time_limit_s: the user's estimate; NaN without one.
        priority: as printed.
    """

    def __init__(self, table: Table) -> None:
        submit = table.times("Submit")
        self.submit, self.zone = submit.seconds, submit.zone
        self.start, self.end = table.times("Start").seconds, table.times("End").seconds
        self.status = table.statuses("State")
        number = partial(_parsed, table)
        self.run_s = _first_known(
            number("ElapsedRaw", count_of), number("Elapsed", span_seconds), self.end - self.start
        )
        self.run_s[np.isnan(self.start) | np.isnan(self.end)] = np.nan
        # A job that holds nothing any more has 0 in some versions: not what it asked for.
        self.num_nodes = _first_known(
            _positive(number("AllocTRES", partial(tres_count, name="node"))),
            *(_positive(number(name, count_of)) for name in ("AllocNodes", "NNodes", "ReqNodes")),
        )
        self.num_cpus = _first_known(
            *(_positive(number(name, count_of)) for name in ("AllocCPUS", "NCPUS", "ReqCPUS"))
        )
        self.num_gpus, self.gpu_type = self._gpus(table)
        self.memory_gb = _first_known(
            number("AllocTRES", tres_memory_gb),
            number("ReqTRES", tres_memory_gb),
            self._requested_memory_gb(table),
        )
        self.used_memory_gb = number("MaxRSS", memory_gb)
        self.time_limit_s = _first_known(
            number("TimelimitRaw", limit_minutes_s), number("Timelimit", span_seconds)
        )
        self.priority = number("Priority", count_of)

    def _gpus(self, table: Table) -> tuple[FloatColumn, TextColumn]:
        """Take the first field that says anything: TRES count the job's GPUs, GRES a node's."""
        total = np.full(len(table), np.nan)
        kind = np.full(len(table), "", dtype=object)
        nodes = _first_known(self.num_nodes, np.ones(len(table)))
        for name in GPU_FIELDS:
            parse = tres_gpus if name.endswith("TRES") else gres_gpus
            count = _parsed(table, name, partial(_only_count, parse))
            first = np.isnan(total) & ~np.isnan(count)
            total[first] = (count if name.endswith("TRES") else count * nodes)[first]
            texts = table.text(name)
            for row in np.flatnonzero(first & table.usable):
                kind[row] = parse(texts[row])[1]
        total[np.isnan(total) & (self.run_s > 0)] = 0
        return total, kind

    def _requested_memory_gb(self, table: Table) -> FloatColumn:
        amount = _parsed(table, "ReqMem", lambda text: requested_memory(text)[0])
        per = np.array([text[-1:] for text in table.text("ReqMem").tolist()], dtype=object)
        times = np.where(per == "c", self.num_cpus, np.where(per == "n", self.num_nodes, 1.0))
        return amount * times


def _only_count(parse: Callable[[str], tuple[float, str]], text: str) -> float:
    return parse(text)[0]


def _parsed(table: Table, name: str, parse: Callable[[str], float]) -> FloatColumn:
    """Parse a column by one of the small grammars, every distinct text once."""
    if name not in table.header:
        return np.full(len(table), np.nan)
    texts = table.text(name).tolist()
    value_of: dict[str, float] = {}
    wrong: dict[str, str] = {}
    for text in set(texts):
        try:
            value_of[text] = parse(text)
        except ValueError as error:
            value_of[text] = math.nan
            wrong[text] = f"{name}: {error}"
    if wrong:
        rows = [row for row, text in enumerate(texts) if text in wrong]
        table.refuse(rows, f"{name} is malformed", lambda row: wrong[texts[row]])
    return np.array([value_of[text] for text in texts])


def _first_known(*columns: FloatColumn) -> FloatColumn:
    """Take each row from the first column that knows it."""
    known = columns[0].copy()
    for column in columns[1:]:
        unknown = np.isnan(known)
        known[unknown] = column[unknown]
    return known


def _positive(column: FloatColumn) -> FloatColumn:
    return np.where(column > 0, column, np.nan)
