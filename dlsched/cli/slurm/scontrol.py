"""`scontrol`: show jobs, nodes, partitions, reservations and host lists, and change them."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from dlsched.core.errors import BadInput, not_known, shorten

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
_FLAGS = ("-o", "--oneliner", "-a", "--all", "-d", "-dd", "--details", "-Q", "--quiet")
_USE = "show, requeue, requeuehold, hold, release, suspend, resume, update, create, delete, ping"


def scontrol(words: Sequence[str]) -> int:
    """Run one command of scontrol."""
    todo = [word for word in words if word not in _FLAGS]
    one_line = len(todo) < len(words) and bool({"-o", "--oneliner"} & set(words))
    if not todo:
        raise BadInput(f"give a command: {_USE}")
    if todo[0] in ("-h", "--help"):
        print(f"usage: scontrol [-o] COMMAND …\n\nOne of: {_USE}.")
        return 0
    verb, rest = todo[0].lower(), todo[1:]
    if verb == "show":
        return _show(rest, one_line=one_line)
    if verb in _ACTIONS:
        return _act(verb, rest)
    if verb == "update":
        return _update(rest)
    if verb in ("create", "delete"):
        from dlsched.cli.slurm import reservations  # noqa: PLC0415

        return reservations.create(rest) if verb == "create" else reservations.delete(rest)
    if verb == "ping":
        return _ping()
    raise not_known("command", verb, _USE.split(", "))


# -- show ------------------------------------------------------------------------------------------


def _show(words: Sequence[str], *, one_line: bool) -> int:
    kinds: dict[str, Callable[[Sequence[str]], Iterator[str]]] = {
        "hostnames": _hostnames,
        "hostname": _hostnames,
        "hostlist": _hostlist,
        "job": _jobs,
        "jobs": _jobs,
        "jobid": _jobs,
        "node": _nodes,
        "nodes": _nodes,
        "partition": _partitions,
        "partitions": _partitions,
        "reservation": _reservations,
        "reservations": _reservations,
    }
    what, equals, value = words[0].partition("=") if words else ("", "", "")
    kind = what.lower()
    if kind not in kinds:
        raise not_known("show", what, kinds)
    for text in kinds[kind]([*([value] if equals else []), *words[1:]]):  # as in job=7
        print(" ".join(text.split()) if one_line and not kind.startswith("host") else text)
    return 0


def _hostnames(words: Sequence[str]) -> Iterator[str]:
    from dlsched.core.cluster.host_lists import expand  # noqa: PLC0415

    own = os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("DLSCHED_NODELIST", "")
    text = ",".join(words) if words else own
    if text:
        yield from expand("show hostnames", text)


def _hostlist(words: Sequence[str]) -> Iterator[str]:
    from dlsched.host_lists import fold  # noqa: PLC0415

    names = [name for word in words for name in word.split(",") if name]
    if not names:
        raise BadInput("show hostlist: give names: n1,n2")
    yield fold(names)


def _jobs(words: Sequence[str]) -> Iterator[str]:
    from dlsched.cli.jobs.job_filter import job_filter  # noqa: PLC0415
    from dlsched.client.daemon_client import Client  # noqa: PLC0415
    from dlsched.client.job_records import Job  # noqa: PLC0415

    with Client() as cluster:
        ids = [word.partition("=")[2] or word for word in words]
        if not ids:
            ids = [
                row.shown_id if isinstance(row, Job) else str(row.first.job_id)
                for row in cluster.queue(job_filter(all_users=True), unfold=True).rows()
            ]
        if not ids:
            yield "No jobs in the system"
            return
        for detail in cluster.show(job_filter(ids)):
            yield "\n".join(_job_lines(detail))


def _job_lines(detail: object) -> Iterator[str]:
    from dlsched.cli.jobs.job_columns import exit_text  # noqa: PLC0415
    from dlsched.cli.slurm.formats import moment  # noqa: PLC0415
    from dlsched.cli.slurm.queue_cells import asked_features, asked_gres  # noqa: PLC0415
    from dlsched.cli.slurm.sacct import CELLS  # noqa: PLC0415
    from dlsched.cli.slurm.sacct_steps import Line  # noqa: PLC0415
    from dlsched.client.records import Detail  # noqa: PLC0415
    from dlsched.host_lists import fold  # noqa: PLC0415

    assert isinstance(detail, Detail)
    job = detail.job
    asked = job.asked
    array = ""
    if job.array_job_id is not None:
        array = f" ArrayJobId={job.array_job_id} ArrayTaskId={job.array_task_id}"
    nodes = max(1, len(job.nodes) or len(job.gang))
    reason = (job.reason or "None").partition(":")[0]
    state = {"STARTING": "CONFIGURING"}.get(job.state, job.state)
    tasks = asked.get("ntasks") or 1
    features = asked_features(job.asked, job.gpu_types)
    yield f"JobId={job.job_id}{array} JobName={job.name or ''}"
    account = job.account or job.vc or ""
    yield (
        f"   UserId={_with_number(job.user)} Account={account} QOS={job.priority_class or ''}\n"
        f"   Priority={job.priority or 0:g} Nice={-(job.priority or 0):g}"
    )
    yield (
        f"   JobState={state} Reason={reason} Dependency={','.join(job.dependencies) or '(null)'}"
    )
    yield (
        f"   Requeue={int(asked.get('requeue', True) is not False)} "
        f"Restarts={max(0, job.starts - 1)} BatchFlag=1 "
        f"ExitCode={exit_text(job).replace('-', '0:0')}"
    )
    line = Line(job)
    yield (
        f"   RunTime={CELLS['Elapsed'].text(line)} TimeLimit={CELLS['Timelimit'].text(line)}\n"
        f"   SubmitTime={moment(job.submitted_at)} EligibleTime={CELLS['Eligible'].text(line)}"
    )
    start = job.started_at if job.started_at is not None else job.predicted_start_at
    yield (
        f"   StartTime={moment(start)} EndTime={moment(job.ended_at)} "
        f"Deadline={moment(job.deadline_at, 'N/A')}"
    )
    yield f"   Partition={job.partition or '(null)'}"
    yield f"   NodeList={fold(job.nodes) or '(null)'}"
    if job.nodes:
        yield f"   BatchHost={job.nodes[0]}"
    yield (
        f"   NumNodes={nodes} NumCPUs={asked.get('cpus') or 1} NumTasks={tasks} "
        f"CPUs/Task={asked.get('cpus_per_task') or 1}"
    )
    yield f"   TRES={CELLS['AllocTRES'].text(line)} Features={features}"
    memory = asked.get("memory_bytes")
    if isinstance(memory, int):
        yield f"   MinMemoryNode={memory >> 20}M"
    only, without = (asked.get(name) for name in ("only_nodes", "not_nodes"))
    yield f"   ReqNodeList={_hosts(only)} ExcNodeList={_hosts(without)}"
    if detail.command or detail.has_script:
        yield f"   Command={' '.join(detail.command) or detail.wrap or '(script)'}"
    yield f"   WorkDir={detail.working_directory or ''}"
    folder = detail.working_directory or ""
    yield f"   StdErr={os.path.join(folder, detail.error or detail.output or '')}"
    yield f"   StdOut={os.path.join(folder, detail.output or '')}"
    if gres := asked_gres(job.gang, job.gpus, job.gpus_by_type):
        yield f"   TresPerNode={gres}"
    if job.comment:
        yield f"   Comment={job.comment}"
    yield ""


def _with_number(user: str | None) -> str:
    """As Slurm has it: `alice(1002)`; the name alone where this machine does not know it."""
    import pwd  # noqa: PLC0415

    try:
        return f"{user}({pwd.getpwnam(user or '').pw_uid})"
    except KeyError:
        return user or ""


def _hosts(names: object) -> str:
    from dlsched.host_lists import fold  # noqa: PLC0415

    return fold(names) if isinstance(names, list | tuple) and names else "(null)"


def _nodes(words: Sequence[str]) -> Iterator[str]:
    from dlsched.cli.slurm.formats import moment  # noqa: PLC0415
    from dlsched.cli.slurm.sinfo import features, gpus_by_type, gres, long_state  # noqa: PLC0415
    from dlsched.client.daemon_client import Client  # noqa: PLC0415
    from dlsched.core.cluster.host_lists import node_names  # noqa: PLC0415

    names = node_names("node", (word.partition("=")[2] or word for word in words))
    with Client() as cluster:
        for node in cluster.nodes(names):
            busy = ",".join(f"gpu:{kind}{len(used)}" for kind, _, used in gpus_by_type(node))
            cpus, memory = node.cpus or 0, (node.memory_bytes or 0) >> 20
            held, held_memory = math.ceil(node.cpus_held), node.memory_held_bytes >> 20
            by = f"[{node.reason_by or 'Unknown'}@{moment(node.reason_at)}]"
            why = f"   Reason={node.reason} {by}\n" if node.reason else ""
            yield (
                f"NodeName={node.name} NodeAddr={node.address or ''}"
                f" Version={node.agent_version or ''}\n"
                f"   CPUAlloc={held} CPUEfctv={cpus} CPUTot={cpus} CPULoad=N/A\n"
                f"   AvailableFeatures={features(node)} ActiveFeatures={features(node)}\n"
                f"   Gres={gres(node)} GresUsed={busy}\n"
                f"   RealMemory={memory} AllocMem={held_memory} FreeMem=N/A\n"
                f"   State={long_state(node).upper()} Partitions={','.join(node.partitions)}\n"
                f"   CfgTRES=cpu={cpus},mem={memory}M,gres/gpu={node.gpus}\n"
                f"   AllocTRES=cpu={held},mem={held_memory}M,gres/gpu={node.busy_gpus}\n{why}"
            )


def _partitions(words: Sequence[str]) -> Iterator[str]:
    from dlsched.client.daemon_client import Client  # noqa: PLC0415
    from dlsched.client.submission.durations import duration_text  # noqa: PLC0415
    from dlsched.host_lists import fold  # noqa: PLC0415

    asked = {word.partition("=")[2] or word for word in words}
    with Client() as cluster:
        found = [each.partition for each in cluster.tenants("partition")]
        nodes = cluster.nodes()  # those of a partition that names none
    for each in found:
        if asked and each.name not in asked:
            continue
        limit = duration_text(each.max_time_s) if each.HasField("max_time_s") else "UNLIMITED"
        usual = duration_text(each.default_time_s) if each.HasField("default_time_s") else "NONE"
        default = "YES" if each.is_default else "NO"
        accounts, groups = ",".join(each.accounts) or "ALL", ",".join(each.groups) or "ALL"
        yield (
            f"PartitionName={each.name}\n   AllowGroups={groups} AllowAccounts={accounts}\n"
            f"   Default={default} DefaultTime={usual} MaxTime={limit}\n"
            f"   Nodes={each.nodes or fold([node.name for node in nodes])}\n   State=UP\n"
        )
    if not found and not asked:
        yield "No partitions in the system"
    unknown = asked - {each.name for each in found}
    if unknown:
        raise not_known("partition", min(unknown), [each.name for each in found])


def _reservations(words: Sequence[str]) -> Iterator[str]:
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
        given[name.lower()], typed[name.lower()] = value, name
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


def _ping() -> int:
    from dlsched.client.daemon_client import Client  # noqa: PLC0415

    with Client() as cluster:
        cluster.status()
    print("Slurmctld(primary) is UP: it is a dlsched daemon")
    return 0
