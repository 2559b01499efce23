"""The what-if chooser: try every combination of parts on the present state, take the best.

Agarwal et al., "Blox", EuroSys 2024, calls the idea a scheduler synthesizer.
Every so many rounds the policy forecasts the present jobs, without further arrivals, under each
combination of scheduling × admission × placement. The combination with the least predicted average
JCT is installed, the first one of equals (scheduling first). Jobs held back by admission keep their
place.

`score=progress` looks only two rounds ahead: it adds up, over jobs, the fraction of work not done
by then plus queueing delay over predicted run time. It is far cheaper, and more short-sighted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.options import option
from dlsched.core.scheduling import Chooser, SchedulingPolicy
from dlsched.core.units import Units

if TYPE_CHECKING:
    from dlsched.core.forecast import Forecast
    from dlsched.core.walk.walk import Walk

SHORT_ROUNDS = 2  # how far the short-sighted score looks
NO_ROUND_S = 60.0  # a round's length where the semantics has none


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfOptions:
    """The combinations to try; a part may carry its first option after a colon."""

    scheduling: tuple[str, ...] = option(("las", "fifo", "srtf"), "scheduling policies to try")
    admission: tuple[str, ...] = option(
        ("accept-all", "load-threshold:1.2", "load-threshold:1.4"), "admission policies to try"
    )
    placement: tuple[str, ...] = option((), "placements to try; empty keeps the run's")
    every: int = option(1, "rounds between two choices", low=1)
    score: Literal["mean-jct", "progress"] = option("mean-jct", "how combinations are compared")


class WhatIf(SchedulingPolicy[WhatIfOptions], Chooser):
    """A scheduling policy that installs another one."""

    name = "what-if"
    summary = "simulates combinations of parts each round and installs the best (Blox' synthesizer)"
    needs = frozenset({"predicted_work"})
    preemptive = True
    rests = True

    def __init__(self, options: WhatIfOptions) -> None:
        super().__init__(options)
        self._inside: SchedulingPolicy[Any] | None = None
        self._seated: dict[str, str] = {}
        self._chosen_in = -1  # round of the last choice

    @property
    def has_chosen(self) -> bool:
        """Whether a policy is installed."""
        return self._inside is not None

    @property
    def inside(self) -> SchedulingPolicy[Any]:
        """The installed policy."""
        if self._inside is None:
            raise BadInput(
                "it chooses by forecasts, which do not exist for trainings of measured applications"
            )
        return self._inside

    def install(self, policy: SchedulingPolicy[Any]) -> None:
        """Install a policy."""
        self._inside = policy
        self.preemptive = policy.preemptive
        self.rests = policy.rests

    def choose(self, ctx: RoundContext) -> Mapping[str, str] | None:
        """Forecast every combination; returns the best one's parts that differ from the present."""
        if ctx.forecast is None:
            return None
        passed = ctx.number - self._chosen_in
        if self._inside is not None and 0 <= passed < self.options.every:
            return None
        self._chosen_in = ctx.number
        best: tuple[float, dict[str, str]] | None = None
        for parts in self._combinations():
            score = self._score(parts, ctx)
            if best is None or score < best[0]:
                best = (score, parts)
        assert best is not None
        changed = {
            stage: text for stage, text in best[1].items() if self._seated.get(stage) != text
        }
        self._seated = best[1]
        return changed

    def _combinations(self) -> list[dict[str, str]]:
        lists = {
            "scheduling": self.options.scheduling,
            "admission": self.options.admission,
            "placement": self.options.placement,
        }
        used = {stage: texts for stage, texts in lists.items() if texts}
        return [dict(zip(used, texts, strict=True)) for texts in product(*used.values())]

    def _score(self, parts: Mapping[str, str], ctx: RoundContext) -> float:
        assert ctx.forecast is not None
        if self.options.score == "mean-jct":
            return ctx.forecast(parts).mean_jct
        horizon = SHORT_ROUNDS * (ctx.round_length or NO_ROUND_S)
        return _undone(ctx.forecast(parts, horizon=horizon), ctx, horizon)

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Let the installed policy decide; the next round may install another one."""
        self.inside.allocate(units, ctx, walk)
        if len(self._combinations()) > 1:
            walk.stable_until(-np.inf)

    def state_dict(self) -> dict[str, Any]:
        """The choice, with the state of the installed policy."""
        inner = None if self._inside is None else self._inside.state_dict()
        return {"seated": dict(self._seated), "chosen_in": self._chosen_in, "inside": inner}

    def load_state_dict(self, state: Any) -> None:
        """Restore the choice; the next choice installs the policy."""
        self._seated = {}
        self._chosen_in = -1 if self._inside is None else int(state["chosen_in"])
        if self._inside is not None and state["inside"] is not None:
            self._inside.load_state_dict(state["inside"])
            self._seated = dict(state["seated"])

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """The installed policy follows a table that was packed."""
        if self._inside is not None:
            self._inside.renumber(old, finished_gone)


def _undone(forecast: Forecast, ctx: RoundContext, horizon: float) -> float:
    """Fractions of work not done by the horizon, plus queueing delays over predicted run times."""
    table, rows = ctx.table, forecast.rows
    started = np.where(np.isnan(forecast.first_start), ctx.now + horizon, forecast.first_start)
    with np.errstate(divide="ignore", invalid="ignore"):
        delay = (started - table.submit_time[rows]) / table.predicted_work[rows]
    return float(np.nansum(1.0 - forecast.progress) + np.nansum(delay))
