"""`scontrol`: show jobs, nodes, partitions, reservations and host lists, and change them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from dlsched.core.errors import BadInput, DlschedError, not_known, shorten
from dlsched.record import Record

if TYPE_CHECKING:
    from dlsched.client.records import Detail

_ACTIONS = {
    "requeue": ("requeue",),
    "requeuehold": ("hold", "requeue"),
    "hold": ("hold",),
    "uhold": ("hold",),
    "release": ("release",),
    "suspend": ("suspend",),
    "resume": ("resume",),
}
# what `update JobId=` may set, and the option of `dlsched update` that it is
_FIELDS = {
    "TimeLimit": "time",
    "Partition": "partition",
    "Priority": "priority",
    "Nice": "nice",
    "QOS": "priority_class",
    "Account": "vc",
    "JobName": "name",
    "Name": "name",
    "Comment": "comment",
    "StartTime": "begin",
    "EligibleTime": "begin",
    "Reservation": "reservation",
    "ReservationName": "reservation",
    "Deadline": "deadline",
    "ExcNodeList": "exclude",
    "NodeList": "nodelist",
    "ReqNodeList": "nodelist",
    "MailType": "notify",
    "Gres": "gres",
    "TresPerNode": "gres",
    "Features": "constraint",
}
_OF_A_JOB = {n.lower(): n for n in ("JobId", *_FIELDS, "ArrayTaskThrottle", "Dependency")}
_OF_A_NODE = {name.lower(): name for name in ("NodeName", "State", "Reason")}
_IGNORED = (
    "-a",
    "--all",
    "-Q",
    "--quiet",
    "-v",
    "--verbose",
    "--local",
    "--hide",
    "-F",
    "--future",
)
_ONE_LINE, _DETAILS = ("-o", "--oneliner"), ("-d", "-dd", "--details")
_USE = (
    "show, write, requeue, requeuehold, hold, release, suspend, resume, update, create, delete, "
    "ping"
)


class _How(Record):
    """How `show` tells: what comes before or after its words."""

    one_line: bool = False
    details: bool = False
    json: bool = False


def scontrol(words: Sequence[str]) -> int:
    """Run one command of scontrol."""
    flags = {word for word in words if word in (*_IGNORED, *_ONE_LINE, *_DETAILS)}
    as_json = [word for word in words if word.partition("=")[0] == "--json"]
    how = _How(
        one_line=not flags.isdisjoint(_ONE_LINE),
        details=not flags.isdisjoint(_DETAILS),
        json=bool(as_json),
    )
    todo = [word for word in words if word not in flags and word not in as_json]
    if not todo:
        raise BadInput(f"give a command: {_USE}")
    if todo[0] in ("-h", "--help"):
        print(f"usage: scontrol [-o] [-d] [--json] COMMAND …\n\nOne of: {_USE}.")
        return 0
    verb, rest = todo[0].lower(), todo[1:]
    if how.json and verb != "show":
        raise BadInput(f"--json: not with {verb}; with show job, node or partition")
    if verb == "show":
        return _show(rest, how)
    if verb in _ACTIONS:
        return _act(verb, rest)
    others = {
        "write": _write,
        "update": _update,
        "create": _create,
        "delete": _delete,
        "ping": _ping,
    }
    if verb not in others:
        raise not_known("command", verb, _USE.split(", "))
    return others[verb](rest)


def _create(words: Sequence[str]) -> int:
    from dlsched.cli.slurm.reservations import create  # noqa: PLC0415

    return create(words)


def _delete(words: Sequence[str]) -> int:
    from dlsched.cli.slurm.reservations import delete  # noqa: PLC0415

    return delete(words)


def _write(words: Sequence[str]) -> int:
    """`write batch_script JOB [FILE]`: into `slurm-JOB.sh`, or to standard output for `-`."""
    if words[:1] != ["batch_script"] or not 2 <= len(words) <= 3:
        raise BadInput("write: batch_script JOB [FILE], with - for standard output")
    from dlsched.cli.jobs.job_filter import ids_of, job_filter  # noqa: PLC0415
    from dlsched.client.daemon_client import Client  # noqa: PLC0415

    job = words[1]
    ids_of([job])
    with Client() as cluster:
        found = cluster.scripts(job_filter([job]))
    script = next(iter(found.values()), b"")
    if not script:
        raise DlschedError(f"job {job}: it has no script that you may see")
    path = words[2] if len(words) > 2 else f"slurm-{job}.sh"
    if path == "-":
        sys.stdout.buffer.write(script)
        return 0
    try:
        with open(path, "wb") as file:
            file.write(script)
    except OSError as error:
        raise BadInput(f"write: {path}: {error.strerror}") from None
    print(f"batch script for job {job} written to {path}")
    return 0


# -- show ------------------------------------------------------------------------------------------


def _show(words: Sequence[str], how: _How) -> int:
    kinds: dict[str, Callable[[Sequence[str], _How], Iterator[str]]] = {
        "hostnames": _hostnames,
        "hostname": _hostnames,
        "hostlist": _hostlist,
        "hostlistsorted": _hostlist,
        "job": _jobs,
        "jobs": _jobs,
        "jobid": _jobs,
        "step": _steps,
        "steps": _steps,
        "stepid": _steps,
        "node": _nodes,
        "nodes": _nodes,
        "partition": _partitions,
        "partitions": _partitions,
        "reservation": _reservations,
        "reservations": _reservations,
        "config": _config,
    }
    what, equals, value = words[0].partition("=") if words else ("", "", "")
    kind = what.lower()
    if kind not in kinds:
        raise not_known("show", what, kinds)
    if how.json and kinds[kind] not in (_jobs, _nodes, _partitions):
        raise BadInput(f"--json: not of {kind}; of jobs, nodes and partitions")
    one_line = how.one_line and kinds[kind] not in (_hostnames, _hostlist, _config)
    for text in kinds[kind]([*([value] if equals else []), *words[1:]], how):  # as in job=7
        print(" ".join(text.split()) if one_line else text)
    return 0


def _hostnames(words: Sequence[str], how: _How) -> Iterator[str]:
    from dlsched.core.cluster.host_lists import expand  # noqa: PLC0415

    own = os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("DLSCHED_NODELIST", "")
    text = ",".join(words) if words else own
    if text:
        yield from expand("show hostnames", text)


def _hostlist(words: Sequence[str], how: _How) -> Iterator[str]:
    from dlsched.host_lists import fold  # noqa: PLC0415

    names = [name for word in words for name in word.split(",") if name]
    if not names:
        raise BadInput("show hostlist: give names: n1,n2")
    yield fold(names)


def _found(ids: Sequence[str]) -> list[Detail]:
    """All that is known of the named jobs; of all that live where none is named."""
    from dlsched.cli.jobs.job_filter import job_filter  # noqa: PLC0415
    from dlsched.client.daemon_client import Client  # noqa: PLC0415
    from dlsched.client.job_records import Job  # noqa: PLC0415

    with Client() as cluster:
        ids = ids or [
            row.shown_id if isinstance(row, Job) else str(row.first.job_id)
            for row in cluster.queue(job_filter(all_users=True), unfold=True).rows()
        ]
        return cluster.show(job_filter(ids)) if ids else []


def _jobs(words: Sequence[str], how: _How) -> Iterator[str]:
    found = _found([word.partition("=")[2] or word for word in words])
    if how.json:
        from dlsched.cli.slurm.shown.jobs_json import print_details  # noqa: PLC0415

        print_details(found)
        return
    from dlsched.cli.slurm.shown.job_text import job_lines  # noqa: PLC0415

    if not found:
        yield "No jobs in the system"
    for detail in found:
        yield "\n".join(job_lines(detail, details=how.details))


def _steps(words: Sequence[str], how: _How) -> Iterator[str]:
    from dlsched.cli.slurm.shown.job_text import step_lines  # noqa: PLC0415

    named = [word.partition("=")[2] or word for word in words]
    for detail in _found([word.partition(".")[0] for word in named]):
        for lines in step_lines(detail.job):
            step = lines[0].split()[0].removeprefix("StepId=")
            if not named or step in named or step.partition(".")[0] in named:
                yield "\n".join(lines)


def _nodes(words: Sequence[str], how: _How) -> Iterator[str]:
    from dlsched.client.daemon_client import Client  # noqa: PLC0415
    from dlsched.core.cluster.host_lists import node_names  # noqa: PLC0415

    names = node_names("node", (word.partition("=")[2] or word for word in words))
    with Client() as cluster:
        found = cluster.nodes(names)
    if how.json:
        from dlsched.cli.slurm.shown.nodes_json import print_nodes  # noqa: PLC0415

        print_nodes(found)
        return
    from dlsched.cli.slurm.shown.node_text import node_text  # noqa: PLC0415

    for node in found:
        yield node_text(node, details=how.details)


def _partitions(words: Sequence[str], how: _How) -> Iterator[str]:
    from dlsched.client.daemon_client import Client  # noqa: PLC0415

    asked = {word.partition("=")[2] or word for word in words}
    with Client() as cluster:
        found = [each.partition for each in cluster.tenants("partition")]
        nodes = cluster.nodes()
    unknown = asked - {each.name for each in found}
    if unknown:
        raise not_known("partition", min(unknown), [each.name for each in found])
    if how.json:
        from dlsched.cli.slurm.shown.nodes_json import print_partitions  # noqa: PLC0415

        print_partitions([each for each in found if not asked or each.name in asked], nodes)
        return
    from dlsched.cli.slurm.shown.node_text import partition_texts  # noqa: PLC0415

    yield from partition_texts(found, nodes, asked)
    if not found:
        yield "No partitions in the system"


def _config(words: Sequence[str], how: _How) -> Iterator[str]:
    from dlsched.cli.slurm.shown.site_text import config_lines  # noqa: PLC0415
    from dlsched.client.daemon_client import Client  # noqa: PLC0415

    with Client() as cluster:
        yield "\n".join(config_lines(cluster.status()))


def _reservations(words: Sequence[str], how: _How) -> Iterator[str]:
    from dlsched.cli.slurm.reservations import show  # noqa: PLC0415

    yield from show(words)


# -- changes ---------------------------------------------------------------------------------------


def _act(verb: str, words: Sequence[str]) -> int:
    from dlsched.cli.jobs.job_filter import ids_of, job_filter  # noqa: PLC0415
    from dlsched.cli.own_stop import outlive_own_stop  # noqa: PLC0415
    from dlsched.client.daemon_client import Client  # noqa: PLC0415

    ids = [word.partition("=")[2] or word for word in words]
    ids_of(ids)
    chosen = job_filter(ids)
    outlive_own_stop()
    with Client() as cluster:
        return max(_told(cluster.act(action, chosen).failed) for action in _ACTIONS[verb])


def _told(failed: Sequence[tuple[str, str]]) -> int:
    for subject, why in failed:
        print(f"scontrol: error: {subject}: {why}", file=sys.stderr)
    return 1 if failed else 0


def _update(words: Sequence[str]) -> int:
    from dlsched.cli.jobs.job_filter import job_filter  # noqa: PLC0415
    from dlsched.client.daemon_client import Client  # noqa: PLC0415
    from dlsched.client.submission.changes import changes, wire_dependencies  # noqa: PLC0415
    from dlsched.core.cluster.host_lists import node_names  # noqa: PLC0415

    given: dict[str, str] = {}
    typed: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise BadInput(f"update: {shorten(word)!r} is not NAME=VALUE")
        lower = {"job": "jobid", "node": "nodename"}.get(name.lower(), name.lower())
        given[lower], typed[lower] = value, name
    known = _OF_A_NODE if "nodename" in given else _OF_A_JOB
    for lower, name in typed.items():
        if lower not in known:
            raise not_known("update:", name, known.values())
    if "nodename" in given:
        names = node_names("NodeName", [given.pop("nodename")])
        return _update_nodes(names, given)
    if "jobid" not in given:
        raise BadInput("update: give JobId=… or NodeName=…")
    job = given.pop("jobid")
    chosen = job_filter([job])
    limit = given.pop("arraytaskthrottle", None)
    awaited = given.pop("dependency", None)
    words_of = {_FIELDS[known[name]]: typed[name] for name in given}
    options = {_FIELDS[known[name]]: value for name, value in given.items()}
    if "nice" in options:
        options["priority"] = f"-{options.pop('nice')}".replace("--", "")
        words_of["priority"] = words_of.pop("nice")
    if "gres" in options:
        options["gpus"] = _gpus_on_node(words_of["gres"], options.pop("gres"))
        words_of["gpus"] = words_of.pop("gres")
    if options.get("time", "")[:1] in ("+", "-"):
        options["time"] = _changed_limit(job, options["time"])
    fields = changes(options, words_of)
    if limit is not None:
        fields["array_limit"] = limit
    dependencies = None if awaited is None else wire_dependencies("Dependency", awaited)
    with Client() as cluster:
        return _told(cluster.update(chosen, fields, dependencies=dependencies).failed)


def _gpus_on_node(what: str, text: str) -> str:
    """The GPUs of Slurm's `Gres`, as `--gpus` takes them; several nodes are refused later."""
    from dlsched.client.submission.gpus import parse_gres  # noqa: PLC0415

    wish = parse_gres(what, text)
    if wish.by_type:
        raise BadInput(f"{what}={shorten(text)}: several types cannot be changed")
    return wish.text


