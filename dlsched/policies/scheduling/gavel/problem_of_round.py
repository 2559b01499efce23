"""From a round's snapshot to the problem that Gavel's policies decide on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.options import named_numbers
from dlsched.core.units import Units
from dlsched.core.walk.co_location import may_share
from dlsched.policies.heterogeneous.gpu_types import capacity
from dlsched.policies.scheduling.gavel.options import GavelOptions
from dlsched.policies.scheduling.gavel.problem import Entity, Pairs, Problem, all_pairs


def packs(objective: str) -> bool:
    """Whether an objective puts two jobs on the same GPUs."""
    return objective.endswith("-packed") or objective == "gandiva"


def problem_of(
    rows: Rows,
    types: Sequence[str],
    ctx: RoundContext,
    options: GavelOptions,
    *,
    gives_to_large_gangs: bool = False,
) -> Problem:
    """The problem of a round: the rows that can run on some GPU type, in ascending order.

    Args:
        rows: the active rows.
        types: GPU types, in the order of all columns.
        ctx: the round.
        options: the objective, prices and entities.
        gives_to_large_gangs: a gang has time on types with fewer GPUs than it needs, where it
            can't run.

    Raises:
        BadInput: a weight, price or throughput is invalid.
    """
    workers, speed = capacity(types, ctx), ctx.perf.rate(rows, types, ctx.table.gang[rows])
    usable = ctx.table.gang[rows][:, None] <= workers
    if gives_to_large_gangs:
        usable = np.broadcast_to(workers > 0, speed.shape)
    somewhere = ((speed > 0) & usable).any(axis=1)
    rows, speed = rows[somewhere], np.where(usable, speed, 0.0)[somewhere]
    table, units = ctx.table, Units(ctx.table, rows, ctx.now)
    remaining = units.remaining_work * ctx.perf.steps_per_work(rows)
    weight = table.weight[rows]
    prices = _prices(types, options) if options.objective.startswith("cost") else None
    return Problem.of(
        speed,
        workers,
        ids=rows,
        types=tuple(types),
        scale=units.gang,
        weight=np.where(np.isnan(weight), 1.0, weight),
        remaining=remaining,
        elapsed=ctx.now - units.submit_time,
        time_left=units.table.due_at(units.rows) - ctx.now,
        price=prices,
        pairs=_pairs(rows, types, ctx) if packs(options.objective) else None,
        entities=_entities(units, options) if options.objective.startswith("hier") else (),
    )


def _pairs(rows: Rows, types: Sequence[str], ctx: RoundContext) -> Pairs | None:
    """All pairs of equal gangs that fit together somewhere; None where jobs may not share GPUs."""
    perf, scales = ctx.perf, ctx.table.gang[rows]
    if not perf.knows_pairs or not ctx.may_share:
        return None
    memory, cluster = ctx.table.gpu_memory[rows], ctx.occupancy.cluster
    each = cluster.gpu_memory[[cluster.gpu_types.index(name) for name in types]]

    def rates(first: Rows, second: Rows) -> Floats:
        found = perf.rate_in_pairs(rows[first], rows[second], types, scales[first])
        too_large = (memory[first] + memory[second])[:, None] > each  # False where not known
        return np.where(too_large[:, :, None], 0.0, found)

    return all_pairs(
        scales,
        rates,
        lambda first, second: may_share(ctx.table, rows[first], rows[second]),
    )


def _prices(types: Sequence[str], options: GavelOptions) -> Floats:
    known = named_numbers("prices", options.prices)
    for name in types:
        if name not in known:
            raise BadInput(f"{options.objective} needs the price of {name}: -o prices={name}:0.5,…")
    return np.array([known[name] for name in types])


def _entities(units: Units, options: GavelOptions) -> list[Entity]:
    codes: Ints = getattr(units, options.entity)
    names = units.table.names[options.entity]
    weights = named_numbers("entity_weights", options.entity_weights, may_be_zero=True)
    found = []
    for code in np.unique(codes).tolist():
        name = names[code] if code >= 0 else ""
        jobs = units.rows[codes == code].tolist()
        weight = weights.get(name, 1.0)
        found.append(Entity(jobs=tuple(jobs), weight=weight, policy=options.inside))
    return found
