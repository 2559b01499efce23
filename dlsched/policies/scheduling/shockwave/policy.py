"""The policy `shockwave`: plan the next rounds when jobs come or go, else follow the plan.

GPUs that the plan leaves idle in a round go to other jobs that fit, longest remaining time first.
In a live cluster, and in replays with our own clocks, new jobs may use them before the next plan.

Paper: see the package. Inputs: the epochs of each job (batch size and duration in seconds), its
finished epochs, and its gang.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.core.memory import by_row, kept
from dlsched.core.options import option
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.speed.epochs import EpochProfile
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.highs import Limits
from dlsched.policies.scheduling.shockwave.finish_times import (
    Target,
    remaining_seconds,
    whole_seconds,
)
from dlsched.policies.scheduling.shockwave.programs import make_plan
from dlsched.policies.scheduling.shockwave.window import Window

MOST_EPOCHS = 1000
FEWEST_EPOCHS = 10  # of a job without a profile; its present epoch counts as done
WAITS = Refused("Priority", "the plan gives these rounds to other jobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShockwaveOptions:
    """Shockwave."""

    rounds: int = option(20, "rounds in one plan", low=1)
    replan: int = option(8, "rounds after which to plan again if no job comes or goes", low=1)
    makespan: float = option(
        1e-3, "k, the weight of the longest remaining time in the objective", low=0.0
    )
    power: float = option(12.0, "λ, the exponent of the lateness of late jobs", low=0.0)
    fairness: float = option(
        1.0, "ρ, how many times its target finish time a job may take", low=0.0
    )
    gap: float = option(1e-3, "relative distance from the optimum that is accepted", low=0.0)
    nodes: int = option(2000, "most nodes of the search tree of one program", low=1)
    solve_limit_s: float = option(
        15.0, "seconds for one program in a live cluster; then the best plan found is used", low=0.0
    )
    round_s: float = option(
        120.0, "seconds of a planned round where the run has no rounds", low=1.0
    )


class Shockwave(SchedulingPolicy[ShockwaveOptions]):
    """Plans of rounds by integer programs."""

    weighs_types = True
    name = "shockwave"
    summary = "plans the next rounds by integer programs: welfare, makespan, finish-time fairness"
    needs: ClassVar[frozenset[str]] = frozenset({"predicted_work"})
    preemptive = True
    rests = False

    _targets: dict[int, Target] = by_row(Target)
    _plan: dict[int, list[bool]] = by_row(lambda *runs: list(runs))
    _planned_in: int = kept(-1)  # the first round of the plan
    _gpus: int = kept(0)

    def __init__(self, options: ShockwaveOptions) -> None:
        """Start without a plan."""
        super().__init__(options)

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Make a plan if it is due, then follow the plan."""
        rows = np.sort(ctx.active)
        length = ctx.round_length or self.options.round_s
        number = ctx.number if ctx.round_length else int(ctx.now // length)
        if ctx.mode == "full":
            self._update_targets(rows, number, ctx)
            if len(rows) and gpus_there(ctx) and self._is_due(number):
                self._make_plan(rows, number, length, ctx)
            self._follow(rows, number, ctx, walk)
        self._fill(rows, ctx, walk)
        if not ctx.round_length and len(rows):
            walk.wake_at((number + 1) * length)

    # -- the plan ---------------------------------------------------------------------------------

    def _update_targets(self, rows: Rows, number: int, ctx: RoundContext) -> None:
        """Note jobs that came or went; then estimate all finish times on an equal share again."""
        gpus = gpus_there(ctx)
        same = len(rows) == len(self._targets) and all(r in self._targets for r in rows.tolist())
        if same and gpus == self._gpus:
            return
        self._gpus, self._planned_in = gpus, -1
        share = min(1.0, gpus / max(len(rows), 1)) or 1.0
        known = self._targets
        self._targets = {row: known.get(row) or Target() for row in rows.tolist()}
        for row, target in self._targets.items():
            profile, finished = self._epoch_profile(row, ctx)
            spent = float(whole_seconds(profile)[:finished].sum())
            alone = spent + remaining_seconds(profile, finished)
            target.note(ctx.table.submit_time.item(row) + alone / share, number)

    def _is_due(self, number: int) -> bool:
        ahead = number - self._planned_in
        every = min(self.options.replan, self.options.rounds)
        return self._planned_in < 0 or not 0 <= ahead < every

    def _make_plan(self, rows: Rows, number: int, length: float, ctx: RoundContext) -> None:
        options = self.options
        profiles = [self._epoch_profile(row, ctx) for row in rows.tolist()]
        seconds = [whole_seconds(profile) for profile, _ in profiles]
        finished = np.array([done for _, done in profiles], np.int64)
        # the planner of its simulator assumes that all rounds have full length
        now = number * length if ctx.semantics.drift else ctx.now
        window = Window(
            gang=ctx.table.gang[rows],
            epochs=np.array([len(profile) for profile, _ in profiles], np.int64),
            finished=finished,
            epoch_s=np.array(
                [each[: done + 1].mean() for each, done in zip(seconds, finished, strict=True)]
            ),
            left_s=np.array([remaining_seconds(*each) for each in profiles]),
            target_s=np.array([self._targets[row].at(number) for row in rows.tolist()]),
            gpus=self._gpus,
            now_s=now,
            round_s=length,
            rounds=options.rounds,
            active=len(rows),
        )
        plan = make_plan(
            window,
            makespan=options.makespan,
            power=options.power,
            fairness=options.fairness,
            limits=Limits(
                gap=options.gap,
                nodes=options.nodes,
                seconds=options.solve_limit_s if ctx.cpu_clock is not None else np.inf,
            ),
        )
        self._plan = dict(zip(rows.tolist(), plan.runs.tolist(), strict=True))
        self._planned_in = number

    def _epoch_profile(self, row: int, ctx: RoundContext) -> tuple[EpochProfile, int]:
        """A job's epochs and how many are done; without a profile, equal ones of about a round."""
        executed = Units(ctx.table, np.array([row]), ctx.now).executed.item(0)
        if ctx.perf.epochs is not None:
            profile = ctx.perf.epochs.profile(row)
            return profile, min(ctx.perf.epochs.finished(row, executed), len(profile))
        work = ctx.table.predicted_work.item(row)
        length = ctx.round_length or self.options.round_s
        work = work if work > 0 else length
        profile = EpochProfile.even(
            work, max(min(length, work / FEWEST_EPOCHS), work / MOST_EPOCHS)
        )
        return profile, min(profile.finished_after(executed), len(profile))

    # -- following it -----------------------------------------------------------------------------

    def _follow(self, rows: Rows, number: int, ctx: RoundContext, walk: Walk) -> None:
        """Start the jobs planned for this round; suspend others where their GPUs are needed.

        Args:
            rows: the active rows.
            number: the round.
            ctx: the round's snapshot.
            walk: takes the decisions.
        """
        place, held = number - self._planned_in, ctx.occupancy.held
        chosen = [row for row in rows.tolist() if self._plan.get(row) and self._plan[row][place]]
        chosen += self._backfill(rows, chosen, ctx)
        running = [row for row in rows.tolist() if row in held]
        protected = walk.is_protected(np.array(running, np.int64))
        stays = set(chosen)
        for row, keeps in zip(running, protected.tolist(), strict=True):
            if row not in stays and not keeps:
                walk.suspend(row)
        gangs = ctx.table.gang
        for row in sorted(chosen, key=lambda row: -gangs.item(row)):
            if row not in held:
                walk.place(row)

    def _backfill(self, rows: Rows, chosen: list[int], ctx: RoundContext) -> list[int]:
        """Jobs outside the plan that fit too, longest remaining time first."""
        gangs = ctx.table.gang
        free = self._gpus - sum(gangs.item(row) for row in chosen)
        more = []
        for row in self._longest_first(set(rows.tolist()) - set(chosen), ctx):
            if gangs.item(row) <= free:
                more.append(row)
                free -= gangs.item(row)
        return more

    def _longest_first(self, rows: set[int], ctx: RoundContext) -> list[int]:
        left = {row: remaining_seconds(*self._epoch_profile(row, ctx)) for row in rows}
        return sorted(rows, key=lambda row: (-left[row], row))

    def _fill(self, rows: Rows, ctx: RoundContext, walk: Walk) -> None:
        """Start jobs that fit on idle GPUs; tell the others why they wait."""
        held = ctx.occupancy.held
        waiting = {row for row in rows.tolist() if row not in held}
        if not ctx.free_gpus:
            for row in waiting:
                walk.refuse(row, WAITS)
            return
        for row in self._longest_first(waiting, ctx):
            if ctx.table.gang.item(row) > walk.free_gpus(ctx.table.pool.item(row)):
                walk.refuse(row, WAITS)
            elif isinstance(refused := walk.place(row), Refused):
                walk.refuse(row, refused)

    # -- state ------------------------------------------------------------------------------------

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """A plan with a job that is gone is made again."""
        targets = len(self._targets)
        super().renumber(old, finished_gone)
        if len(self._targets) < targets:
            self._planned_in = -1


def gpus_there(ctx: RoundContext) -> int:
    """GPUs on nodes that may get work."""
    return ctx.occupancy.capacity_in(ctx.occupancy.open_nodes)
