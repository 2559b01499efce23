"""Measured speeds of trainings, in steps/s, by kind of training and by GPUs.

A kind is a model with a batch size. A job names both when it is submitted; a job that names no
model is known by its script or command with all arguments, so that speeds hold for the next job
that is started in the same way. What a running job reports of its steps gives its speed.

The table lives in the main thread and follows what is committed, so nothing in it can be lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from dlsched.db.records import JobBody
from dlsched.db.speeds import MEASURED, SpeedKey, SpeedRow, SpeedsForgotten, SpeedsSet
from dlsched.protocol.messages import RunId

Kind = tuple[str, int]  # model, batch size or 0

NEWEST = 0.5  # the part of what was just measured in what is believed from then on
WORTH_A_ROW = 0.01  # relative change that is stored
WORTH_A_PLAN = 0.1  # relative change for which plans are made anew
MOST = 50_000  # rows; of more, the oldest measured ones are forgotten
_DIGITS = 12  # of a digest


def kind_of(body: JobBody) -> Kind:
    """The kind of a job's training.

    Its model, if it names one. Else its script or command with all arguments: what differs in
    them (a model, a batch size) may change what a step is.
    """
    size = int(body.batch_size or 0)
    if body.model:
        return body.model, size
    return _kind_of_program(body.program, size)


@lru_cache(1024)
def _kind_of_program(program: str, size: int) -> Kind:
    """One object for the many jobs of a program."""
    word, mark, digest = program.rpartition("#")
    return f"{word}{mark}{digest[:_DIGITS]}", size


@dataclass(slots=True)
class _Window:
    """The start of a measurement: when, on which GPUs, with which partner, and after which step."""

    key: SpeedKey
    step: int
    at_s: float  # of its execution
    is_warm: bool = False


class SpeedTable:
    """Speeds by kind and GPUs.

    Attributes:
        rows: all speeds, by key.
        version: grows with every change.
    """

    def __init__(self) -> None:
        self.rows: dict[SpeedKey, SpeedRow] = {}
        self.version = 0
        self._windows: dict[RunId, _Window] = {}
        self._made: tuple[int, dict[str, object], dict[Kind, int]] | None = None

    # -- following the database --------------------------------------------------------------------

    def load(self, rows: Iterable[SpeedRow]) -> None:
        """Begin anew from what the database knows."""
        self.rows = {row.key: row for row in rows}
        self._windows.clear()
        self.version += 1

    def take(self, record: object) -> bool:
        """Follow a committed record; returns whether it was one of speeds."""
        match record:
            case SpeedsSet(rows=rows):
                self.rows.update((row.key, row) for row in rows)
            case SpeedsForgotten(keys=keys):
                for key in keys:
                    self.rows.pop(key, None)
            case _:
                return False
        self.version += 1
        return True

    # -- measuring ---------------------------------------------------------------------------------

    def rate_of(
        self, run: RunId, key: SpeedKey | None, step: int, executed_s: float, least_s: float
    ) -> float | None:
        """Take in how far a run is; returns its rate in steps/s when enough time has passed.

        The first measurement of a run is warming up and does not count; nor does one during which
        another job came to its GPUs or left them.

        Args:
            run: the run.
            key: what its speed is stored under; None where that is not known.
            step: steps done, including those before a restart.
            executed_s: seconds that it has executed, without suspensions.
            least_s: the shortest time that a rate is measured over, in seconds.
        """
        if key is None:
            return None
        window = self._windows.get(run)
        if window is None or step < window.step:
            while len(self._windows) >= MOST:
                self._windows.pop(next(iter(self._windows)))
            self._windows[run] = _Window(key, step, executed_s)
            return None
        if key != window.key:
            self._windows[run] = _Window(key, step, executed_s, is_warm=window.is_warm)
            return None
        passed = executed_s - window.at_s
        if passed < least_s or step == window.step:
            return None
        rate = (step - window.step) / passed
        self._windows[run] = _Window(key, step, executed_s, is_warm=True)
        return rate if window.is_warm else None

    def measured(
        self, key: SpeedKey, rate: float, at: float
    ) -> tuple[SpeedsSet | SpeedsForgotten, ...]:
        """The records to store after a measurement; none where it only confirms what is known.

        The speed believed is half the measured one and half the one believed before.
        """
        known = self.rows.get(key)
        if known is None:
            row = SpeedRow(key=key, steps_per_s=rate, measurements=1, at=at, changed_at=at)
            return (*self._room(), SpeedsSet(rows=(row,)))
        believed = NEWEST * rate + (1 - NEWEST) * known.steps_per_s
        change = abs(believed - known.steps_per_s) / max(known.steps_per_s, 1e-12)
        if change < WORTH_A_ROW and known.measurements:
            return ()
        row = replace(
            known,
            steps_per_s=believed,
            measurements=known.measurements + 1,
            source=MEASURED,
            at=at,
            changed_at=at if change >= WORTH_A_PLAN else known.changed_at,
        )
        return (SpeedsSet(rows=(row,)),)

    def _room(self) -> tuple[SpeedsForgotten, ...]:
        over = len(self.rows) + 1 - MOST
        if over <= 0:
            return ()
        oldest = sorted(
            (row for row in self.rows.values() if row.source == MEASURED), key=lambda row: row.at
        )
        return (SpeedsForgotten(keys=tuple(row.key for row in oldest[:over])),)

    def matching(self, model: str, batch_size: int | None, gpu_type: str) -> list[SpeedRow]:
        """Rows of a model, batch size and GPU type, by key; an empty value or None matches all."""
        found = [
            row
            for key, row in self.rows.items()
            if model in ("", key.model)
            and batch_size in (None, key.batch_size)
            and gpu_type in ("", key.gpu_type)
        ]
        return sorted(found, key=lambda row: row.key)

    # -- for rounds --------------------------------------------------------------------------------

    def columns(self, kinds: Mapping[int, Kind], row_of: Mapping[int, int]) -> dict[str, object]:
        """All speeds as columns, and the kind of each job's row; empty when none is known."""
        if not self.rows:
            return {}
        if self._made is None or self._made[0] != self.version:
            self._made = (self.version, *self._columns())
        _, columns, code_of = self._made
        count = max(row_of.values(), default=-1) + 1
        kind = np.full(count, -1, np.int64)
        for job, each in kinds.items():
            if job in row_of:
                kind[row_of[job]] = code_of.get(each, -1)
        return {**columns, "kind": kind}

    def _columns(self) -> tuple[dict[str, Any], dict[Kind, int]]:
        rows = sorted(self.rows.values(), key=lambda row: row.key)
        code_of: dict[Kind, int] = {}
        for key in (row.key for row in rows):
            code_of.setdefault((key.model, key.batch_size), len(code_of))
            if key.partner:
                code_of.setdefault((key.partner, key.partner_batch_size), len(code_of))
        types = tuple(sorted({row.key.gpu_type for row in rows}))
        partner = [
            code_of[row.key.partner, row.key.partner_batch_size] if row.key.partner else -1
            for row in rows
        ]
        columns = {
            "types": types,
            "of": np.array([code_of[row.key[:2]] for row in rows], np.int64),
            "type": np.array([types.index(row.key.gpu_type) for row in rows], np.int64),
            "gpus": np.array([row.key.gpus for row in rows], np.int64),
            "partner": np.array(partner, np.int64),
            "rate": np.array([row.steps_per_s for row in rows]),
            "changed_at": np.array([row.changed_at for row in rows]),
        }
        return columns, code_of
