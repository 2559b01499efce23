"""From what a client asks for to what is stored: every bound and name is checked here.

Invariant: what leaves this module fits the store's columns and the nodes' launchers, and could run
on this cluster as it is configured or present, unless the client said that it waits for another.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlsched.core.cluster.features import CONTAINER, with_feature
from dlsched.core.cluster.gpus_by_type import by_type_text, parse_by_type
from dlsched.core.errors import BadInput, NotAllowed, plural
from dlsched.daemon.capacity import Capacity
from dlsched.daemon.control import bounds
from dlsched.daemon.control.bounds import check_field
from dlsched.daemon.control.reservations import check_use
from dlsched.daemon.control.short_tasks import with_short_tasks
from dlsched.daemon.control.submission.elastic import check_in_place, elastic_size
from dlsched.daemon.control.submission.fitting import check_fits
from dlsched.daemon.control.submission.gpu_types import gpu_types_of
from dlsched.daemon.control.submission.job_dependencies import read_dependencies
from dlsched.daemon.control.submission.partitions import (
    check_access,
    host_defaults,
    partition_for,
    time_within,
)
from dlsched.daemon.control.submission.slas import check_steps, settle_deadline
from dlsched.daemon.control.sweeps import check_sweep
from dlsched.daemon.notifying.receivers import check_receivers
from dlsched.daemon.settings import Settings
from dlsched.daemon.site_rules.priority_classes import check_grace, check_time
from dlsched.daemon.tenants import Tenants, TenantsOfUser
from dlsched.db.contents import JobContent, program_of
from dlsched.db.records import ArrayShape, JobBody
from dlsched.jobs.field import Values
from dlsched.jobs.fields import BY_NAME, LEFTOVERS
from dlsched.jobs.mounts import read_mounts
from dlsched.jobs.task_sets import read_tasks
from dlsched.jobs.typed_forms import uses_leftovers
from dlsched.protocol import messages as m
from dlsched.protocol.ledger import Request
from dlsched.rpc.identity import Identity
from dlsched.rpc.job_fields import SENT, get_field
from dlsched.rpc.request_bounds import NODES_OF_A_JOB
from dlsched.rpc.v1 import control_pb2

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}")
_TERMINAL = re.compile(r"0x0|[1-9][0-9]{0,3}x[1-9][0-9]{0,3}", re.ASCII)  # 0x0: pipes
VARIABLE = re.compile(r"[^=\0]{1,1024}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidJob:
    """One job or array as it will be stored, but for ids and times."""

    body: JobBody  # without a seal
    content: JobContent
    request: Request  # request id and spec are set for each element
    array: ArrayShape | None
    held: bool
    tasks: tuple[int | None, ...] = ()  # of dependencies: the element's task number
    places: tuple[int, ...] = ()  # in the call, of the jobs that dependencies name; 0: no such
    gpus_unsaid: bool = False  # it gets GPUs because the site gives them where none is asked for

    @property
    def elements(self) -> int:
        """How many jobs these are."""
        return 1 if self.array is None else len(self.array.tasks)


def validate(
    wanted: control_pb2.JobRequest,
    common: Mapping[str, str],
    settings: Settings,
    capacity: Capacity,
    now: float,
    whose: TenantsOfUser | None = None,
) -> ValidJob:
    """A checked job; the variables of `common` are checked already.

    Raises:
        BadInput: one line that names the limit or the known values.
        NotAllowed: an account or a priority class is not for this user.
    """
    if "," in wanted.partition:
        return _in_first_partition(wanted, common, settings, capacity, now, whose)
    limits = settings.limits
    dependencies, tasks = read_dependencies(wanted.dependencies, of_call=True)
    chosen = partition_for(wanted.partition, settings)
    partition = "" if chosen is None else chosen.name
    values: Values = {row.name: check_field(row, get_field(wanted, row), now) for row in SENT}
    typed = gpu_types_of(values, partition, capacity, open_ended=wanted.open_ended)
    constraint = _for_container(wanted, typed.constraint, capacity)
    values |= {"gpu_types": typed.types, "constraint": constraint}
    unsaid = not typed.of_mixed and _says_no_gpus(values)
    if unsaid:
        values["gpus"] = settings.default_gpus(partition)
    whose = whose or TenantsOfUser(Tenants(settings), "")
    account, vc = whose.account_and_vc(wanted.vc)
    priority_class = whose.priority_class(wanted.priority_class, account)
    check_access(chosen, whose, account)
    gang, gpus = _gang(values)
    values["gpus_by_type"] = _by_type(values, gang) or typed.layout(gang or (gpus,))
    _check_range(values, gang)
    values |= host_defaults(values, chosen, gpus, len(gang or (gpus,)))
    if values["gpu_share"] is not None and wanted.exclusive:
        raise BadInput("share: a job that has its nodes for itself shares no GPUs")
    _check_guarantee(values, gpus)
    _check_target(values)
    if not gpus and (wanted.exclusive or values["gpu_share"] is not None or typed.types):
        raise BadInput("gpus: 0, so it can have no whole nodes, no share and no type of GPUs")
    settle_deadline(values, now)
    if not wanted.argv and not wanted.script:
        raise BadInput("there is neither a script nor a command")
    bounds.check_words("arguments", wanted.argv, limits.environment_bytes)
    bounds.check_count("script bytes", len(wanted.script), limits.script_bytes)
    if wanted.script and not wanted.script.startswith(b"#!"):
        raise BadInput("the script does not begin with #! and an interpreter")
    check_in_place(wanted)
    gpus, minimum, maximum = elastic_size(wanted, gpus, values["min_gpus"], values["max_gpus"])
    values |= {
        "name": values["name"] or "job",
        "partition": partition,
        "account": account,
        "vc": vc,
        "gpus": gpus,
        "min_gpus": minimum,
        "max_gpus": maximum,
        "gpu_share": _part(values["gpu_share"], limits.gpu_share),
        "only_nodes": known_nodes(wanted.only_nodes, capacity, open_ended=wanted.open_ended),
        "not_nodes": known_nodes(wanted.not_nodes, capacity, open_ended=wanted.open_ended),
        "priority_class": priority_class.name,
        "time_limit_s": check_time(
            priority_class, time_within(values["time_limit_s"], values["time_min_s"], chosen)
        ),
        "grace_s": check_grace(priority_class, values["grace_s"]),
    }
    known = whose.tenants.reservations()
    kept = check_use(values["reservation"], known, whose, account, values["time_limit_s"])
    check_receivers(settings.notifications, wanted.notify_url, wanted.mail_user)
    content = JobContent(
        argv=tuple(wanted.argv),
        script=wanted.script,
        environment=checked_environment(common, wanted.environment, limits.environment_bytes),
    )
    body = JobBody(
        **{n: _shared(n, value) for n, value in values.items() if BY_NAME[n].kept == "body"},
        program=program_of(content, values["working_directory"]),
        gang=gang,
        dependencies=dependencies,
        extra=_extra(wanted.extra),
    )
    request = Request(
        request_id=m.RequestId(""),
        gang=gang if gang is not None else (gpus,),
        mode=m.LaunchMode(values["mode"] or m.LaunchMode.BATCH),
        fence=m.Fence(values["fence"] or settings.fence),
        retries=bounds.check_whole("retries", wanted.retries, 0, limits.retries) or 0,
        gpu_retries=_gpu_retries(values["gpu_retries"], settings.faults.gpu_retries),
        limits=m.Limits(
            time_s=body.time_limit_s,
            memory_bytes=body.memory_bytes,
            cpus=None if body.cpus is None else -(-body.cpus // len(gang or (gpus,))),
        ),
        grace_s=_grace(values["grace_s"], limits.grace_s),
        suspend_level=m.SuspendLevel(values["suspend_level"] or m.SuspendLevel.FREEZE),
        requeue=body.requeue,
        timeouts=_timeouts(body, limits.timeouts),
        gpu_share=0.0 if uses_leftovers(body) else body.gpu_share,
    )
    array = with_short_tasks(wanted, _array(wanted, limits.array_size), nodes=len(request.gang))
    if body.terminal:
        _check_interactive(body, request, content.script or array)
    if not wanted.open_ended:
        check_fits(body, capacity, None if kept is None else kept.nodes)
    return ValidJob(
        body=body,
        content=content,
        request=request,
        array=array,
        held=wanted.held,
        tasks=tasks,
        gpus_unsaid=unsaid and body.gpus > 0,
    )


def _array(wanted: control_pb2.JobRequest, most: int) -> ArrayShape | None:
    """The array that a request asks for, with its sweep; None: it is a plain job."""
    array = None
    if wanted.array:
        try:
            asked = read_tasks(wanted.array, most)
        except ValueError as error:
            raise BadInput(f"array: {error}") from None
        array = ArrayShape(tasks=asked.tasks, limit=asked.limit, step=asked.step)
    sweep = check_sweep(wanted, array)
    return array if array is None or sweep is None else replace(array, sweep=sweep)


def _shared(name: str, value: Any) -> Any:
    """The same value, for a text that many jobs have as one object."""
    return sys.intern(value) if type(value) is str and name != "name" else value


def _check_interactive(
    body: JobBody, request: Request, has_more: bytes | ArrayShape | None
) -> None:
    """Refuse what an interactive job cannot be.

    Args:
        body: what it asks for.
        request: the same for the protocol.
        has_more: a script or a shape of an array, which it cannot have.

    Raises:
        BadInput: naming it.
    """
    if _TERMINAL.fullmatch(body.terminal) is None:
        raise BadInput(f"terminal {body.terminal!a}: not rows and columns, as 24x80")
    if has_more or request.mode is not m.LaunchMode.BATCH:
        raise BadInput("an interactive job is one command on its first node: no array, no script")
    if body.requeue or request.retries:
        raise BadInput("an interactive job starts once: no requeue, no retries")


def _in_first_partition(
    wanted: control_pb2.JobRequest,
    common: Mapping[str, str],
    settings: Settings,
    capacity: Capacity,
    now: float,
    whose: TenantsOfUser | None,
) -> ValidJob:
    """The job in the first of the partitions that it names which could ever run it.

    Raises:
        BadInput: none could; what is wrong with the last one.
    """
    *names, last = [name.strip() for name in wanted.partition.split(",")]
    for name in (*names, last):
        partition_for(name, settings)  # each must be known
    for name in (*names, last):
        one = control_pb2.JobRequest()
        one.CopyFrom(wanted)
        one.partition = name
        try:
            return validate(one, common, settings, capacity, now, whose)
        except (BadInput, NotAllowed):
            if name == last:
                raise
    raise AssertionError("a partition that is refused raises")


USUAL = {"priority": 0.0, "weight": 1.0}  # what a job has that says none: larger is better


def place_of(body: JobBody) -> Values:
    """A job's priority and weight, as it was submitted."""
    return {name: getattr(body, name) for name in USUAL}


