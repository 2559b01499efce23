"""What a policy answers with: a ranking, or grants it made itself, and reasons for every "no"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.cluster.calendar import Booking
from dlsched.core.cluster.occupancy import Placement


class HostShare(NamedTuple):
    """What a row has of its nodes for each of its GPUs: processors, and 10^9 bytes of memory.

    NaN: as it asks.
    """

    cpus: float
    memory_gb: float


Misfit = Literal["skip", "stop", "tail-preempt"]
Rebuild = Literal["sticky", "full", "counted"]


@dataclass(frozen=True, slots=True)
class Refused:
    """A "no" with its reason, shown unchanged to the user.

    Attributes:
        reason: one word of the field ("Resources", "Fragmented", "Quota", "Admission", "Lease", …).
        detail: the sentence that says what is missing and what would change it.
    """

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}" if self.detail else self.reason

    @classmethod
    def too_few_free(cls, gang: int, free: int) -> Refused:
        """Return the refusal of a gang that is larger than what is free."""
        are = "is" if free == 1 else "are"
        return cls("Resources", f"needs {gang} GPU{'' if gang == 1 else 's'}, {free} {are} free")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """An order over the ranked units, which the shared walk turns into grants.

    Attributes:
        order: positions in the ranked `Units`, best first.
        misfit: what the walk does with a row that does not fit: go on with the next (`skip`), end
            (`stop`), or suspend running rows from the tail until it fits and end when it still
            does not (`tail-preempt`, Blox).
        rebuild: `sticky` keeps a running row that stays selected on its GPUs; `full` places every
            selected row anew; `counted` selects by counting GPUs, whatever the placement: the rows
            not selected leave, then the selected ones are placed, of which some may not fit.
        wake_at: ask again at this time, in seconds, even if nothing changes.
        stable_until: without arrivals, ends or cluster events, nothing would change before then.
    """

    order: Rows
    misfit: Misfit = "skip"
    rebuild: Rebuild = "sticky"
    wake_at: float = np.inf
    stable_until: float = -np.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a row gets besides its GPUs; 0 means "as asked".

    Attributes:
        batch_size: examples a step over all replicas (Pollux, Sia).
        tunes_batch: the job chooses its batch size itself, by what it has learnt of its speed and
            of its gradients (Pollux, Sia).
        complete: its target is reached: end it well.
        time_limit: its time limit from this start on, in seconds, not below its `time_min`.
        head_start: seconds of work that a start is taken to have done before (a clock
            that only a replay can have).
        free_start: the start costs nothing (only in a replay, as above).
        restart_s: seconds that the start costs, where the policy knows (only in a replay).
        gpu_limit: the part of the time for which it may use its GPUs, until a node policy says
            otherwise.
        pauses_at: when the unit stops working until it ends or is started anew, in seconds (only in
            a replay).
        ends_at: with `release` planned, when the unit is over, however much of its work is done.
    """

    batch_size: int = 0
    tunes_batch: bool = False
    complete: bool = False
    time_limit: float = 0.0
    head_start: float = 0.0
    free_start: bool = False
    restart_s: float | None = None
    gpu_limit: float = 1.0
    pauses_at: float = np.inf
    ends_at: float = np.inf


@dataclass(slots=True, kw_only=True)
class Allocation:
    """The outcome of one decision, before it is turned into commands.

    Attributes:
        suspended: rows that lose their GPUs, in the order in which they were taken back.
        launched: rows that start, with their GPUs, in order; a row in both is moved.
        grants: what rows get besides GPUs.
        refused: reasons by row, where one is known more exactly than the default.
        over_limits: reasons of rows that wait for limits on GPUs, with these rows.
        reserved: GPUs kept for rows until their victims have left.
        future: planned starts, for the calendar.
        wake_at: ask again then.
        stable_until: as in `Ranking`.
        nodes_wanted: the cluster size the policy would like, None for no wish (autoscaling).
        columns: extra output columns, by name and row.
        host_shares: rows on GPUs that are given other processors or memory than before, with what
            they have now for each GPU.
        order: the rows that were ranked, best first; None where the policy does not rank.
        terms: the numbers behind the order, by name; each has a value for each row of `order`.
    """

    suspended: dict[int, Placement] = field(default_factory=dict)
    launched: dict[int, Placement] = field(default_factory=dict)
    grants: dict[int, Grant] = field(default_factory=dict)
    refused: dict[int, Refused] = field(default_factory=dict)
    over_limits: tuple[tuple[Refused, Rows], ...] = ()
    reserved: dict[int, Placement] = field(default_factory=dict)
    future: list[Booking] = field(default_factory=list)
    wake_at: float = np.inf
    stable_until: float = -np.inf
    nodes_wanted: int | None = None
    columns: dict[str, dict[int, float]] = field(default_factory=dict)
    host_shares: dict[int, HostShare] = field(default_factory=dict)
    order: Rows | None = None
    terms: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def changes_nothing(self) -> bool:
        """Does everything stay as it is?"""
        ended = any(grant.complete for grant in self.grants.values())
        return not (self.launched or self.suspended or self.host_shares or ended)
