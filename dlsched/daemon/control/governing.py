"""The cluster as a whole: status, usage, switching the policy, the configuration, snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

from dlsched import __version__
from dlsched.core.errors import BadInput
from dlsched.daemon.clock import boottime, wall
from dlsched.daemon.cluster import Cluster, round_settings
from dlsched.daemon.control.bounds import check_count, check_text
from dlsched.daemon.round.taking import take_snapshot
from dlsched.daemon.settings import differences, load_settings
from dlsched.daemon.tenants import configured
from dlsched.daemon.vc_tree import check_tree
from dlsched.db.records import Drained, Event, PolicySet, PolicyState, TenantsConfigured
from dlsched.db.tenants import FILE, Vc
from dlsched.protocol import leader
from dlsched.protocol.ledger import JobStatus
from dlsched.protocol.messages import NodeName
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2

__all__ = ["problems", "reload", "set_policy", "snapshot", "status", "usage"]

CHUNK = 256 * 1024
RECENT_S = 3600.0  # an alarm is a problem for so long


def problems(cluster: Cluster) -> tuple[str, list[str]]:
    """Green, yellow or red, and why."""
    shell, rounds = cluster.shell, cluster.rounds
    red: list[str] = []
    yellow: list[str] = []
    if shell.store_down:
        red.append(f"cannot store: {shell.store_down}")
    if rounds is not None and rounds.failures:
        where = red if rounds.failures >= cluster.settings.round.red_after else yellow
        where.append(f"{rounds.failures} rounds in a row have failed: {rounds.last_failure}")
    if rounds is not None and rounds.slow:
        yellow.append(rounds.slow)
    if shell.leading:
        late = [n for n in shell.committed.nodes if cluster.node_state(n) == "late"]
        if late:
            yellow.append(f"nodes late: {', '.join(late[:10])}")
        if shell.committed.orphans:
            yellow.append(f"{len(shell.committed.orphans)} runs are alive that nobody knows")
    certificate = cluster.trust.problem() if cluster.trust is not None else None
    if certificate is not None:
        yellow.append(certificate)
    yellow += [text for at, text in shell.alarms if wall() - at < RECENT_S]
    return ("red" if red else "yellow" if yellow else "green"), [*red, *yellow]


def status(cluster: Cluster) -> control_pb2.StatusReply:
    """One look at everything."""
    shell, board, rounds = cluster.shell, cluster.board, cluster.rounds
    health, why = problems(cluster)
    ledger = shell.committed
    states = [cluster.node_state(name) for name in ledger.nodes]
    store = shell.store
    reply = control_pb2.StatusReply(
        health=health,
        problems=why,
        leader=shell.name if shell.leading else "",
        epoch=shell.state.epoch,
        database=f"{store.kind}: {'away' if shell.store_down else 'fine'}",
        policy=board.settings.policy,
        parts=dict(board.settings.parts),
        round=board.round_number,
        nodes_up=sum(state not in ("down", "late") for state in states),
        nodes_late=states.count("late"),
        nodes_down=states.count("down"),
        pending=sum(row.status is JobStatus.PENDING for row in ledger.jobs.values()),
        running=sum(
            row.status is not JobStatus.PENDING and not row.status.is_terminal
            for row in ledger.jobs.values()
        ),
        up_s=boottime() - shell.began_at,
        version=__version__,
        cluster=cluster.settings.cluster.name,
    )
    if rounds is not None:
        reply.round_s = rounds.last_wall_s
        reply.policy_failures = rounds.total_failures
    return reply


async def usage(
    cluster: Cluster, request: control_pb2.UsageRequest, caller: Identity
) -> control_pb2.UsageReply:
    """GPU time by user or virtual cluster: ended runs from the store, live ones from memory."""
    shell, table = cluster.shell, cluster.shell.table
    since = request.since if request.HasField("since") else None
    past = await shell.read(
        partial(shell.store.usage, by="user" if request.by_user else "vc", since=since)
    )
    found = {each.name: control_pb2.UsageView(name=each.name, gpu_s=each.gpu_s) for each in past}
    entitled = {name: vc.gpus for name, vc in cluster.tenants.vcs().items() if vc.gpus is not None}
    now = cluster.now
    for row in shell.committed.jobs.values():
        if row.status.is_terminal:
            continue
        name = row.request.user if request.by_user else table.field(row, "vc") or ""
        view = found.setdefault(name, control_pb2.UsageView(name=name))
        if row.status is JobStatus.PENDING:
            view.pending += 1
            continue
        run = shell.committed.live_run(row.job)
        gpus = sum(len(m.gpus) for m in run.members.values()) if run is not None else 0
        view.gpus_now += gpus
        started = table.of(row.job).started_at
        if started is not None:
            begin = started if since is None else max(started, since)
            view.gpu_s += gpus * max(0.0, now - begin)
    for name, gpus_ in entitled.items():
        if not request.by_user:
            view = found.setdefault(name, control_pb2.UsageView(name=name))
            view.entitlement = gpus_
    if not caller.is_operator and request.by_user:
        found = {name: view for name, view in found.items() if name == caller.name}
    return control_pb2.UsageReply(usage=[found[name] for name in sorted(found)])


async def set_policy(
    cluster: Cluster, request: control_pb2.SetPolicyRequest, caller: Identity
) -> control_pb2.SetPolicyReply:
    """Switch the policy: validated first, durable, in force from the next round.

    Raises:
        BadInput: one line, and everything stays as it is.
    """
    shell, board = cluster.shell, cluster.board
    shell.require_lead()
    check_count("options", len(request.options), 200)
    for text in (*request.parts.values(), *request.options):
        check_text("policy", text, 1000)
    parts = dict(board.settings.parts)
    for stage, name in request.parts.items():
        if name:
            parts[stage] = name
        else:
            parts.pop(stage, None)
    scheduling = board.settings.parts.get("scheduling")
    same = parts.get("scheduling") == scheduling and not request.options
    options = board.settings.options if same else tuple(request.options)
    wanted = board.settings.with_policy(parts, options)
    await cluster.rounds.validate(wanted)
    row = PolicySet(at=wall(), parts=parts, options=options, actor=caller.name)
    text = " ".join(f"{stage}={name}" for stage, name in parts.items())
    note = Event(at=row.at, kind="set-policy", actor=caller.name, text=text)
    await shell.attach(row, PolicyState(state=b""), note)
    board.switch(wanted)
    cluster.rounds.policy_switched()
    return control_pb2.SetPolicyReply(parts=parts, options=options)


async def reload(cluster: Cluster, actor: str) -> control_pb2.ReloadReply:
    """Take the configuration file again, as a whole or not at all.

    Raises:
        BadInput: one line, and the old configuration stays.
    """
    if cluster.file is None:
        raise BadInput("this daemon was started without a configuration file")
    old = cluster.settings
    new = await asyncio.to_thread(load_settings, cluster.file)
    lines = differences(old, new)
    if not lines:
        return control_pb2.ReloadReply(changes=[])
    changed = round_settings(new)
    present = cluster.board.settings
    chosen = round_settings(old)
    if (changed.parts, changed.options) == (chosen.parts, chosen.options):
        changed = changed.with_policy(present.parts, present.options)  # as set-policy left it
    else:
        await cluster.rounds.validate(changed)
    _refuse_lost_names(cluster, new)
    theirs = {n: v for n, v in cluster.tenants.vcs().items() if _is_operators(cluster, n)}
    check_tree(theirs | {vc.name: vc for vc in configured(new) if isinstance(vc, Vc)})
    gone = [n for n in old.node_names() if n not in new.node_names() and new.node_names()]
    rows: list[object] = [
        Event(at=wall(), kind="reload", actor=actor, text="; ".join(lines)[:2000])
    ]
    if configured(new) != configured(old):
        rows.append(TenantsConfigured(tenants=configured(new), at=wall()))
    for name in gone:
        if name in cluster.shell.committed.nodes:
            rows.append(
                Drained(
                    node=NodeName(name),
                    drained=True,
                    reason="no longer in the configuration",
                    actor=actor,
                    at=wall(),
                )
            )
    if cluster.shell.leading:
        await cluster.shell.ask(lambda token: leader.AttachAsked(boottime(), tuple(rows), token))
    cluster.settings = cluster.shell.settings = new
    cluster.tenants.take(TenantsConfigured(tenants=configured(new), at=wall()))
    cluster.board.configure(changed, cluster.rules(new))
    cluster.govern()
    cluster.rounds.configured()
    return control_pb2.ReloadReply(changes=lines)


def _is_operators(cluster: Cluster, vc: str) -> bool:
    return cluster.tenants.rows["vc", vc].source != FILE


def _refuse_lost_names(cluster: Cluster, new: object) -> None:
    """A partition or virtual cluster that live jobs name may not go away."""
    shell = cluster.shell
    partitions = {p.name for p in new.partitions}  # type: ignore[attr-defined]
    vcs = {vc.name for vc in new.vcs}  # type: ignore[attr-defined]
    vcs |= {vc for vc in cluster.tenants.vcs() if _is_operators(cluster, vc)}
    for row in shell.committed.jobs.values():
        if row.status.is_terminal:
            continue
        for what, known in (("partition", partitions), ("vc", vcs)):
            name = shell.table.field(row, what)
            if name and name not in known:
                raise BadInput(f"{what} {name} is removed, and job {row.job} is in it")


async def snapshot(cluster: Cluster) -> AsyncIterator[control_pb2.SnapshotChunk]:
    """The cluster as a round sees it now: decided again elsewhere it gives the same plan."""
    cluster.shell.require_lead()
    data = take_snapshot(cluster.board, "full", cluster.now).to_bytes()
    for start in range(0, len(data), CHUNK):
        yield control_pb2.SnapshotChunk(data=data[start : start + CHUNK])
