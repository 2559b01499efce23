"""Named semantics: when things become visible, when they end, and what triggers a decision.

One engine runs them all. A profile is a value, a few lines that name the paper it follows; what
another simulator does oddly is a field of it and never an `if` in the engine. A profile may also
carry option defaults for the parts it belongs to. Here are the two that a live cluster has; those
of other simulators are in `simulate/published`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.errors import BadInput

Phase = Literal["cluster", "complete", "track", "arrive", "choose", "admit", "decide"]

PHASES: tuple[Phase, ...] = (
    "cluster",
    "complete",
    "track",
    "arrive",
    "choose",
    "admit",
    "decide",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantics:
    """How simulated time works.

    Attributes:
        name: what `-o semantics=` calls it.
        source: what it follows.
        grid: seconds between decisions; None decides at every change instead.
        spacing: without `grid`, the least seconds between two moments at which anything is seen or
            decided; what happens before is seen then (ElasticFlow). None: there is no such least.
        origin: time of the first grid tick, in seconds.
        drift: a row does whole steps only, and a round ends when its last row stops, so the grid
            moves (Gavel).
        absence: with `drift`, seconds of a whole round that a row loses that was not in the round
            before.
        overrun: with `drift`, a row is complete after so many times the time that its profile says.
        fruitless: with `drift`, a row whose steps stand behind it leaves after so many rounds in
            which it does nothing; 0: at once.
        step: what a row has left is lessened once in so many seconds, and its end is noticed one
            step after nothing is left (Lucid); None: work flows.
        partners_left: when a row leaves GPUs that it shared, the other runs at its own speed again,
            or only if it was there first (Lucid's simulator).
        whole_steps: a row does whole steps in a round: a part of a step at its end is lost.
        harmless: models that neither slow down a job beside them nor are slowed down, whatever was
            measured of pairs (Lucid's simulator).
        phases: what happens at one instant, in order.
        arrivals: visible at once, or at the next grid tick.
        slot: with `grid`, arrivals become visible only at multiples of so many seconds after the
            origin (a multiple of the grid); None: at every tick.
        ends: a unit ends when its work is done, or when the policy says that it is (a program
            that counts itself).
        finish: the recorded finish is exact, or the tick at which it is seen.
        release: GPUs come back at the exact finish, at the tick, or as `planned`: when the policy
            says, unless something is decided when the work is done already. The finish is then
            the whole second at which it would have been done if its start had cost nothing.
        between: what happens between grid ticks when something changes: nothing, a fill of idle
            GPUs, or a full decision.
        overhead: which starts lose the restart overhead: every one, or all but the first; or, at
            every change, all running rows lose it again for each row on their GPUs (Muri).
        restart_overhead: seconds without progress after a start, where the run does not say.
        owes_restarts: a restart that is interrupted is paid for later.
        shape_moves: a move to other GPUs of the same type, as many on each node, is a restart like
            any other, or free (a policy that only looks at shapes may then lay out a cluster anew).
        moved_counts: a row suspended and started again in one decision counts as a migration or
            as a preemption.
        option_defaults: defaults for options of whichever part has them, by option.
        part_defaults: parts to use where the user names none, by stage.
        variants: parts that another class stands in for, by name, as "module:Class".
        rejoin: may a row suspended in a decision take its own GPUs back in the same decision?
    """

    name: str
    source: str = ""
    grid: float | None = 60.0
    spacing: float | None = None
    origin: float = 0.0
    drift: bool = False
    absence: float = 0.0
    overrun: float = math.inf
    fruitless: int = 0
    step: float | None = None
    partners_left: Literal["restored", "first-restored"] = "restored"
    whole_steps: bool = False
    harmless: tuple[str, ...] = ()
    phases: tuple[Phase, ...] = PHASES
    arrivals: Literal["instant", "grid"] = "instant"
    slot: float | None = None
    ends: Literal["work", "policy"] = "work"
    finish: Literal["exact", "tick"] = "exact"
    release: Literal["exact", "tick", "planned"] = "exact"
    between: Literal["none", "fill", "full"] = "fill"
    overhead: Literal["every-start", "restarts", "every-change"] = "every-start"
    restart_overhead: float = 0.0
    owes_restarts: bool = False
    shape_moves: Literal["restart", "free"] = "restart"
    moved_counts: Literal["migration", "preemption"] = "migration"
    rejoin: bool = True
    option_defaults: Mapping[str, object] = field(default_factory=dict)
    part_defaults: Mapping[str, str] = field(default_factory=dict)
    variants: Mapping[str, str] = field(default_factory=dict)

    def with_grid(self, grid: float) -> Semantics:
        """The same with another round length; a profile without rounds refuses.

        Raises:
            BadInput: the profile decides at every change, or the length is not positive.
        """
        if self.grid is None and self.spacing is None:
            raise BadInput(
                f"--round: semantics {self.name} decides at every change and has no rounds"
            )
        if not 0 < grid < float("inf"):
            raise BadInput(f"--round must be a positive number of seconds, not {grid:g}")
        if self.grid is None:
            return replace(self, spacing=grid)
        first = grid if self.origin == self.grid else self.origin  # a first round that is awaited
        return replace(self, grid=grid, origin=first)

    def tick_at_or_after(self, time: float) -> float:
        """The first grid tick at or after `time`; ticks are origin + k·grid, never accumulated."""
        return self._multiple(self.grid_length, time)

    def _multiple(self, step: float, time: float) -> float:
        """The first origin + k·step at or after `time`, k from 0."""
        k = max(math.ceil((time - self.origin) / step), 0)
        # the quotient may have been rounded across a whole number
        while k > 0 and self.origin + (k - 1) * step >= time:
            k -= 1
        while self.origin + k * step < time:
            k += 1
        return self.origin + k * step

    def seen_at(self, times: Floats) -> Floats:
        """When arrivals at these times become visible."""
        if self.arrivals == "instant":
            return times
        return self._multiples(self.slot or self.grid_length, times)

    def ticks_at_or_after(self, times: Floats) -> Floats:
        """As `tick_at_or_after`, of many times."""
        return self._multiples(self.grid_length, times)

    def _multiples(self, step: float, times: Floats) -> Floats:
        """As `_multiple`, of many times."""
        steps = np.maximum(np.ceil((times - self.origin) / step), 0.0)
        # the quotients may have been rounded across a whole number
        steps -= (steps > 0) & (self.origin + (steps - 1) * step >= times)
        steps += self.origin + steps * step < times
        return np.asarray(self.origin + steps * step)

    def tick_after(self, time: float) -> float:
        """The first grid tick strictly after `time`."""
        tick = self.tick_at_or_after(time)
        if tick > time:
            return tick
        return self.origin + (round((tick - self.origin) / self.grid_length) + 1) * self.grid_length

    @property
    def grid_length(self) -> float:
        """Seconds between ticks; 0 when every change is a decision."""
        return self.grid or 0.0

    @property
    def round_length(self) -> float:
        """Seconds of a round, or between two decisions at least; 0 when every change is one."""
        return self.grid or self.spacing or 0.0


ROUNDS = Semantics(name="rounds", source="dlsched: grid decisions, exact finishes, fill between")
EVENTS = Semantics(
    name="events", source="dlsched: decide at every change", grid=None, between="full"
)
CLOCKS: Mapping[str, Semantics] = {"rounds": ROUNDS, "events": EVENTS}  # that a live cluster has
