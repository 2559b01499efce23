"""What Chronus remembers of each job between decisions, as columns by row of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints, Rows, carried

# classes, as in the paper
UNSEEN, LOWEST, ACCEPTED, UNACCEPTED, BEST_EFFORT = -2, -1, 0, 1, 2

_COLUMNS: dict[str, tuple[type[np.generic], float]] = {
    "kind": (np.int64, UNSEEN),
    "estimate": (np.float64, 0.0),
    "request": (np.int64, 0),
    "due": (np.float64, np.inf),
    "holds_lease": (np.bool_, 0),
    "forced": (np.bool_, 0),
    "overrun": (np.bool_, 0),
    "plannable": (np.bool_, 0),
    "credit": (np.float64, 0.0),
    "emergence": (np.float64, 0.0),
    "place": (np.int64, 0),
}


class LeaseRecord:
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

    kind: Ints
    estimate: Floats
    request: Ints
    due: Floats
    holds_lease: Bools
    forced: Bools
    overrun: Bools
    plannable: Bools
    credit: Floats
    emergence: Floats
    place: Ints

    def __init__(self) -> None:
        for name, (dtype, fresh) in _COLUMNS.items():
            setattr(self, name, np.full(0, fresh, dtype))
        self.plans: dict[int, list[int]] = {}
        self.options: dict[int, tuple[tuple[float, float], ...]] = {}
        self.places = 0
        self.lease = self.slot = -1
        self.turned_down = False
        self._booked = np.zeros(64, np.int64)  # GPUs by lease, counted from time 0

    def reserve(self, count: int) -> None:
        """Make room for so many rows."""
        have = len(self.kind)
        if count > have:
            room = max(count, 2 * have)
            for name, (dtype, fresh) in _COLUMNS.items():
                more = np.full(room - have, fresh, dtype)
                setattr(self, name, np.concatenate([getattr(self, name), more]))

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

    def state_dict(self) -> dict[str, Any]:
        """All of it."""
        return {name: getattr(self, name).copy() for name in _COLUMNS} | {
            "plans": {str(row): list(leases) for row, leases in self.plans.items()},
            "options": {str(row): [list(one) for one in of] for row, of in self.options.items()},
            "counters": [self.places, self.lease, self.slot, int(self.turned_down)],
            "booked": self._booked.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        for name, (dtype, _) in _COLUMNS.items():
            setattr(self, name, np.array(state[name], dtype))
        self.plans = {int(row): list(leases) for row, leases in state["plans"].items()}
        self.options = {
            int(row): tuple((float(due), float(value)) for due, value in of)
            for row, of in state["options"].items()
        }
        self.places, self.lease, self.slot, turned_down = map(int, state["counters"])
        self.turned_down = bool(turned_down)
        self._booked = np.array(state["booked"], np.int64)

    def renumber(self, old: Rows) -> None:
        """Follow a table that was packed; plans of ended jobs are dropped before."""
        for name, (_, fresh) in _COLUMNS.items():
            setattr(self, name, carried(getattr(self, name), old, fresh))
        new = {int(before): row for row, before in enumerate(old.tolist()) if before >= 0}
        self.plans = {new[row]: leases for row, leases in self.plans.items() if row in new}
        self.options = {new[row]: of for row, of in self.options.items() if row in new}
