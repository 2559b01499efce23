"""Named semantics: when things become visible, when they end, and what triggers a decision.

One engine runs them all. A profile is a value, a few lines that name the paper it follows;
what a published artifact does oddly lives here and never as an `if` in the engine. A profile may
also carry option defaults for the parts it belongs to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from dlsched.core.arrays import Floats
from dlsched.core.errors import BadInput, not_known

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
        source: the paper or artifact it follows.
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
        ends: a unit ends when its work is done, or when the policy says that it is (a published
            program that counts itself).
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


PROFILES: dict[str, Semantics] = {}


def _add(semantics: Semantics) -> Semantics:
    PROFILES[semantics.name] = semantics
    return semantics


ROUNDS = _add(
    Semantics(name="rounds", source="dlsched: grid decisions, exact finishes, fill between")
)
EVENTS = _add(
    Semantics(name="events", source="dlsched: decide at every change", grid=None, between="full")
)
BLOX = _add(
    Semantics(
        name="blox",
        source="Blox, EuroSys 2024, and its artifact's round loop",
        grid=300.0,
        arrivals="grid",
        finish="tick",
        release="tick",
        between="none",
        moved_counts="preemption",
        rejoin=False,
        option_defaults={
            "misfit": "tail-preempt",
            "service": "time",
            "guard_s": 3_600_000.0,
            # its classes are lower first, 999 by default: here the numbers are negative
            "guard_priority": -1.0,
            "unset_priority": -999.0,
            "ties": "submit",
        },
    )
)
TIRESIAS = _add(
    Semantics(
        name="tiresias",
        source="Tiresias, NSDI 2019, and its artifact's simulator",
        grid=None,
        between="full",
        option_defaults={"jump": "artifact", "index": "artifact"},
        part_defaults={"placement": "count"},
    )
)
GAVEL = _add(
    Semantics(
        name="gavel",
        source="Gavel, OSDI 2020, and its artifact's simulator",
        grid=360.0,
        drift=True,
        release="tick",
        between="none",
        option_defaults={
            "mechanism": "published",
            "resolve_s": 1920.0,
            "settle": "published",
        },
        part_defaults={"placement": "first-free"},
    )
)
SHOCKWAVE = _add(
    Semantics(
        name="shockwave",
        source="Shockwave, NSDI 2023, and its artifact's simulator",
        grid=120.0,
        drift=True,
        absence=20.0,
        overrun=1.5,
        fruitless=5,
        release="tick",
        between="none",
        option_defaults={**GAVEL.option_defaults, "resolve_s": 1000.0, "alpha": 0.2},
        part_defaults={"placement": "first-free"},
    )
)
POLLUX = _add(
    Semantics(
        name="pollux",
        source="Pollux, OSDI 2021, and its artifact's simulator",
        grid=60.0,
        origin=60.0,
        arrivals="grid",
        release="tick",
        between="none",
        restart_overhead=30.0,
        option_defaults={
            "limits": (57600.0,),
            "clock": "held",
            "equals": "arrival",
        },
        part_defaults={"placement": "roomiest"},
    )
)
CHRONUS = _add(
    Semantics(
        name="chronus",
        source="Chronus, SoCC 2021, and its artifact's simulator",
        arrivals="grid",
        slot=300.0,
        release="tick",
        between="none",
        restart_overhead=30.0,
        owes_restarts=True,
        option_defaults={"clock": "slots"},
        moved_counts="preemption",
        rejoin=False,
        part_defaults={"placement": "count", "launch": "by-size"},
    )
)
ELASTICFLOW = _add(
    Semantics(
        name="elasticflow",
        source="ElasticFlow, ASPLOS 2023, and its artifact's simulator",
        grid=None,
        spacing=60.0,
        finish="tick",
        release="planned",
        between="full",
        rejoin=False,
        option_defaults={
            "marginal": "artifact",
            "arrivals": "together",
            "margin": 1.0,
            "layout": "anew",
            "trainers": "published",
        },
        part_defaults={"placement": "buddy"},
    )
)
ELASTICFLOW_EDF = _add(
    replace(
        ELASTICFLOW,
        name="elasticflow-edf",
        option_defaults={
            **ELASTICFLOW.option_defaults,
            "shares": "greedy",
            "arrivals": "strict",
        },
    )
)
LUCID = _add(
    Semantics(
        name="lucid",
        source="Lucid, ASPLOS 2023, and its artifact's simulator",
        grid=1.0,
        step=1.0,
        arrivals="grid",
        between="none",
        moved_counts="preemption",
        rejoin=False,
        partners_left="first-restored",
        harmless=("NeuMF", "ResNet50", "BERT", "Transformer"),
        option_defaults={
            "rebuild": "counted",
            "ties": "lists",
            "restore_partner": "artifact",
            "artifact_compat": True,
            "memory_gib": 24.0,
        },
        part_defaults={"placement": "whole-nodes", "preemption": "redo"},
    )
)
LUCID_TIRESIAS = _add(
    replace(
        LUCID,
        name="lucid-tiresias",
        grid=60.0,
        arrivals="instant",
        # more than 18,000 GPU-seconds; they are whole numbers here
        option_defaults={
            "rebuild": "counted",
            "limits": (18_001.0,),
            "clock": "held",
            "equals": "submit",
        },
    )
)
LUCID_QUEUE = _add(
    replace(LUCID, name="lucid-queue", step=None, option_defaults={"newest": "by-size"})
)
GANDIVA = _add(
    Semantics(
        name="gandiva",
        source="Gandiva, OSDI 2018, as Tiresias' simulator reduces it",
        grid=None,
        between="full",
        ends="policy",
        option_defaults={"reduced": True},
    )
)
MURI = _add(
    Semantics(
        name="muri",
        source="Muri, SIGCOMM 2022, and its artifact's simulator",
        grid=None,
        between="full",
        overhead="every-change",
        restart_overhead=10.0,
        option_defaults={
            "ties": "published",
            "rebuild": "full",
            "clock": "held",
            "jump": "whole",
        },
        part_defaults={"placement": "yarn"},
    )
)
SIA = _add(
    replace(
        POLLUX,
        name="sia",
        source="Sia, SOSP 2023, and its artifact's simulator",
        shape_moves="free",
        option_defaults={
            "rounding": "artifact",
            "placing": "fast",
            "mechanism": "plain",
            "settle": "centre",
        },
        part_defaults={"launch": "profiled"},
    )
)
SYNERGY = _add(
    Semantics(
        name="synergy",
        source="Synergy, OSDI 2022, and its artifact's simulator",
        grid=300.0,
        whole_steps=True,
        arrivals="grid",
        finish="tick",
        release="tick",
        between="none",
        option_defaults={"rebuild": "full", "peers": "in-turn"},
        part_defaults={"placement": "first-free"},
    )
)
SYNERGY_STATIC = _add(replace(SYNERGY, name="synergy-static", origin=1.0))


def profile(name: str) -> Semantics:
    """The profile of that name.

    Raises:
        BadInput: there is none; the message lists those there are.
    """
    try:
        return PROFILES[name]
    except KeyError:
        raise not_known("semantics", name, sorted(PROFILES)) from None
