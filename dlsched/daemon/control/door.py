"""From what a client asks for to what is stored: every bound and name is checked here.

Invariant: what leaves this module fits the store's columns and the nodes' launchers, and could run
on this cluster as it is configured or present, unless the client said that it waits for another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, TypeVar

from dlsched.core.errors import BadInput
from dlsched.daemon.control import bounds
from dlsched.daemon.control.arrays import parse_array
from dlsched.daemon.control.capacity import Capacity
from dlsched.daemon.control.depending import read_dependencies
from dlsched.daemon.control.elastic import elastic_size
from dlsched.daemon.settings import Settings
from dlsched.daemon.tenants import Tenants
from dlsched.db.records import ArrayShape, JobBody
from dlsched.protocol.ledger import Request
from dlsched.protocol.messages import (
    Fence,
    LaunchMode,
    Limits,
    RequestId,
    SuspendLevel,
)
from dlsched.rpc.conversion import ENUMS, wire_name
from dlsched.rpc.v1 import control_pb2

__all__ = ["Asked", "admit", "check_fits"]

E = TypeVar("E", bound=Enum)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}")
VARIABLE = re.compile(r"[^=\0]{1,1024}")
Resolve = Callable[[str], tuple[str, str]]  # account and vc, from the name that a job gives
MOST_GPUS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One job or array as it will be stored, but for ids and times."""

    body: JobBody
    request: Request  # request id and spec are set for each element
    array: ArrayShape | None
    held: bool
    tasks: tuple[int | None, ...] = ()  # of dependencies: the element's task number


def admit(
    wanted: control_pb2.JobRequest,
    common: Sequence[control_pb2.EnvironmentVariable],
    settings: Settings,
    capacity: Capacity,
    now: float,
    resolve: Resolve | None = None,
) -> Asked:
    """A checked job.

    Raises:
        BadInput: one line that names the limit or the known values.
    """
    limits = settings.limits
    dependencies, tasks = read_dependencies(wanted.dependencies)
    partition = _partition(wanted.partition, settings)
    bounds.check_text("vc", wanted.vc)
    account, vc = (resolve or partial(Tenants(settings).resolve, ""))(wanted.vc)
    gang, gpus = _gang(wanted)
    share = _share(_maybe(wanted, "share"))
    if share is not None and wanted.exclusive:
        raise BadInput("share: a job that has its nodes for itself shares no GPUs")
    time_limit = bounds.check_number("time limit", _maybe(wanted, "time_limit_s"), 1.0)
    time_limit = _within_partition(time_limit, partition, settings)
    begin_at = bounds.check_number("begin", _maybe(wanted, "begin_at"), 0.0, now + bounds.LONGEST_S)
    deadline = bounds.check_number(
        "deadline", _maybe(wanted, "deadline_at"), 0.0, now + bounds.LONGEST_S
    )
    if deadline is not None and deadline <= now:
        raise BadInput("deadline: it has passed already")
    if not wanted.argv and not wanted.script:
        raise BadInput("there is neither a script nor a command")
    bounds.check_words("arguments", wanted.argv, limits.environment_bytes)
    bounds.check_count("script bytes", len(wanted.script), limits.script_bytes)
    if wanted.script and not wanted.script.startswith(b"#!"):
        raise BadInput("the script does not begin with #! and an interpreter")
    minimum = bounds.check_whole("min gpus", _maybe(wanted, "min_gpus"), 1, MOST_GPUS)
    maximum = bounds.check_whole("max gpus", _maybe(wanted, "max_gpus"), 1, MOST_GPUS)
    gpus, minimum, maximum = elastic_size(wanted, gpus, minimum, maximum)
    body = JobBody(
        name=bounds.check_text("name", wanted.name or "job", 1024),
        argv=tuple(wanted.argv),
        script=wanted.script,
        working_directory=bounds.check_text("working directory", wanted.working_directory, 4096),
        output=bounds.check_text("output", wanted.output, 4096),
        error=bounds.check_text("error", wanted.error, 4096),
        truncate=wanted.truncate,
        environment=_environment(common, wanted.environment, limits.environment_bytes),
        partition=partition,
        account=account,
        vc=vc,
        priority_class=bounds.check_text("priority class", wanted.priority_class),
        priority=bounds.check_number("priority", _maybe(wanted, "priority"), -1e15, 1e15),
        gang=gang,
        gpus=gpus,
        gpu_types=_types(wanted.gpu_types, capacity, wanted.open_ended),
        min_gpus=minimum,
        max_gpus=maximum,
        share=share,
        cpus=bounds.check_whole("cpus", _maybe(wanted, "cpus"), 1, 1_000_000_000),
        memory_bytes=bounds.check_whole("memory", _maybe(wanted, "memory_bytes"), 1, 1 << 60),
        only_nodes=_nodes(wanted.only_nodes, capacity, wanted.open_ended),
        not_nodes=_nodes(wanted.not_nodes, capacity, wanted.open_ended),
        exclusive=wanted.exclusive,
        time_limit_s=time_limit,
        begin_at=begin_at,
        deadline_at=deadline,
        warn_signal=bounds.check_whole("signal", wanted.warn_signal, 0, 64) or 0,
        warn_before_s=bounds.check_number("warning", wanted.warn_before_s) or 0.0,
        requeue=not wanted.no_requeue,
        dependencies=dependencies,
        keep_on_broken_dependency=wanted.broken_dependency == control_pb2.BROKEN_KEEP,
        model=bounds.check_text("model", wanted.model),
        batch_size=bounds.check_number("batch size", _maybe(wanted, "batch_size"), 0.0, 1e15),
        total_iterations=bounds.check_number(
            "total iterations", _maybe(wanted, "total_iterations"), 0.0, 1e18
        ),
        weight=bounds.check_number("weight", _maybe(wanted, "weight"), 0.0, 1e15),
        expected_s=bounds.check_number("expected time", _maybe(wanted, "expected_s")),
        comment=bounds.check_text("comment", wanted.comment, 4096, lines=True),
        notify=bounds.check_text("notify", wanted.notify, 4096),
        slurm_environment=not wanted.no_slurm_environment,
        extra=_extra(wanted.extra),
        adaptive=wanted.adaptive,
        fixed_batch=wanted.fixed_batch,
        submit_host=bounds.check_text("submit host", wanted.submit_host),
    )
    request = Request(
        request_id=RequestId(""),
        gang=gang if gang is not None else (gpus,),
        mode=_word(LaunchMode, wanted.mode, LaunchMode.BATCH),
        fence=_word(Fence, wanted.fence, settings.fence),
        retries=bounds.check_whole("retries", wanted.retries, 0, limits.retries) or 0,
        limits=Limits(time_s=time_limit, memory_bytes=body.memory_bytes, cpus=body.cpus),
        grace_s=_grace(_maybe(wanted, "grace_s"), limits.grace_s),
        suspend_level=_word(SuspendLevel, wanted.suspend_level, SuspendLevel.FREEZE),
        requeue=not wanted.no_requeue,
        gpu_share=body.share,
    )
    array = parse_array(wanted.array, limits.array_size) if wanted.array else None
    if not wanted.open_ended:
        check_fits(body, capacity)
    return Asked(
        body=body,
        request=request,
        array=array,
        held=wanted.held,
        tasks=tasks,
    )


