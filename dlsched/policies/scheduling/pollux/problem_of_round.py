"""The problem of a round's snapshot.

Jobs that must not change (just started, on a node that takes no new work, or all running jobs while
idle GPUs are filled) are pinned. Jobs that share GPUs, ask for a shape, or have replicas of several
GPUs are left out, together with the GPUs that they hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints, Rows
from dlsched.core.context import RoundContext
from dlsched.core.goodput.params import BatchLimits, GradParams, PerfParams
from dlsched.core.units import Units
from dlsched.core.walk.walk import Walk
from dlsched.policies.scheduling.pollux.options import PolluxOptions
from dlsched.policies.scheduling.pollux.problem import Problem, fair_replicas, restart_factor
from dlsched.policies.scheduling.pollux.speedups import Model, Tables, speedup_tables


@dataclass(frozen=True, slots=True)
class RoundProblem:
    """A problem, with the rows and nodes of its jobs and columns.

    Attributes:
        problem: jobs and nodes by position.
        rows: [job] rows of the table.
        nodes: [node] nodes of the cluster.
        single: [job, on several nodes?, replicas] speedups over one GPU.
    """

    problem: Problem
    rows: Rows
    nodes: Ints
    single: Floats


def _movable(ctx: RoundContext) -> Rows:
    """Active rows that may run on any nodes, share no GPUs, and have replicas of one GPU."""
    table, rows = ctx.table, ctx.active
    special = {*table.shapes, *table.whole_nodes, *table.homes, *ctx.occupancy.beside}
    plain = np.array([row not in special for row in rows.tolist()], np.bool_)
    if ctx.perf.goodput is not None:
        for gpu_type in _types(ctx):
            plain &= ctx.perf.goodput.replica_gpus(rows, gpu_type) <= 1
    return rows[plain]


def problem_of_round(
    ctx: RoundContext, walk: Walk, options: PolluxOptions, tables: Tables
) -> RoundProblem | None:
    """The problem of this round; None when nothing could change.

    Args:
        ctx: the round.
        walk: tells which rows are protected.
        options: the variant and its limits.
        tables: speedup tables, which are kept between rounds.
    """
    occupancy = ctx.occupancy
    rows = _movable(ctx)
    nodes = np.array([n for n in range(len(occupancy.free)) if occupancy.in_service >> n & 1])
    if not len(rows) or not len(nodes):
        return None
    units = Units(ctx.table, rows, ctx.now)
    holds = np.array([row in occupancy.held for row in rows.tolist()])
    pinned = holds & _untouchable(units.rows, ctx, walk)
    model = None if ctx.perf.goodput is None else _model(units.rows, ctx)
    least, most = _bounds(units, model, ctx, options)
    order = np.lexsort((units.submit_time, _precedence(units, least, options), ~pinned))
    units, pinned = units[order], pinned[order]
    least, most = least[order], most[order]
    model = None if model is None else model.take(order)
    base = _base(units.rows, nodes, ctx)
    usable = [
        occupancy.free[node].bit_count() if occupancy.open_nodes >> node & 1 else 0
        for node in nodes.tolist()
    ]
    capacity = np.array(usable, np.int64) + base.sum(axis=0)
    gpus = int(capacity.sum())
    if not gpus or pinned.all():
        return None
    most = np.minimum(most, gpus)
    least = np.where(pinned, np.minimum(least, base.sum(axis=1)), least)
    most = np.maximum(most, np.where(pinned, base.sum(axis=1), 0))
    library = options.variant == "library"
    fair = 1 if library else fair_replicas(gpus, len(units))
    speedup, single = _speedups(units.rows, model, most, fair, ctx, tables)
    problem = Problem(
        speedup=speedup,
        weight=np.full(len(units), len(nodes) / gpus),
        factor=_factor(units, ctx, options),
        base=base,
        capacity=capacity,
        allowed=_allowed(units, nodes, ctx),
        least=np.maximum(least, 1),
        most=most,
        pinned=pinned,
        exponent=None if library else options.p,
        apart=options.avoid_interference,
        widest=options.widest,
        gpu_type=occupancy.type_of[nodes] if len(_types(ctx)) > 1 else None,
    )
    return RoundProblem(problem, units.rows, nodes, single)


def _untouchable(rows: Rows, ctx: RoundContext, walk: Walk) -> Bools:
    """Rows that must keep the GPUs that they hold."""
    if ctx.mode == "fill":
        return np.ones(len(rows), np.bool_)
    stuck = walk.is_protected(rows)
    draining, held = ctx.occupancy.draining, ctx.occupancy.held
    if draining:
        stuck = stuck | np.array(
            [
                row in held and any(draining >> node & 1 for node in held[row].nodes)
                for row in rows.tolist()
            ]
        )
    return stuck


def _precedence(units: Units, least: Ints, options: PolluxOptions) -> Floats:
    """The order of jobs: least attained service first, or (library) fewest least replicas first."""
    return least.astype(np.float64) if options.variant == "library" else units.attained


def _bounds(
    units: Units, model: Model | None, ctx: RoundContext, options: PolluxOptions
) -> tuple[Ints, Ints]:
    """The fewest and most replicas of each job.

    A job grows to at most `growth` times the replicas of its largest run, since its scaling beyond
    that is not known.
    """
    table, rows = units.table, units.rows
    gang = units.gang
    least = np.where(table.min_gpus[rows] >= 0, np.maximum(table.min_gpus[rows], 1), gang)
    most = np.where(table.max_gpus[rows] >= 0, table.max_gpus[rows], gang)
    elastic = most > least
    profiled = table.largest_scale[rows]
    if ctx.perf.goodput is not None and model is not None:
        for gpu_type in _types(ctx):
            profiled = np.maximum(profiled, ctx.perf.goodput.profiled(rows, gpu_type))
        with np.errstate(invalid="ignore", divide="ignore"):
            by_batch = np.asarray(model.limits.maximum) // np.asarray(model.limits.local_min)
        by_batch = np.where(np.isfinite(by_batch) & (by_batch >= 1), by_batch, np.inf)
        most = np.where(elastic, np.minimum(most, by_batch), most).astype(np.int64)
    reach = np.maximum((options.growth * profiled).astype(np.int64), 1)
    grown = np.minimum(np.minimum(most, reach), options.most_gpus)
    return least, np.maximum(np.where(elastic, grown, most), least)


def _types(ctx: RoundContext) -> list[str]:
    """GPU types of the nodes in service; [""] where there is only one."""
    codes = sorted({int(code) for code in ctx.occupancy.type_of})
    if len(codes) < 2:
        return [""]
    return [ctx.occupancy.cluster.gpu_types[code] for code in codes]


def _base(rows: Rows, nodes: Ints, ctx: RoundContext) -> Ints:
    """The present replicas, [job, node]."""
    place = {node: number for number, node in enumerate(nodes.tolist())}
    base = np.zeros((len(rows), len(nodes)), np.int64)
    for job, row in enumerate(rows.tolist()):
        held = ctx.occupancy.held.get(row)
        if held is not None:
            for node, mask in zip(held.nodes, held.masks, strict=True):
                base[job, place[node]] = mask.bit_count()
    return base


def _allowed(units: Units, nodes: Ints, ctx: RoundContext) -> Bools:
    """Which nodes belong to the pool of each job, [job, node]."""
    pools = {
        pool: np.array([ctx.pools.nodes[pool] >> node & 1 for node in nodes.tolist()], np.bool_)
        for pool in set(units.pool.tolist())
    }
    return np.stack([pools[pool] for pool in units.pool.tolist()])


def _factor(units: Units, ctx: RoundContext, options: PolluxOptions) -> Floats:
    """The part of each job's value that is left after a change of its row."""
    if ctx.mode == "fill":  # only rows without GPUs may change, which costs nothing
        return np.ones(len(units))
    if options.variant == "library":
        return np.full(len(units), options.keep)
    delay: Floats | float = ctx.restart_overhead
    if options.restart_s is not None:
        delay = options.restart_s
    elif ctx.perf.goodput is not None:
        measured = ctx.perf.goodput.restart_s(units.rows)
        delay = np.where(np.isfinite(measured), measured, ctx.restart_overhead)
    restarts = np.maximum(units.starts - 1, 0)
    return restart_factor(ctx.now - units.submit_time, restarts, delay)


