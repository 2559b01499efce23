"""Nodes: shown, drained, taken back, confirmed as down; and their orphans, shown and ended."""

from __future__ import annotations

from collections.abc import Iterable

from dlsched.core.errors import BadInput
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.bounds import LONGEST_S, check_count, check_number, check_text
from dlsched.daemon.control.job_filters import subject
from dlsched.daemon.enforcing.enforcement import evict
from dlsched.daemon.live.nodes import natural
from dlsched.daemon.nodes.agents import Described
from dlsched.db.records import Drained, Event
from dlsched.nodes.fields import REPORTED
from dlsched.protocol import leader
from dlsched.protocol.ledger import Run
from dlsched.protocol.messages import GpuId, JobId, NodeName, RunId
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import boottime, wall

MOST_ORPHANS = 1000  # that one call ends, and jobs whose runs it confirms as over
LONGEST_ID = 18  # digits


def nodes(cluster: Cluster, request: control_pb2.NodesRequest) -> control_pb2.NodesReply:
    """The nodes that are named, or all; also configured ones that never registered."""
    known, named = cluster.driver.committed.nodes, cluster.settings.configured_nodes()
    names = list(dict.fromkeys(request.names)) or sorted({*known, *named}, key=natural)
    reply = control_pb2.NodesReply()
    for name in names:
        if name in known:
            reply.nodes.append(_view(cluster, NodeName(name)))
        elif name in named:
            reply.nodes.add(name=name, state="down", why="never registered")
        else:
            raise BadInput(f"node {name!r} is not known")
    return reply


def _view(cluster: Cluster, name: NodeName) -> control_pb2.NodeView:
    ledger = cluster.driver.committed
    node = ledger.nodes[name]
    live = cluster.live.nodes.get(name)
    described = cluster.agents.described.get(name)
    drained = cluster.drained.get(name)
    runs = ledger.runs_on(name)
    holder: dict[GpuId, list[int]] = {}
    for run in (each for each in runs if not each.is_away):
        for gpu in run.members[name].gpus:
            holder.setdefault(gpu, []).append(run.key.job)
    view = control_pb2.NodeView(
        name=name,
        state=cluster.node_state(name),
        why=drained.reason if drained is not None else node.why,
        gpu_type=live.gpu_type if live is not None else "",
        gpus=len(node.gpus),
        busy_gpus=len(set(holder) & set(node.gpus)),
        partitions=cluster.settings.partitions_of(name),
        features=cluster.live.rules.features.get(name, ()),
        address=cluster.address(name),
    )
    view.cpus_held, view.memory_held_bytes = _held_on(cluster, name, runs)
    for job in sorted({run.key.job for run in runs}):
        view.jobs.append(job)
        view.job_names.append(subject(ledger.jobs[job], cluster))
    if drained is not None:
        view.why_actor, view.why_at = drained.actor, drained.at
    ago = cluster.synced_ago(name, boottime())
    if ago is not None:
        view.heard_ago_s = ago
    problems = described.problems if described is not None else ()
    if view.state in ("late", "unheard") and not problems:
        view.why = view.why or (
            f"not heard for {ago:.0f} s" if ago is not None else "not heard by this leader yet"
        )
    more = [cluster.refusal(name, boottime()), cluster.fencing.words(name)]
    more += [words for words, _ in cluster.mismatches(name)]
    more += problems
    more += _faulty_gpus(cluster, name, described)
    more += [
        f"a process of job {run.key.job} cannot be killed"
        for run in cluster.driver.committed.stuck_runs_on(name)
    ]
    more = [words for words in more if words not in view.why]
    view.why = "; ".join(filter(None, (view.why, *more)))
    if described is not None:
        facts = described.facts
        for row in REPORTED.values():
            if row.shown and (value := getattr(facts, row.reported)):
                setattr(view, row.shown, value)
        view.launcher = facts.launcher
        view.agent_version = facts.version
        view.capabilities.extend(facts.capabilities)
    unhealthy = cluster.unhealthy.get(name, frozenset())
    for index, gpu in enumerate(node.gpus):
        _device(view, index, gpu, holder.get(gpu, []), gpu in node.quarantined, gpu in unhealthy)
        if described is not None:
            _measured(view.devices[-1], described)
    return view


def _faulty_gpus(cluster: Cluster, name: NodeName, described: Described | None) -> list[str]:
    """The GPUs of a node that get no job because of a fault, each with what is wrong with it."""
    if described is None:
        return []
    index_of = {gpu.uuid: gpu.index for gpu in described.facts.gpus}
    return [
        f"GPU {index_of[gpu]}: {described.uses[gpu].problem}"
        for gpu in sorted(cluster.unhealthy.get(name, ()), key=lambda gpu: index_of.get(gpu, 0))
        if gpu in described.uses and gpu in index_of and described.uses[gpu].problem
    ]