def _changed_limit(job: str, change: str) -> str:
    """The time limit of a job that is longer (`+10`: minutes) or shorter than it is now."""
    from dlsched.cli.jobs.job_filter import job_filter  # noqa: PLC0415
    from dlsched.client.daemon_client import Client  # noqa: PLC0415
    from dlsched.client.submission.durations import duration, duration_text  # noqa: PLC0415

    seconds = duration("TimeLimit", change[1:])
    with Client() as cluster:
        found = [detail.job for detail in cluster.show(job_filter([job]))]
    limits = {each.time_limit_s for each in found if each.ended_at is None}
    if len(limits) > 1:
        raise BadInput(f"TimeLimit={change}: the jobs of {job} have several limits")
    now = limits.pop() if limits else None
    if now is None:
        raise BadInput(f"TimeLimit={change}: job {job} has no time limit")
    changed = now + seconds if change[0] == "+" else now - seconds
    if changed <= 0:  # 0 would be no limit
        raise BadInput(f"TimeLimit={change}: the limit of job {job} is {duration_text(now)}")
    return duration_text(changed)


def _update_nodes(names: Sequence[str], given: dict[str, str]) -> int:
    from dlsched.client.daemon_client import Client  # noqa: PLC0415

    state, reason = given.get("state", "").lower(), given.get("reason", "")
    action = {"drain": "drain", "resume": "resume", "idle": "resume", "undrain": "resume"}.get(
        state
    )
    if action is None:
        why = (
            "down: dlsched admin node-down NODE --confirmed" if state == "down" else "drain, resume"
        )
        raise BadInput(f"update: State={state}: {why}")
    if action == "drain" and not reason:
        raise BadInput("update: State=drain: needs Reason=…")
    with Client() as cluster:
        return _told(cluster.set_nodes(action, names, reason=reason.strip("\"'")).failed)


def _ping(words: Sequence[str]) -> int:
    from dlsched.client.daemon_client import Client  # noqa: PLC0415

    with Client() as cluster:
        cluster.status()
    print("Slurmctld(primary) is UP: it is a dlsched daemon")
    return 0
