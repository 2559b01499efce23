"""From a trace to units: the columns that a replay starts with."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dlsched.core.arrays import Bools, Floats, Ints
from dlsched.core.cluster.description import Cluster
from dlsched.core.cluster.features import constraint_text, parse_constraint
from dlsched.core.cluster.pools import Pools
from dlsched.core.deadlines import SOFT, STRICT
from dlsched.core.errors import BadInput
from dlsched.core.parts import parts_of
from dlsched.core.rewards import RewardCurve
from dlsched.core.sharing.gpu_limits import Holder, RowLimits, holders_of, limits_of
from dlsched.core.units import UnitTable
from dlsched.jobs.fields import COLUMNS, CSV
from simulate import restrictions
from simulate.traces.trace import Trace

if TYPE_CHECKING:
    from simulate.profiles.jobs import Profiled

# columns of a trace that are columns of policies, by their names there
NUMBERS = {row.csv: column.name for row, column in COLUMNS.values()}


def offered_load(trace: Trace, cluster: Cluster, load: float | None = None) -> float:
    """GPU-seconds asked for, over GPUs × the span of the submits; NaN for a span of 0."""
    span = float(trace.submit_time[-1] - trace.submit_time[0]) if len(trace) else 0.0
    if span <= 0:
        return math.nan
    work = float(np.sum(np.ceil(trace.num_gpus) * parts_of(_shares(trace)) * trace.duration))
    return work * (load or 1.0) / (cluster.total_gpus * span)


def _shares(trace: Trace) -> Floats:
    """The part of each of its GPUs that each job needs; 0 where it needs all, or does not say.

    A job of 0.25 GPUs needs a quarter of one, a job of 2.5 GPUs five sixths of each of three.
    """
    gangs = np.maximum(np.ceil(trace.num_gpus), 1.0)
    shares = np.where(trace.num_gpus < gangs, trace.num_gpus / gangs, 0.0)
    said = trace.columns.get("gpu_share")
    return shares if said is None else np.where(np.isnan(said), shares, said)


def scaled_submits(submit: Floats, load: float | None) -> Floats:
    """Submit times with the gaps divided by the load factor; the first stays where it is."""
    if load is None or not len(submit):
        return submit.copy()
    first = float(submit[0])
    return np.asarray(first + (submit - first) / load)


def restarts_of(trace: Trace) -> Floats | None:
    """Seconds that a start of each job takes, NaN where unknown; None if unknown of all jobs."""
    column = trace.columns.get("restart_overhead")
    if column is None or column.dtype.kind != "f" or bool(np.isnan(column).all()):
        return None
    return np.asarray(column, np.float64)


def _codes(texts: np.ndarray[Any, Any]) -> tuple[Ints, tuple[str, ...]]:
    """Texts as codes in order of first appearance; "" is -1."""
    listed: list[str] = texts.tolist()
    names = tuple(name for name in dict.fromkeys(listed) if name)
    code = dict.fromkeys(listed, -1) | {name: place for place, name in enumerate(names)}
    return np.array([code[text] for text in listed], np.int64), names


def populate(
    trace: Trace,
    cluster: Cluster,
    *,
    load: float | None = None,
    profiled: Profiled | None = None,
    work: Floats | None = None,
) -> tuple[UnitTable, Floats, Pools, Floats]:
    """Make the table of units.

    Jobs share GPUs where `gpu_share` says so, and where they ask for fractions of a GPU; such
    fractions fill GPUs. Measured trainings share none: their fractions are rounded up.

    Args:
        trace: the jobs.
        cluster: what they run on.
        load: gaps between submits are divided by it.
        profiled: the jobs under a throughput table; jobs keep to types on which they run.
        work: how much each job has to do, where it is not counted in seconds.

    Returns:
        the units, their true work in seconds (or as the profile counts it), the pools of nodes, and
        when each becomes visible.

    Raises:
        BadInput: a job without duration, a weight below 0, or restrictions that make no sense.
    """
    count = len(trace)
    if profiled is None and work is None and np.isnan(trace.duration).any():
        row = int(np.flatnonzero(np.isnan(trace.duration))[0])
        raise BadInput(
            f"{trace.name}: job {trace.job_id[row]} has no duration and no profile is given"
        )
    units = UnitTable(count)
    units.submit_time = scaled_submits(trace.submit_time, load)
    units.gang = np.maximum(np.ceil(trace.num_gpus), 1).astype(np.int64)
    units.user, users = _codes(trace.user)
    units.vc, vcs = _codes(trace.vc)
    units.names = {"user": users, "vc": vcs, "account": vcs, "priority_class": (), "group": ()}
    units.account = units.vc  # a trace with one of the two columns means both
    for column, kind in (("account", "account"), ("class", "priority_class")):
        if column in trace.columns:
            codes, units.names[kind] = _codes(restrictions.texts(trace.columns[column]))
            setattr(units, kind, codes)
    _put_in_default_class(units, cluster)
    for name, column in NUMBERS.items():
        if name in trace.columns:
            values = _numbers(name, trace.columns[name])
            if column in ("min_gpus", "max_gpus"):
                setattr(units, column, _bounds(name, values, units.gang, trace))
            else:
                _refuse_too_small(name, values, trace)
                unknown = COLUMNS[column][1].unknown
                setattr(units, column, np.where(np.isnan(values), unknown, values))
    if work is None:
        units.gpu_share = _shares(trace)
        units.fills_gpus = bool((trace.num_gpus % 1.0 > 0).any())
    _fill_from_curves(units, trace)
    memory = trace.columns.get("gpu_memory_gib")
    if memory is not None:
        units.gpu_memory = _memory(memory, trace)
    if "group" in trace.columns:
        units.group, units.names["group"] = _codes(restrictions.texts(trace.columns["group"]))
    units.parents = restrictions.parents(trace)
    units.array_limits = restrictions.array_limits(trace)
    units.gpu_limits = _limits_of_classes(units, cluster)
    units.shapes = restrictions.layouts(trace, units.gang)
    units.whole_nodes = restrictions.whole_nodes(trace)
    reserved = {*NUMBERS, *restrictions.COLUMNS, "group", "status"}
    units.extra = {name: column for name, column in trace.columns.items() if name not in reserved}
    pools = _pools(units, trace, cluster, profiled)
    visible = units.submit_time
    if "round_delivered" in trace.columns:
        delivered = np.asarray(trace.columns["round_delivered"], np.float64)
        delivered = scaled_submits(delivered, load)
        visible = np.where(np.isnan(delivered), visible, delivered)
    visible = restrictions.not_before(trace, visible)
    if work is None:
        work = trace.duration.astype(np.float64) if profiled is None else profiled.work.copy()
    return units, work, pools, visible


def _put_in_default_class(units: UnitTable, cluster: Cluster) -> None:
    """Put jobs that name no priority class into the one that the cluster has for these."""
    default = next((each.name for each in cluster.rules.classes if each.is_default), None)
    if default is not None:
        names = tuple(dict.fromkeys((*units.names["priority_class"], default)))
        nameless = units.priority_class < 0
        units.names["priority_class"] = names
        units.priority_class = np.where(nameless, names.index(default), units.priority_class)


def _limits_of_classes(units: UnitTable, cluster: Cluster) -> RowLimits:
    """Against which limits on the GPUs of classes, and of each user in them, jobs count."""
    most = limits_of(cluster.rules.classes)
    names, users = units.names["priority_class"], (*units.names["user"], "")  # -1: the last one
    limited = {name for _, name in most}
    sets: list[tuple[Holder, ...]] = []
    set_of = np.full(len(units), -1, np.int64)
    for code, name in enumerate(names):
        mine = units.priority_class == code
        for user in np.unique(units.user[mine]).tolist() if name in limited else ():
            set_of[mine & (units.user == user)] = len(sets)
            sets.append(holders_of(most, {}, users[user], "", "", name))
    return RowLimits.of(most, sets, set_of)


def _numbers(name: str, column: np.ndarray[Any, Any]) -> Floats:
    """A column as policies see it: words of a choice become numbers."""
    if column.dtype != object:
        return np.asarray(column, np.float64)
    _, known = COLUMNS[NUMBERS[name]]
    return np.array([known.value(word or None, 0.0, 1) for word in column.tolist()], np.float64)


def _fill_from_curves(units: UnitTable, trace: Trace) -> None:
    """Deadlines, values and kinds of jobs with a reward curve, where they say none themselves."""
    curves = trace.columns.get("sla")
    if curves is None:
        return
    for row in np.flatnonzero(curves != "").tolist():
        curve = RewardCurve.of_text(curves[row])
        if curve.deadline is None:
            continue
        for column, found in (
            (units.deadline, float(curve.deadline)),
            (units.deadline_value, max(float(curve.at(curve.deadline)), 0.0)),
            (units.deadline_kind, STRICT if curve.is_strict else SOFT),
        ):
            column[row] = found if np.isnan(column[row]) else column[row]


def _memory(column: np.ndarray[Any, Any], trace: Trace) -> Floats:
    """GiB that each job needs on a GPU.

    Raises:
        BadInput: no numbers, or one below 0.
    """
    if column.dtype == np.object_ or (column < 0).any():
        row = 0 if column.dtype == np.object_ else int(np.flatnonzero(column < 0)[0])
        raise BadInput(
            f"{trace.name}: job {trace.job_id[row]} has gpu_memory_gib {column[row]}; it must be a "
            "number of at least 0"
        )
    return np.asarray(column, np.float64)


def _refuse_too_small(name: str, values: Floats, trace: Trace) -> None:
    """Refuse numbers below their bound; counts and times are as the log of a cluster has them.

    Raises:
        BadInput: names the first such job.
    """
    row = CSV[name]
    wrong = np.flatnonzero(values < row.least)
    if wrong.size and row.form == "number":
        job, value = trace.job_id[wrong[0]], values[wrong[0]]
        raise BadInput(
            f"{trace.name}: job {job} has {row.title} {value:g}; "
            f"a {row.title} is {row.least:g} or more"
        )


def _bounds(name: str, values: Floats, gang: Ints, trace: Trace) -> Ints:
    """The fewest or most GPUs of elastic jobs, -1 where unknown.

    Raises:
        BadInput: they leave out the number of GPUs that a job asks for.
    """
    least = name == "min_gpus"
    wrong = np.flatnonzero((values < 0) | ((values > gang) if least else (values < gang)))
    if wrong.size:
        row = int(wrong[0])
        raise BadInput(
            f"{trace.name}: job {trace.job_id[row]}: {name} is {values[row]:g}; it must be "
            + (f"from 0 to the {gang[row]}" if least else f"at least the {gang[row]}")
            + " GPUs it asks for"
        )
    return np.where(np.isnan(values), -1, values).astype(np.int64)


def _pools(units: UnitTable, trace: Trace, cluster: Cluster, profiled: Profiled | None) -> Pools:
    """Number the distinct (virtual cluster with nodes of its own, allowed GPU types) pairs."""
    owned = {vc.name for vc in cluster.vcs.values() if vc.nodes}
    types = trace.columns.get("gpu_type")
    bound = types is not None and len(cluster.gpu_types) > 1
    wanted = (
        restrictions.texts(types).tolist() if types is not None and bound else [""] * len(trace)
    )
    if profiled is not None and not (profiled.rate > 0).all():
        bound = True
        wanted = [_both(text, profiled.allowed(row)) for row, text in enumerate(wanted)]
    holds = ~(units.gpu_memory[:, None] > cluster.gpu_memory)  # [job, type]
    if not holds.all():
        bound = True
        wanted = [
            _both(text, _large_enough(cluster, holds[row])) for row, text in enumerate(wanted)
        ]
    asked = _constraints(trace, cluster)
    if not owned and not bound and asked is None:
        return Pools(cluster)
    keys: dict[tuple[str, ...], int] = {}
    for row, (vc, text) in enumerate(zip(trace.vc.tolist(), wanted, strict=True)):
        constraint = "" if asked is None else asked[row]
        key = (vc if vc in owned else "", _allowed_types(text), constraint)
        units.pool[row] = keys.setdefault(key, len(keys))
    return Pools(cluster, list(keys))


def _constraints(trace: Trace, cluster: Cluster) -> list[str] | None:
    """The constraints of jobs; None: no job has any, or the nodes of the cluster have no features.

    Raises:
        BadInput: one is malformed.
    """
    column = trace.columns.get("constraint")
    if column is None or not any(node.features for node in cluster.nodes):
        return None
    read: dict[str, str] = {}
    listed: list[str] = restrictions.texts(column).tolist()
    for job, text in zip(trace.job_id.tolist(), listed, strict=True):
        if text not in read:
            where = f"{trace.name}: job {job}: constraint"
            read[text] = constraint_text(parse_constraint(where, text))
    return [read[text] for text in listed]


def _both(wanted: str, runs_on: str) -> str:
    """The types that are in both lists; an empty list is all of them."""
    if not wanted or not runs_on:
        return wanted or runs_on
    can = runs_on.split("|")
    kept = [part.strip() for part in wanted.split("|") if part.strip() in can]
    return "|".join(kept) or wanted  # a contradiction shows as a job that can never run


def _large_enough(cluster: Cluster, holds: Bools) -> str:
    """The types whose GPUs hold what a job needs, joined by "|"."""
    return "|".join(
        name for name, can in zip(cluster.gpu_types, holds.tolist(), strict=True) if can
    )


def _allowed_types(text: str) -> str:
    """The types a job allows, in one spelling; a type that the cluster lacks is refused later."""
    return "|".join(part.strip() for part in str(text).split("|") if part.strip())