def _speedups(
    rows: Rows, model: Model | None, most: Ints, fair: int, ctx: RoundContext, tables: Tables
) -> tuple[Floats, Floats]:
    """Tables of speedups over `fair` GPUs of one node, and over one GPU."""
    if ctx.perf.goodput is None or model is None:
        goodput = np.zeros((len(rows), 2, int(most.max(initial=1)) + 1))
        unknown = np.zeros(len(rows))
        return speedup_tables(goodput, unknown, fair), speedup_tables(goodput, unknown, 1)
    goodput = tables.goodput(rows, ctx.perf.goodput.version(rows), model, most)
    shares = model.goodput(np.array([1, 1]), np.array([1, fair]))
    single = speedup_tables(goodput, shares[:, 0], 1)
    return (speedup_tables(goodput, shares[:, 1], fair) if fair > 1 else single), single


def _model(rows: Rows, ctx: RoundContext) -> Model:
    """The goodput models of jobs; of several GPU types the one with the job's widest run."""
    belief = ctx.perf.goodput
    assert belief is not None
    types, jobs = _types(ctx), np.arange(len(rows))
    perf = np.stack([belief.perf(rows, gpu_type) for gpu_type in types])
    widest = np.stack([belief.profiled(rows, gpu_type) for gpu_type in types])
    chosen = np.where(np.isfinite(perf[:, :, 0]), widest, -1).argmax(axis=0)
    limits = [belief.limits(rows, gpu_type) for gpu_type in types]
    columns = [
        np.stack([np.broadcast_to(np.asarray(column), (len(rows),)) for column in each])
        for each in zip(*limits, strict=True)
    ]
    return Model(
        PerfParams(*perf[chosen, jobs].T),
        GradParams(*belief.grads(rows).T),
        BatchLimits(*(column[chosen, jobs] for column in columns)),
    )
