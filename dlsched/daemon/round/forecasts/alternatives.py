"""Questions of the form "what if": alternatives of one snapshot, and what came of each.

The snapshot has jobs that are only supposed, beside the real ones. An alternative takes one of them
in, or gives a real job what a supposed one asks for; the other supposed jobs are not there.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.parts import part_of
from dlsched.core.units import RUNNING, WAITING, Status
from dlsched.daemon.round.codec import decode, encode
from dlsched.daemon.round.parts import RoundSettings
from dlsched.daemon.round.snapshot import Held, LiveSnapshot
from dlsched.jobs.fields import COLUMNS

T = TypeVar("T")
# what a job asks for, as columns of a snapshot
_ASKED = frozenset({*COLUMNS, "gang", "max_gpus", "gpu_share", "pool"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One alternative.

    Attributes:
        job: the job of interest; 0: none.
        like: a supposed job whose request the job has instead of its own; 0: its own.
        gang: GPUs for which the job's duration was said; 0: those that it asks for.
        settings: the policy that decides; None: that of the snapshot, with its state.
    """

    job: int = 0
    like: int = 0
    gang: int = 0
    settings: RoundSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Question:
    """What is asked of a snapshot.

    Attributes:
        snapshot: the present, with the supposed jobs.
        supposed: the jobs that are not real.
        alternatives: in the order of the answers; all are compared with the first.
        lists_jobs: tell what becomes of each job.
        schedule: tell when each job has which GPUs.
        patience_s: what the answer may cost.
    """

    snapshot: LiveSnapshot
    supposed: tuple[int, ...] = ()
    alternatives: tuple[Alternative, ...] = (Alternative(),)
    lists_jobs: bool = False
    schedule: bool = False
    patience_s: float = math.inf

    def to_bytes(self) -> bytes:
        """The question as bytes."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        plain["snapshot"] = self.snapshot.to_bytes()
        plain["alternatives"] = [asdict(each) for each in self.alternatives]
        return encode(plain)

    @classmethod
    def from_bytes(cls, data: bytes) -> Question:
        """The question of `to_bytes`."""
        plain: dict[str, Any] = decode(data)
        plain["snapshot"] = LiveSnapshot.from_bytes(plain["snapshot"])
        found = []
        for each in plain["alternatives"]:
            settings = each["settings"]
            each["settings"] = None if settings is None else RoundSettings(**settings)
            found.append(Alternative(**each))
        return cls(**{**plain, "alternatives": tuple(found), "supposed": tuple(plain["supposed"])})

    def present(self, alternative: Alternative) -> LiveSnapshot:
        """The snapshot as an alternative has it."""
        found = _without(self.snapshot, set(self.supposed) - {alternative.job})
        if alternative.like:
            found = _as_if(found, alternative.job, alternative.like)
        settings = alternative.settings
        return found if settings is None else found.under(settings)


def row_of(snapshot: LiveSnapshot, job: int) -> int:
    """The row of a job; −1: it has none."""
    found = np.flatnonzero(snapshot.table.job == job)
    return int(found[0]) if found.size else -1


def _without(snapshot: LiveSnapshot, absent: set[int]) -> LiveSnapshot:
    """The snapshot in which some jobs count as cancelled."""
    if not absent:
        return snapshot
    table = snapshot.table.copy()
    table.status[np.isin(table.job, list(absent))] = Status.CANCELLED
    return replace(snapshot, table=table)


def _as_if(snapshot: LiveSnapshot, job: int, like: int) -> LiveSnapshot:
    """The snapshot in which a job asks for what another one does.

    If it runs, it has given its GPUs back and waits, with the work that it has done.
    """
    row, other = row_of(snapshot, job), row_of(snapshot, like)
    table = snapshot.table.copy()
    for name in _ASKED & table.kinds.keys():
        column = getattr(table, name)
        column[row] = column[other]
    _ask_like(other, table.shapes, row)
    _ask_like(other, table.gpus_by_type, row)
    table.whole_nodes.discard(row)
    if other in table.whole_nodes:
        table.whole_nodes.add(row)
    if table.status[row] == RUNNING:
        held_s = max(snapshot.now - table.since.item(row), 0.0)
        table.held_s[row] += held_s
        gpus = table.gpus_now[row] * part_of(table.gpu_share.item(row))
        table.attained[row] += held_s * gpus
        table.executed[row] += max(snapshot.now - table.progress_from.item(row), 0.0)
        table.since[row] = snapshot.now
        table.gpus_now[row] = 0
        table.claimed[row] = False
        table.status[row] = WAITING
    rows = np.arange(len(table))
    table.gpu_limits = table.gpu_limits.take(np.where(rows == row, other, rows))
    table.homes.pop(row, None)
    stays = snapshot.held.row != row
    held = Held(*(column[stays] for column in snapshot.held.plain()))
    return replace(snapshot, table=table, held=held)


def _ask_like(other: int, asked: dict[int, T], row: int) -> None:
    """Have a row ask for what another one does, or for nothing if that one does not."""
    asked.pop(row, None)
    if other in asked:
        asked[row] = asked[other]


def _nothing() -> Floats:
    return np.zeros(0)


def _none() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Outcome:
    """What came of an alternative; times are seconds of the policy's clock, NaN for never.

    Attributes:
        starts: of the job of interest, in each scenario that was run.
        ends: likewise.
        gpu_s: GPU time that it takes from now on; NaN without such a job.
        basis: what the durations are based on.
        others_later_s: how much later the other jobs end than in the first alternative, on
            average; NaN: none ends in both.
        reward: what the job of interest is expected to earn; NaN: nothing is said of that.
        others_reward: how much more the other jobs earn than in the first alternative; NaN: none
            has a reward.
        latest_submit: when the job of interest, which is not submitted, can be submitted at the
            latest and be as sure to keep its deadline; NaN: it is not sure, or was submitted.
        was_cut: its time was over before all jobs had ended.
        mean_jct_s, p95_jct_s: of the jobs that end.
        all_done_s: until the last of them ends.
        never: jobs that do not end.
        total: jobs in all.
        must_move: jobs ahead without which the job of interest would keep its deadline; none where
            it keeps it, or where that does not help.
        job, gpus, waits, start, start_p10, start_p90, end, end_p10, end_p90: of each job, if they
            were asked for; the first in the order of their starts.
        block_job, block_node, block_gpus, block_start, block_end: when a job has GPUs of a node.
    """

    starts: Floats
    ends: Floats
    gpu_s: float = math.nan
    basis: str = ""
    others_later_s: float = math.nan
    reward: float = math.nan
    others_reward: float = math.nan
    latest_submit: float = math.nan
    was_cut: bool = False
    mean_jct_s: float = math.nan
    p95_jct_s: float = math.nan
    all_done_s: float = math.nan
    never: int = 0
    total: int = 0
    must_move: Ints = field(default_factory=_none)
    job: Ints = field(default_factory=_none)
    gpus: Ints = field(default_factory=_none)
    waits: Ints = field(default_factory=_none)
    start: Floats = field(default_factory=_nothing)
    start_p10: Floats = field(default_factory=_nothing)
    start_p90: Floats = field(default_factory=_nothing)
    end: Floats = field(default_factory=_nothing)
    end_p10: Floats = field(default_factory=_nothing)
    end_p90: Floats = field(default_factory=_nothing)
    block_job: Ints = field(default_factory=_none)
    block_node: Ints = field(default_factory=_none)
    block_gpus: Ints = field(default_factory=_none)
    block_start: Floats = field(default_factory=_nothing)
    block_end: Floats = field(default_factory=_nothing)
