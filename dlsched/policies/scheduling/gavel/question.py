"""From a round's snapshot to the problem that Gavel's policies decide on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlsched.core.arrays import Floats, Ints, Rows
from dlsched.core.context import RoundContext
from dlsched.core.errors import BadInput
from dlsched.core.sharing import may_sit_together
from dlsched.core.units import Units
from dlsched.policies.scheduling.gavel.options import GavelOptions
from dlsched.policies.scheduling.gavel.problem import Entity, Pairs, Problem

__all__ = ["capacity", "named_numbers", "packs", "problem_of", "speeds_of"]


def packs(objective: str) -> bool:
    """Does the objective put two jobs on the same GPUs?"""
    return objective.endswith("-packed") or objective == "gandiva"


def capacity(types: Sequence[str], ctx: RoundContext) -> Ints:
    """GPUs of each type on nodes that may get work."""
    occupancy = ctx.occupancy
    names = occupancy.cluster.gpu_types
    found = dict.fromkeys(types, 0)
    for code, name in enumerate(names):
        nodes = occupancy.cluster.nodes_mask(np.flatnonzero(occupancy.type_of == code).tolist())
        found[name] += occupancy.capacity_in(nodes & occupancy.open_nodes)
    return np.array([found[name] for name in types], np.int64)


def speeds_of(rows: Rows, types: Sequence[str], ctx: RoundContext) -> Floats:
    """Steps/s alone, [row, type]; where nothing is known every type is alike."""
    if ctx.speeds is None:
        return np.ones((len(rows), len(types)))
    return ctx.speeds.alone(rows, ctx.table.gang[rows], types)


def problem_of(
    rows: Rows, types: Sequence[str], ctx: RoundContext, options: GavelOptions
) -> Problem:
    """What is decided on, in ascending order: the active rows that could run somewhere.

    A type of which there are fewer GPUs than a gang needs is of no use to it (the published program
    gives time on it all the same).

    Raises:
        BadInput: a weight, price or throughput cannot be; a row can run nowhere.
    """
    workers, speed = capacity(types, ctx), speeds_of(rows, types, ctx)
    usable = ctx.table.gang[rows][:, None] <= workers
    if options.mechanism == "published":
        usable = np.broadcast_to(workers > 0, speed.shape)
    somewhere = ((speed > 0) & usable).any(axis=1)
    rows, speed = rows[somewhere], np.where(usable, speed, 0.0)[somewhere]
    table, units = ctx.table, Units(ctx.table, rows, ctx.now)
    remaining = units.remaining_work
    if ctx.speeds is not None:
        remaining = remaining * ctx.speeds.steps_per_work(rows)
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
        time_left=np.nan_to_num(units.submit_time + units.deadline - ctx.now, nan=np.inf),
        price=prices,
        pairs=_pairs(rows, types, ctx) if packs(options.objective) else None,
        entities=_entities(units, options) if options.objective.startswith("hier") else (),
    )


def _pairs(rows: Rows, types: Sequence[str], ctx: RoundContext) -> Pairs | None:
    """All pairs of equal gangs that fit together somewhere; None where nobody may share."""
    if ctx.speeds is None or not ctx.may_share:
        return None
    first, second = np.triu_indices(len(rows), 1)
    scales = ctx.table.gang[rows]
    alike = scales[first] == scales[second]
    alike &= may_sit_together(ctx.table, rows[first], rows[second])
    first, second = first[alike], second[alike]
    speed = ctx.speeds.together(rows[first], rows[second], scales[first], types)
    fits = speed.any(axis=(1, 2))
    return Pairs(first[fits], second[fits], speed[fits])


def _prices(types: Sequence[str], options: GavelOptions) -> Floats:
    known = named_numbers("prices", options.prices)
    for name in types:
        if name not in known:
            raise BadInput(f"{options.objective} needs the price of {name}: -o prices={name}:0.5,…")
    return np.array([known[name] for name in types])


def _entities(units: Units, options: GavelOptions) -> list[Entity]:
    codes: Ints = getattr(units, options.entity)
    names = units.table.names[options.entity]
    weights = named_numbers("entity_weights", options.entity_weights, may_be_nothing=True)
    found = []
    for code in np.unique(codes).tolist():
        name = names[code] if code >= 0 else ""
        jobs = units.rows[codes == code].tolist()
        weight = weights.get(name, 1.0)
        found.append(Entity(jobs=tuple(jobs), weight=weight, policy=options.inside))
    return found


def named_numbers(
    option: str, texts: Sequence[str], *, may_be_nothing: bool = False
) -> dict[str, float]:
    """NAME:NUMBER texts as a mapping.

    Args:
        option: what they are of, for messages.
        texts: they.
        may_be_nothing: numbers may be 0.

    Raises:
        BadInput: one does not read so, or is not more than 0.
    """
    found = {}
    for text in texts:
        name, colon, number = text.rpartition(":")
        try:
            found[name] = float(number)
        except ValueError:
            colon = ""
        if not colon or not name:
            raise BadInput(f"{option}: {text!r} does not read NAME:NUMBER")
        if not (0 < found[name] < np.inf or (may_be_nothing and found[name] == 0)):
            least = "0 or more" if may_be_nothing else "more than 0"
            raise BadInput(f"{option}: {text!r}: the number must be {least}, and finite")
    return found