def check_fits(body: JobBody, capacity: Capacity) -> None:
    """Refuse a gang that no state of this cluster could hold.

    Raises:
        BadInput: naming what is asked for and what there is.
    """
    if not capacity.hosts:
        return  # no node is known yet: nothing can be said
    types = {name.lower() for name in body.gpu_types}
    hosts = [
        host
        for host in capacity.hosts.values()
        if (not body.partition or not host.partitions or body.partition in host.partitions)
        and (not types or not host.gpu_type or host.gpu_type.lower() in types)
        and (not body.only_nodes or host.name in body.only_nodes)
        and host.name not in body.not_nodes
        and (
            body.memory_bytes is None
            or host.memory_bytes is None
            or host.memory_bytes >= body.memory_bytes
        )
    ]
    there = sorted((host.gpus for host in hosts), reverse=True)
    where = " of that kind" if types or body.only_nodes or body.partition else ""
    least = body.min_gpus if body.min_gpus is not None else body.gpus
    if body.gang is None:
        if sum(there) < least:
            raise BadInput(
                f"needs {least} GPUs, and the cluster has {sum(there)}{where} "
                "(--open-ended waits for more)"
            )
        return
    needs = sorted(body.gang, reverse=True)
    if len(needs) > len(there) or any(a > b for a, b in zip(needs, there, strict=False)):
        raise BadInput(
            f"needs {len(needs)} nodes with {needs[0]} GPUs each at most; the cluster has "
            f"{len(there)} nodes{where}, the largest with {there[0] if there else 0} "
            "(--open-ended waits for others)"
        )


