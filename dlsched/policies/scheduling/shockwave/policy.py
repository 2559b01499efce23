"""The policy `shockwave`: plans the next rounds when somebody comes or goes, else follows the plan.

What a planned round leaves idle goes to whoever fits, longest first; in a live cluster and under
our own clocks newcomers may use it at once, before the next plan knows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from dlsched.core.allocation import Refused
from dlsched.core.arrays import Rows
from dlsched.core.context import RoundContext
from dlsched.core.epochs import EpochProfile
from dlsched.core.scheduling import SchedulingPolicy
from dlsched.core.units import Units
from dlsched.core.walk import Walk
from dlsched.policies.scheduling.shockwave.options import ShockwaveOptions
from dlsched.policies.scheduling.shockwave.posterior import remaining_seconds, whole_seconds
from dlsched.policies.scheduling.shockwave.programs import Limits, make_plan
from dlsched.policies.scheduling.shockwave.targets import Target
from dlsched.policies.scheduling.shockwave.window import Window

__all__ = ["Shockwave"]

MOST_EPOCHS = 1000
FEWEST_EPOCHS = 10  # into which a job without a profile is cut: the present one counts as done
WAITS = Refused("Priority", "the plan gives these rounds to others")


class Shockwave(SchedulingPolicy[ShockwaveOptions]):
    """Plans of rounds."""

    name = "shockwave"
    summary = "plans the next rounds by integer programs: welfare, makespan, finish-time fairness"
    Options: ClassVar[type[Any]] = ShockwaveOptions
    needs: ClassVar[frozenset[str]] = frozenset({"predicted_work"})
    preemptive = True
    rests = False

    def __init__(self, options: ShockwaveOptions) -> None:
        """Begin without a plan."""
        super().__init__(options)
        self._targets: dict[int, Target] = {}
        self._plan: dict[int, list[bool]] = {}  # by row
        self._planned_in = -1  # the first round of the plan
        self._gpus = 0

    def allocate(self, units: Units, ctx: RoundContext, walk: Walk) -> None:
        """Follow the plan, after making one where it is due."""
        rows = np.sort(ctx.active)
        length = ctx.round_length or self.options.round_s
        number = ctx.number if ctx.round_length else int(ctx.now // length)
        if ctx.mode == "full":
            self._look(rows, number, ctx)
            if len(rows) and gpus_there(ctx) and self._is_due(number):
                self._make_plan(rows, number, length, ctx)
            self._follow(rows, number, ctx, walk)
        self._fill(rows, ctx, walk)
        if not ctx.round_length and len(rows):
            walk.wake_at((number + 1) * length)

    # -- the plan ---------------------------------------------------------------------------------

    def _look(self, rows: Rows, number: int, ctx: RoundContext) -> None:
        """Who came and who went? Then everybody's finish on an equal share is estimated anew."""
        gpus = gpus_there(ctx)
        same = len(rows) == len(self._targets) and all(r in self._targets for r in rows.tolist())
        if same and gpus == self._gpus:
            return
        self._gpus, self._planned_in = gpus, -1
        share = min(1.0, gpus / max(len(rows), 1)) or 1.0
        known = self._targets
        self._targets = {row: known.get(row) or Target() for row in rows.tolist()}
        for row, target in self._targets.items():
            profile, finished = self._course(row, ctx)
            spent = float(whole_seconds(profile)[:finished].sum())
            alone = spent + remaining_seconds(profile, finished)
            target.note(ctx.table.submit_time.item(row) + alone / share, number)

    def _is_due(self, number: int) -> bool:
        ahead = number - self._planned_in
        every = min(self.options.replan, self.options.rounds)
        return self._planned_in < 0 or not 0 <= ahead < every

    def _make_plan(self, rows: Rows, number: int, length: float, ctx: RoundContext) -> None:
        options = self.options
        courses = [self._course(row, ctx) for row in rows.tolist()]
        seconds = [whole_seconds(profile) for profile, _ in courses]
        finished = np.array([done for _, done in courses], np.int64)
        # the published planner counts rounds as if all were of full length
        now = number * length if ctx.semantics.drift else ctx.now
        window = Window(
            gang=ctx.table.gang[rows],
            epochs=np.array([len(profile) for profile, _ in courses], np.int64),
            finished=finished,
            epoch_s=np.array(
                [each[: done + 1].mean() for each, done in zip(seconds, finished, strict=True)]
            ),
            left_s=np.array([remaining_seconds(*course) for course in courses]),
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

    def _course(self, row: int, ctx: RoundContext) -> tuple[EpochProfile, int]:
        """A job's epochs and how many are done; without a profile, equal ones of about a round."""
        executed = Units(ctx.table, np.array([row]), ctx.now).executed.item(0)
        if ctx.epochs is not None:
            profile = ctx.epochs.profile(row)
            return profile, min(ctx.epochs.finished(row, executed), len(profile))
        work = ctx.table.predicted_work.item(row)
        length = ctx.round_length or self.options.round_s
        work = work if work > 0 else length
        profile = EpochProfile.even(
            work, max(min(length, work / FEWEST_EPOCHS), work / MOST_EPOCHS)
        )
        return profile, min(profile.finished_after(executed), len(profile))

    # -- the walk ---------------------------------------------------------------------------------

    def _follow(self, rows: Rows, number: int, ctx: RoundContext, walk: Walk) -> None:
        """Who is planned for this round runs; the others leave where their GPUs are wanted."""
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
        """Jobs beside the plan that fit too, longest first."""
        gangs = ctx.table.gang
        free = self._gpus - sum(gangs.item(row) for row in chosen)
        more = []
        for row in self._longest_first(set(rows.tolist()) - set(chosen), ctx):
            if gangs.item(row) <= free:
                more.append(row)
                free -= gangs.item(row)
        return more

    def _longest_first(self, rows: set[int], ctx: RoundContext) -> list[int]:
        left = {row: remaining_seconds(*self._course(row, ctx)) for row in rows}
        return sorted(rows, key=lambda row: (-left[row], row))

    def _fill(self, rows: Rows, ctx: RoundContext, walk: Walk) -> None:
        """Whoever still fits may have what is idle; says why others do not."""
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

    def state_dict(self) -> dict[str, Any]:
        """Targets and the plan."""
        return {
            "targets": [
                [row, each.total, each.rounds, each.last, each.since]
                for row, each in self._targets.items()
            ],
            "plan": [[row, *runs] for row, runs in self._plan.items()],
            "planned_in": self._planned_in,
            "gpus": self._gpus,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        self._targets = {
            int(row): Target(float(total), float(rounds), float(last), int(since))
            for row, total, rounds, last, since in state["targets"]
        }
        self._plan = {int(row): [bool(each) for each in runs] for row, *runs in state["plan"]}
        self._planned_in, self._gpus = int(state["planned_in"]), int(state["gpus"])

    def renumber(self, old: Rows, finished_gone: int) -> None:
        """Jobs have other row numbers now."""
        new = {int(before): row for row, before in enumerate(old.tolist()) if before >= 0}
        if any(row not in new for row in self._targets):
            self._planned_in = -1
        self._targets = {new[row]: t for row, t in self._targets.items() if row in new}
        self._plan = {new[row]: runs for row, runs in self._plan.items() if row in new}


def gpus_there(ctx: RoundContext) -> int:
    """GPUs on nodes that may get work."""
    return ctx.occupancy.capacity_in(ctx.occupancy.open_nodes)