def _held_on(cluster: Cluster, name: NodeName, runs: Iterable[Run]) -> tuple[float, int]:
    """Processors and bytes of memory of a node that the jobs of its runs have.

    A job that says nothing of processors counts with one on each node, as in `sacct`.
    """
    cpus, memory = 0.0, 0
    for run in runs:
        row, members = cluster.driver.committed.jobs[run.key.job], run.members
        gpus = sum(len(member.gpus) for member in members.values())
        part = len(members[name].gpus) / gpus if gpus else 1 / len(members)
        asked = cluster.driver.table.field(row, "cpus")
        cpus += asked * part if asked else 1
        memory += cluster.driver.table.field(row, "memory_bytes") or 0
    return cpus, memory


def _device(
    view: control_pb2.NodeView,
    index: int,
    gpu: GpuId,
    jobs: list[int],
    quarantined: bool,
    unhealthy: bool,
) -> None:
    state = "busy" if jobs else "free"
    if quarantined:
        state = "quarantined"
    elif unhealthy:
        state = "unhealthy"
    view.devices.add(index=index, uuid=gpu, type=view.gpu_type, state=state, jobs=jobs)


def _measured(device: control_pb2.GpuView, described: Described) -> None:
    for facts in described.facts.gpus:
        if facts.uuid == device.uuid:
            device.index = facts.index
            if facts.type:
                device.type = facts.type
            if facts.memory_bytes:
                device.memory_bytes = facts.memory_bytes
    use = described.uses.get(device.uuid)
    if use is None:
        return
    for name in ("utilization", "memory_used_bytes", "temperature_c"):
        if use.HasField(name):
            setattr(device, name, getattr(use, name))
    if use.problem:
        device.why = use.problem
    if use.foreign and device.state == "free":
        device.state = "foreign"


async def set_nodes(
    cluster: Cluster, request: control_pb2.SetNodesRequest, caller: Identity
) -> control_pb2.ActReply:
    """Drain nodes, take them back, or confirm that they are down.

    Raises:
        BadInput: one line that says what is wrong with the request.
    """
    driver = cluster.driver
    driver.require_lead()
    check_text("reason", request.reason, 1024)
    if not request.names:
        raise BadInput("name the nodes")
    if request.action == control_pb2.NODE_ACTION_DRAIN and not request.reason:
        raise BadInput("drain: a reason is required")
    reply, now = control_pb2.ActReply(), wall()
    names = list(dict.fromkeys(request.names))
    known = [name for name in names if name in driver.committed.nodes]
    for name in names:
        if name not in driver.committed.nodes:
            reply.failed.add(subject=f"node {name}", why="there is no such node")
    for text in known:
        name = NodeName(text)
        down = request.action == control_pb2.NODE_ACTION_DOWN_CONFIRMED
        if down and (alive := _sign_of_life(driver.state, name)):
            reply.failed.add(subject=f"node {name}", why=alive)
            continue
        events, line = _change(cluster, request, name, caller, now)
        ask = tuple(events)
        await driver.ask(
            lambda token, ask=ask: leader.Together(  # type: ignore[misc]
                boottime(), (*ask, leader.AttachAsked(boottime(), (), token))
            )
        )
        if request.action == control_pb2.NODE_ACTION_DRAIN:
            evict(cluster)
        elif request.action == control_pb2.NODE_ACTION_RESUME:
            cluster.failed_starts.forget(name)
        reply.done.append(name)
        reply.lines.append(line)
    return reply


async def orphans(
    cluster: Cluster, request: control_pb2.OrphansRequest, caller: Identity
) -> control_pb2.OrphansReply:
    """Runs that nodes hold and the database does not know; those that are named are ended.

    Raises:
        BadInput: more are named than a call may.
    """
    driver = cluster.driver
    driver.require_lead()
    check_count("orphans", len(request.end), MOST_ORPHANS)
    known = driver.committed.orphans
    named = frozenset(map(RunId, request.end))
    found = [orphan for (_, run_id), orphan in known.items() if run_id in named]
    if found:
        notes = tuple(
            Event(
                at=wall(), kind="end-orphan", actor=caller.name, node=each.node,
                text=f"run {each.held.key}",
            )
            for each in found
        )  # fmt: skip
        ending = leader.EndOrphans(boottime(), frozenset(each.held.key.run_id for each in found))
        await driver.ask(
            lambda token: leader.Together(
                boottime(), (ending, leader.AttachAsked(boottime(), notes, token))
            )
        )
    reply = control_pb2.OrphansReply()
    for (node, run_id), orphan in sorted(driver.committed.orphans.items()):
        key, is_ending = orphan.held.key, (node, run_id) in driver.state.ending
        reply.orphans.add(
            node=node,
            job=key.job,
            run=key.run,
            run_id=run_id,
            state="ending" if is_ending else orphan.held.phase.value,
            gpus=orphan.held.gpus,
            nodes=orphan.held.nodes,
        )
    for run_id in sorted(named - {run_id for _, run_id in known}):
        reply.failed.add(subject=f"run {run_id}", why="it is no orphan")
    return reply