def _maybe(message: control_pb2.JobRequest, name: str) -> Any:
    """A field's value, or none when it is not said."""
    return getattr(message, name) if message.HasField(name) else None


def _gang(wanted: control_pb2.JobRequest) -> tuple[tuple[int, ...] | None, int]:
    """GPUs a node, when said, and GPUs in all."""
    gpus = bounds.check_whole("gpus", _maybe(wanted, "gpus"), 1, MOST_GPUS)
    nodes = bounds.check_whole("nodes", _maybe(wanted, "nodes"), 1, 100_000)
    each = bounds.check_whole("gpus per node", _maybe(wanted, "gpus_per_node"), 1, 1024)
    if each is not None:
        if gpus is not None and nodes is not None and nodes * each != gpus:
            raise BadInput(f"{nodes} nodes with {each} GPUs each are not {gpus} GPUs")
        if nodes is None and gpus is not None and gpus % each:
            raise BadInput(f"{gpus} GPUs are no whole number of nodes with {each} each")
        nodes = nodes or (gpus // each if gpus is not None else 1)
        return (each,) * nodes, each * nodes
    if nodes is not None:
        total = gpus if gpus is not None else nodes
        if total < nodes:
            raise BadInput(f"{total} GPUs cannot be on {nodes} nodes")
        return tuple(total // nodes + (k < total % nodes) for k in range(nodes)), total
    return None, gpus if gpus is not None else 1


def _partition(name: str, settings: Settings) -> str:
    if not name:
        return settings.default_partition()
    known = [partition.name for partition in settings.partitions]
    if name not in known:
        bounds.check_text("partition", name)
        raise BadInput(f"partition {name!r} is not known; known: {', '.join(known) or 'none'}")
    return name


def _within_partition(limit: float | None, partition: str, settings: Settings) -> float | None:
    most = next((p.max_time_s for p in settings.partitions if p.name == partition), None)
    if most is not None and limit is not None and limit > most:
        raise BadInput(f"time limit: {limit:g} s is above partition {partition}'s, {most:g} s")
    return limit if limit is not None else most


def _types(names: Sequence[str], capacity: Capacity, open_ended: bool) -> tuple[str, ...]:
    known = capacity.types
    found = []
    for name in names:
        bounds.check_text("GPU type", name, 64)
        if name.lower() not in known and not open_ended and capacity.hosts:
            shown = ", ".join(sorted(known.values())) or "none"
            raise BadInput(f"GPU type {name!r} is not known; known: {shown}")
        found.append(known.get(name.lower(), name))
    return tuple(found)


def _nodes(names: Sequence[str], capacity: Capacity, open_ended: bool) -> tuple[str, ...]:
    bounds.check_count("nodes named", len(names), 100_000)
    for name in names:
        bounds.check_text("node", name)
        if capacity.hosts and name not in capacity.hosts and not open_ended:
            raise BadInput(f"node {name!r} is not known")
    return tuple(names)


def _share(share: float | int | None) -> float | None:
    if share is not None and not 0 < share <= 1:
        raise BadInput(f"share: {share:g} is not above 0 and at most 1")
    return share if share != 1 else None


def _grace(grace: float | int | None, most: float) -> float:
    return 30.0 if grace is None else float(bounds.check_number("grace", grace, 0.0, most) or 0.0)


def _environment(
    common: Sequence[control_pb2.EnvironmentVariable],
    own: Sequence[control_pb2.EnvironmentVariable],
    most: int,
) -> dict[str, str]:
    variables = {each.name: each.value for each in (*common, *own)}
    for name in variables:
        if not VARIABLE.fullmatch(name):
            raise BadInput(f"environment variable {name[:40]!r} is not a name")
    bounds.check_words("environment", [f"{k}={v}" for k, v in variables.items()], most)
    return variables


def _extra(columns: Mapping[str, str]) -> dict[str, str]:
    bounds.check_count("further columns", len(columns), 64)
    for name, value in columns.items():
        if not NAME.fullmatch(name):
            raise BadInput(f"column {name[:40]!r} is not a name")
        bounds.check_text(f"column {name}", value)
    return dict(sorted(columns.items()))


def _word(wanted: type[E], number: int, default: E) -> E:
    """An enumeration's value from the wire; 0 is not said."""
    if number == 0:
        return default
    for value in wanted:
        if ENUMS[wanted].Value(wire_name(value)) == number:
            return value
    raise BadInput(f"{wanted.__name__} {number} is not known to this version")
