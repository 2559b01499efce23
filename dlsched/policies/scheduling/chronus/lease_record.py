"""What Chronus remembers of each job between decisions, as columns by row of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.memory import Remembering, by_row, kept, memory

# classes, as in the paper
UNSEEN, LOWEST, ACCEPTED, UNACCEPTED, BEST_EFFORT = -2, -1, 0, 1, 2


class LeaseRecord(Remembering):
    """The state of all jobs.

    Attributes:
        kind: its class.
        estimate: minutes that it is believed to need on GPUs, restarts and margin included.
        request: leases that it still needs besides the one it holds.
        due: minutes after the submit by which it is to end, as planned; infinite: never.
        holds_lease: it runs in a lease of its own.
        forced: it runs to its end, because it ends before the next boundary.
        overrun: it has used up its estimate.
        plannable: its leases may be planned.
        credit: minutes of work that it was credited without holding GPUs.
        emergence: how urgent it is within its class, larger first.
        place: among the waiting jobs, and among the running ones; ties are served in this order.
        plans: the leases that each planned job has booked, ascending, counted from time 0.
        options: per job its deadlines in minutes after the submit, each with its value.
        lease: the latest that has begun.
        slot: the latest that has begun.
        turned_down: since the boundary a job with a deadline has waited without being admitted.
    """

    kind: Ints = memory(UNSEEN)
    estimate: Floats = memory(0.0)
    request: Ints = memory(0)
    due: Floats = memory(np.inf)
    holds_lease: Bools = memory(False)
    forced: Bools = memory(False)
    overrun: Bools = memory(False)
    plannable: Bools = memory(False)
    credit: Floats = memory(0.0)
    emergence: Floats = memory(0.0)
    place: Ints = memory(0)
    plans: dict[int, list[int]] = by_row(lambda *leases: list(leases))
    options: dict[int, tuple[tuple[float, float], ...]] = by_row(
        lambda *options: tuple((due, value) for due, value in options)
    )
    places: int = kept(0)
    lease: int = kept(-1)
    slot: int = kept(-1)
    turned_down: bool = kept(False)
    _booked: Ints = kept(lambda: np.zeros(64, np.int64), np.array)  # by lease, from time 0

    def reserve(self, count: int) -> None:
        """Make room for so many rows."""
        if count > len(self.kind):
            self.reach(max(count, 2 * len(self.kind)))

    def in_order(self, rows: Rows) -> Rows:
        """Rows by their places."""
        return rows[np.argsort(self.place[rows], kind="stable")]

    def to_the_end(self, rows: Rows) -> None:
        """Rows stand behind all others, in this order."""
        self.place[rows] = self.places + np.arange(len(rows))
        self.places += len(rows)

    # -- plans ------------------------------------------------------------------------------------

    def booked_from(self, lease: int) -> Ints:
        """GPUs that plans hold in each lease from this one on."""
        ahead = self._booked[lease:]
        used = ahead.nonzero()[0]
        return ahead[: used[-1] + 1 if len(used) else 0]

    def plan(self, row: int, gpus: int, leases: list[int]) -> None:
        """A job has booked these leases, ascending."""
        if leases and leases[-1] >= len(self._booked):
            self._booked = np.concatenate([self._booked, np.zeros(leases[-1] + 1, np.int64)])
        self.plans[row] = leases
        self._booked[leases] += gpus

    def drop_plan(self, row: int, gpus: int) -> None:
        """A job's plan holds no more."""
        leases = self.plans.pop(row, None)
        if leases:
            self._booked[leases] -= gpus

    def cancel_first(self, row: int, gpus: int, count: int) -> None:
        """A job needs so many leases less: its first ones are free again."""
        leases = self.plans.get(row)
        if leases and count > 0:
            self._booked[leases[:count]] -= gpus
            del leases[:count]

    # -- state ------------------------------------------------------------------------------------

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`; an older release had the counters in one list."""
        if "counters" in state:
            names = ("places", "lease", "slot", "turned_down")
            state = {**state, **dict(zip(names, state["counters"], strict=True))}
        super().load_state_dict(state)