async def confirm_over(
    cluster: Cluster, request: control_pb2.ConfirmOverRequest, caller: Identity
) -> control_pb2.ActReply:
    """End runs of which nodes cannot tell whether they are over, because an operator is sure.

    Raises:
        BadInput: more jobs are named than a call may, or something that is no job's id.
    """
    driver = cluster.driver
    driver.require_lead()
    check_count("jobs", len(request.jobs), MOST_ORPHANS)
    reply = control_pb2.ActReply()
    for text in dict.fromkeys(request.jobs):
        if not text.isdecimal() or len(text) > LONGEST_ID:
            raise BadInput(f"{text[:40]!r} is no job id")
        job = JobId(int(text))
        places = driver.state.unsettled(job)
        if not places:
            why = "no node is in doubt about its run, or cannot end it"
            reply.failed.add(subject=f"job {text}", why=why)
            continue
        nodes = ", ".join(dict.fromkeys(node for node, _ in places))
        run = driver.committed.runs[places[-1][1]].key.run
        note = Event(
            at=wall(), kind="run-over", actor=caller.name, job=job, text=f"run {run} on {nodes}"
        )
        over = leader.OverConfirmed(boottime(), frozenset(places))
        await driver.ask(
            lambda token, over=over, note=note: leader.Together(  # type: ignore[misc]
                boottime(), (over, leader.AttachAsked(boottime(), (note,), token))
            )
        )
        reply.done.append(text)
        reply.lines.append(f"job {text}: its run is over on {nodes}, as {caller.name} says")
    return reply


def _sign_of_life(state: leader.LeaderState, name: NodeName) -> str:
    """Why it cannot be that a node is down; empty when it can.

    Its jobs would begin elsewhere beside their runs there.
    """
    now, last = boottime(), state.last_syncs.get(name)
    silent_s = state.timing.witness_beats * state.timing.beat_s
    if last is not None and now - last.at <= silent_s:
        return (
            f"its agent was heard {now - last.at:.1f} s ago: a node that is down is silent for "
            f"{silent_s:g} s; if it is on its way down, repeat this then"
        )
    led = now - state.window_from
    if last is None and led <= silent_s:
        return (
            f"this daemon has led for {led:.1f} s only, and nodes have {silent_s:g} s to be heard"
        )
    return ""


def _change(
    cluster: Cluster,
    request: control_pb2.SetNodesRequest,
    name: NodeName,
    caller: Identity,
    now: float,
) -> tuple[list[leader.AttachAsked | leader.DownConfirmed], str]:
    jobs = sorted({run.key.job for run in cluster.driver.reserved.runs_on(name)})
    held = f"; held by {', '.join(f'job {job}' for job in jobs)}" if jobs else ""
    kinds = {
        control_pb2.NODE_ACTION_DRAIN: "drain",
        control_pb2.NODE_ACTION_RESUME: "resume",
        control_pb2.NODE_ACTION_DOWN_CONFIRMED: "down",
    }
    kind = kinds.get(request.action)
    if kind is None:
        raise BadInput(f"action {request.action} is not known to this version")
    note = Event(at=now, kind=kind, actor=caller.name, node=name, text=request.reason)
    if kind == "down":
        return (
            [leader.DownConfirmed(boottime(), name), leader.AttachAsked(boottime(), (note,))],
            f"node {name}: down, as {caller.name} says",
        )
    by_at = None
    if kind == "drain" and (request.now or request.HasField("by_at")):
        most = now + LONGEST_S
        by_at = now if request.now else check_number("by", request.by_at, 0.0, most)
    change = Drained(
        node=name,
        drained=kind == "drain",
        reason=request.reason,
        actor=caller.name,
        at=now,
        by_at=by_at,
    )
    if kind == "drain":
        line = f"node {name}: drains{held}"
    else:
        line = f"node {name}: takes runs again{_still_reported(cluster, name)}"
    return [leader.AttachAsked(boottime(), (change, note))], line


def _still_reported(cluster: Cluster, name: NodeName) -> str:
    """Faults for which a node's next report drains it again, as the end of a sentence."""
    described = cluster.agents.described.get(name)
    faults = "; ".join(described.faults) if described is not None else ""
    return f", until its agent reports once more: {faults}" if faults else ""