def check_place(wanted: Values, present: Values, caller: Identity) -> None:
    """Refuse a user's priority or weight above what the job has, or a new job's above the usual.

    Args:
        wanted: values by name; None is the usual one.
        present: those that the job has; empty for a new job.
        caller: an operator may raise both.

    Raises:
        NotAllowed: one line that says what a user may do.
    """
    for name, usual in USUAL.items():
        if name not in wanted or caller.is_operator:
            continue
        value = usual if wanted[name] is None else wanted[name]
        most = usual if present.get(name) is None else present[name]
        if value > most:
            raise NotAllowed(
                f"{name} {value:g}: only an operator may raise a {name} above {most:g}; "
                "a lower one lets other jobs go first"
            )


def _for_container(wanted: control_pb2.JobRequest, constraint: str, capacity: Capacity) -> str:
    """The constraint of a job, which asks for a node with containers if the job has one.

    Raises:
        BadInput: no node has, or the image or its mounts are malformed.
    """
    try:
        mounts = read_mounts(wanted.container_mounts)
    except ValueError as error:
        raise BadInput(f"container mounts: {error}") from None
    if not wanted.container:
        if mounts:
            raise BadInput("container mounts: there is no container to mount them in")
        return constraint
    if wanted.container.startswith("-"):
        raise BadInput(f"container: {wanted.container!r:.60} is not an image")
    if capacity.hosts and CONTAINER not in capacity.features and not wanted.open_ended:
        raise BadInput(
            "container: no node here has Apptainer or enroot (--open-ended waits for one)"
        )
    return with_feature(constraint, CONTAINER)


