"""The tasks of a round: what the priorities need, from the columns of units.

A task is a unit; its job is its group, or itself. The tasks that wait for a unit count for it as
soon as they are submitted. Where the paper's inputs come from: urgency is the priority of the
column; size is `model_size` (parameters of the unit's part of the model), else its GPUs; the
deadline of a unit is early enough for those that wait for it, as far as their durations are
predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dlsched.core.arrays import Floats, Rows, numbers
from dlsched.core.context import RoundContext
from dlsched.core.units import COMPLETED, Units, UnitTable
from dlsched.policies.scheduling.mlfs.losses import Losses, iterations_done
from dlsched.policies.scheduling.mlfs.options import MlfsOptions
from dlsched.policies.scheduling.mlfs.priorities import (
    Tasks,
    dependents_first,
    learning_terms,
    priorities,
    time_terms,
)


class Ranked(NamedTuple):
    """Rows with their priorities.

    Attributes:
        rows: the active rows.
        total: P of each.
        terms: what the priority is the sum of, by name, and the sum as `total`.
        tasks: what is known of them.
    """

    rows: Rows
    total: Floats
    terms: Mapping[str, Floats]
    tasks: Tasks


class Relatives:
    """Which units wait for which, as far as they are submitted and have not ended."""

    def __init__(self, table: UnitTable, now: float) -> None:
        self._parents = table.parents
        self.children: dict[int, list[int]] = {}
        for row, parents in table.parents.items():
            if table.status[row] < COMPLETED and table.submit_time[row] <= now:
                for parent in parents:
                    self.children.setdefault(parent, []).append(row)

    def of(self, row: int) -> list[int]:
        """The units that a unit waits for, or that wait for it, without those in between."""
        return [*self._parents.get(row, ()), *self.children.get(row, ())]

    def below(self, rows: list[int]) -> list[int]:
        """Rows, and behind them all that wait for them and are not among them."""
        found = dict.fromkeys(rows)
        queue = list(rows)
        while queue:
            for child in self.children.get(queue.pop(), ()):
                if child not in found:
                    found[child] = None
                    queue.append(child)
        return list(found)


def ranked(ctx: RoundContext, relatives: Relatives, losses: Losses, options: MlfsOptions) -> Ranked:
    """The priorities of all active rows.

    Args:
        ctx: the snapshot.
        relatives: which units wait for which.
        losses: what jobs have reported; this round's reports are noted.
        options: weights and units.
    """
    active = ctx.active
    rows = np.array(relatives.below(active.tolist()), np.int64) if relatives.children else active
    units = Units(ctx.table, rows, ctx.now)
    place = {row: k for k, row in enumerate(rows.tolist())}
    children = (
        [[place[child] for child in relatives.children.get(row, ())] for row in place]
        if relatives.children
        else []
    )
    tasks = _described(units, children, losses, options)
    found = priorities(tasks, children, options)
    learning, time = learning_terms(tasks), time_terms(tasks, options)
    most = (1.0, 1.0)
    if options.normalise:
        most = (_largest(found.learning), _largest(found.time))
    alpha, rest = options.alpha / most[0], (1.0 - options.alpha) / most[1]
    total = alpha * found.learning + rest * found.time if options.normalise else found.total
    terms = {
        "learning": alpha * learning,
        "deadline": rest * time[0],
        "remaining": rest * time[1],
        "waited": rest * time[2],
        "dependents": alpha * (found.learning - learning) + rest * (found.time - sum(time)),
        "total": total,
    }
    first = slice(0, len(active))
    mine = {name: each[first] for name, each in terms.items()}
    return Ranked(active, total[first], mine, Tasks(*(each[first] for each in tasks)))


def _largest(values: Floats) -> float:
    return float(values.max(initial=0.0)) or 1.0


def _described(
    units: Units, children: list[list[int]], losses: Losses, options: MlfsOptions
) -> Tasks:
    done = iterations_done(units)
    losses.see(units, done)
    losses.forget(units.table)
    priority = units.priority
    left = units.remaining_work
    return Tasks(
        urgency=np.where(np.isnan(priority), options.urgency, np.maximum(priority, 0.0)),
        iteration=np.maximum(np.nan_to_num(done), 0.0) + 1.0,
        learnt=np.array([losses.learnt(row) for row in units.rows.tolist()], np.float64),
        size=_sizes(units),
        due_min=(_due(units, children) - units.now) / options.time_unit_s,
        left_min=np.where(np.isnan(left), np.inf, left) / options.time_unit_s,
        waited_min=np.maximum(np.nan_to_num(units.waited_s), 0.0) / options.time_unit_s,
    )


def _sizes(units: Units) -> Floats:
    """Each unit's part of its group, by the sizes of models, else by GPUs."""
    table, group = units.table, units.group
    if not (group >= 0).any():
        return np.ones(len(units))
    size = table.gang.astype(np.float64)
    if "model_size" in table.extra:
        said = numbers(table.extra["model_size"])
        known = said > 0
        some = np.zeros(int(table.group.max()) + 1, np.bool_)  # groups of which one does not say
        some[table.group[~known & (table.group >= 0)]] = True
        size = np.where(known & ~some[np.maximum(table.group, 0)], said, size)
    grouped = table.group >= 0
    whole = np.bincount(table.group[grouped], size[grouped])
    mine = size[units.rows]
    return np.where(group >= 0, mine / whole[np.maximum(group, 0)], 1.0)


def _due(units: Units, children: list[list[int]]) -> Floats:
    """When each unit is to have ended, in seconds; infinite without a deadline."""
    due = units.table.due_at(units.rows)
    if children:
        last_start = due - np.nan_to_num(units.remaining_work)
        for task in dependents_first(children):
            for child in children[task]:
                due[task] = min(due[task], last_start[child])
            last_start[task] = due[task] - np.nan_to_num(units.remaining_work[task])
    return due