def _check_guarantee(values: Values, gpus: int) -> None:
    """Refuse what a job that uses what others leave cannot have besides."""
    kind = values["guarantee"]
    if kind not in LEFTOVERS:
        return
    for name in ("gpu_share", "exclusive", "adaptive", "fixed_batch", "min_gpus", "max_gpus"):
        if values[name] not in (None, False):
            option = BY_NAME[name].options[0].words[-1]
            raise BadInput(f"guarantee: {kind}, so {option} cannot be kept")
    if not gpus:
        raise BadInput(f"guarantee: {kind}, and the job has no GPUs")


def _check_target(values: Values) -> None:
    """Refuse a training that is to end at a target which it does not name."""
    for name, sooner in (("stop_when", ("target",)), ("stop_under_load", ("target", "either"))):
        if values[name] in sooner and values["target_accuracy"] is None:
            option = BY_NAME[name].options[0].words[-1]
            raise BadInput(f"{option} {values[name]} needs the accuracy: --target-accuracy X")


def _says_no_gpus(values: Values) -> bool:
    """Whether a job asks neither for GPUs nor for anything that only GPUs have."""
    of_gpus = ("gpus", "gpus_per_node", "min_gpus", "max_gpus", "gpu_share", "gpu_types")
    named = any(values[name] not in (None, (), []) for name in of_gpus)
    return not (named or values["adaptive"] or values["fixed_batch"] or values["exclusive"])


def _gang(values: Values) -> tuple[tuple[int, ...] | None, int]:
    """GPUs a node, when said, and GPUs in all."""
    gpus, nodes, each = values["gpus"], values["nodes"], values["gpus_per_node"]
    if each is not None:
        if gpus is not None and nodes is not None and nodes * each != gpus:
            asked = f"{plural(nodes, 'node')} with {plural(each, 'GPU')} each"
            raise BadInput(f"{asked} are not {plural(gpus, 'GPU')}")
        if nodes is None and gpus is not None and gpus % each:
            raise BadInput(f"{plural(gpus, 'GPU')}: no whole number of nodes with {each} each")
        nodes = nodes or (gpus // each if gpus is not None else 1)
        bounds.check_count("nodes", nodes, NODES_OF_A_JOB)
        return (each,) * nodes, each * nodes
    if nodes is not None:
        bounds.check_count("nodes", nodes, NODES_OF_A_JOB)
        total = gpus if gpus is not None else nodes
        if 0 < total < nodes:
            raise BadInput(f"{plural(total, 'GPU')} cannot be on {plural(nodes, 'node')}")
        return tuple(total // nodes + (k < total % nodes) for k in range(nodes)), total
    return None, gpus if gpus is not None else 1


def _by_type(values: Values, gang: Sequence[int] | None) -> str:
    """How many GPUs of each type on every node, in its one spelling; empty: it is not said.

    Raises:
        BadInput: malformed, not what is asked for on each node, or what the job cannot have.
    """
    text = values["gpus_by_type"]
    if not text:
        return ""
    wanted = parse_by_type("GPUs by type", text)
    text, count = by_type_text(wanted), sum(count for _, count in wanted)
    if set(gang or ()) != {count}:
        raise BadInput(f"GPUs by type: {text} are {count}, which must be the GPUs of each node")
    if values["gpu_types"]:
        types = " or ".join(values["gpu_types"])
        raise BadInput(f"GPUs by type: {text}, and all GPUs are to be {types}")
    if values["guarantee"] in LEFTOVERS:
        raise BadInput(f"guarantee: {values['guarantee']}, so no GPUs by type can be kept ({text})")
    return text


def _check_range(values: Values, gang: tuple[int, ...] | None) -> None:
    """Settle a range of nodes: its gang is that of the smaller number.

    Raises:
        BadInput: the larger number is below it, or its nodes have not the same number of GPUs.
    """
    most = values["max_nodes"]
    if most is None:
        return
    if gang is None or most < len(gang) or len(set(gang)) > 1:
        raise BadInput(f"nodes: no range up to {most} for a gang of {gang or values['gpus']}")
    bounds.check_count("nodes", most, NODES_OF_A_JOB)
    if most == len(gang):
        values["max_nodes"] = None


def known_nodes(
    names: Sequence[str], capacity: Capacity, *, open_ended: bool = False
) -> tuple[str, ...]:
    """Nodes without repetition.

    Raises:
        BadInput: there is no such node, and the job may not wait for it.
    """
    found = tuple(dict.fromkeys(names))
    for name in found:
        bounds.check_text("node", name)
        if capacity.hosts and name not in capacity.hosts and not open_ended:
            raise BadInput(f"node {name!r} is not known")
    return found


def _part(share: float | None, least: float) -> float | None:
    """The part of a GPU; its floor is also what bounds how many jobs share one."""
    if share is not None and not share > 0:
        raise BadInput(f"share: {share:g} is not above 0 and at most 1")
    if share is not None and share < least:
        most = plural(int(1 / least), "job")
        raise BadInput(f"share: {share:g} is less than {least:g}: at most {most} on one GPU")
    return share if share != 1 else None


def _grace(grace: float | int | None, most: float) -> float:
    return 30.0 if grace is None else float(bounds.check_number("grace", grace, 0.0, most) or 0.0)


def _gpu_retries(asked: int | None, most: int) -> int:
    """How often in a row a job may start again after faults of its GPUs."""
    if asked is not None and asked > most:
        raise BadInput(f"GPU retries: {asked} are asked for, this site gives {most}")
    return most if asked is None else asked


def _timeouts(body: JobBody, most: int) -> int:
    """How often a job may start again after its time limit."""
    if not body.requeue_on_timeout:
        return 0
    if not body.requeue:
        raise BadInput("requeue on timeout: the job is never to start a second time")
    if body.time_limit_s is None:
        raise BadInput("requeue on timeout: the job has no time limit")
    if most == 0:
        raise BadInput("requeue on timeout: this site does not allow it")
    return most


def checked_environment(
    common: Mapping[str, str], own: Sequence[control_pb2.EnvironmentVariable], most: int
) -> Mapping[str, str]:
    """The checked variables of all jobs of a call, and one job's own, which override them.

    A job without own ones shares the mapping of all.

    Raises:
        BadInput: a name is malformed, or they are longer than `most` bytes.
    """
    if not own:
        return common
    variables = {**common, **{each.name: each.value for each in own}}
    for name in variables.keys() - common.keys():
        if not VARIABLE.fullmatch(name):
            raise BadInput(f"environment variable {name[:40]!r} is not a name")
    bounds.check_words("environment", (f"{k}={v}" for k, v in variables.items()), most)
    return variables


_NO_COLUMNS: Mapping[str, str] = {}  # one object for the many jobs without


def _extra(columns: Mapping[str, str]) -> Mapping[str, str]:
    bounds.check_count("further columns", len(columns), 64)
    for name, value in columns.items():
        if not NAME.fullmatch(name):
            raise BadInput(f"column {name[:40]!r} is not a name")
        bounds.check_text(f"column {name}", value)
    check_steps(columns)
    return dict(sorted(columns.items())) if columns else _NO_COLUMNS
