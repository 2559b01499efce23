"""The cluster as a whole: status, usage, prediction errors, policy, configuration, snapshots."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dlsched import __version__
from dlsched.core.cluster.cell_rules import CellRules
from dlsched.core.cluster.description import ANY_TYPE
from dlsched.core.errors import BadInput, PolicyFailed, plural, shorten
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.control.bounds import check_count, check_text
from dlsched.daemon.control.predicting.calibration import calibration_of
from dlsched.daemon.control.shares import put_shares
from dlsched.daemon.control.submission.storage_bounds import disk_shortage
from dlsched.daemon.live.nodes import natural
from dlsched.daemon.round.configured import named_parts, round_settings
from dlsched.daemon.round.forecasts.later_arrivals import later_of
from dlsched.daemon.round.snapshot_builder import copy_present
from dlsched.daemon.rounds import Rounds
from dlsched.daemon.settings import Settings, differences, load_settings
from dlsched.daemon.site_rules.priority_classes import NORMAL
from dlsched.daemon.site_rules.vc_tree import check_tree
from dlsched.daemon.supposing.shadow import Shadow
from dlsched.daemon.trust import DaemonTrust
from dlsched.daemon.turns import in_turns
from dlsched.db.records import Event, PolicySet, PolicyState, TenantsConfigured
from dlsched.protocol import leader
from dlsched.protocol.ledger import JobStatus
from dlsched.protocol.messages import RunId
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import boottime, wall
from dlsched.tenants.fields import FILE, TenantKey, Vc, key_of

CHUNK = 256 * 1024
MOST_NAMED = 5  # nodes, in one problem


@dataclass(eq=False, slots=True)
class ClusterAdmin:
    """What operators ask and change of the whole cluster."""

    cluster: Cluster
    rounds: Rounds
    shadow: Shadow
    trust: DaemonTrust
    file: Path | None  # of the configuration

    # -- looking -----------------------------------------------------------------------------------

    def problems(self) -> tuple[str, list[str]]:
        """The cluster's health (green, yellow or red), and why."""
        cluster, driver, rounds = self.cluster, self.cluster.driver, self.rounds
        red: list[str] = []
        yellow: list[str] = []
        if driver.store_trouble:
            red.append(driver.store_trouble)
        if shortage := disk_shortage(cluster):
            yellow.append(shortage)
        if rounds.failures:
            where = red if rounds.failures >= cluster.settings.round.red_after else yellow
            where.append(rounds.trouble)
        if rounds.slow:
            yellow.append(rounds.slow)
        if left_out := cluster.round_state.left_out:
            yellow.append(
                f"policy {cluster.round_state.settings.policy} no longer has "
                f"{', '.join(left_out)}: left out; dlsched admin set-policy stores it anew"
            )
        if driver.leading:
            late = sorted(filter(cluster.is_overdue, driver.committed.nodes), key=natural)
            away = red if cluster.is_mostly_away() else yellow
            if late:
                away.append(f"nodes late: {_some(late[:MOST_NAMED], len(late))}")
            fenced = {name: cluster.fencing.words(name) for name in late}
            yellow += [f"node {name}: {words}" for name, words in fenced.items() if words]
            yellow += _problems_of(cluster)
            away += _away(cluster)
            if driver.committed.orphans:
                runs = plural(len(driver.committed.orphans), "unknown run")
                yellow.append(f"{runs} alive: see dlsched admin orphans")
            for node, run_id in sorted(driver.state.in_doubt):
                run = driver.committed.runs.get(run_id)
                if run is not None and not run.is_over:
                    yellow.append(
                        f"job {run.key.job} lost its keeper on {node}, where its processes may be"
                        " alive: see dlsched admin run-over"
                    )
            for name in driver.committed.nodes:
                yellow += [
                    f"{name}: a process of job {run.key.job} cannot be killed: boot the node,"
                    " or see dlsched admin run-over"
                    for run in driver.committed.stuck_runs_on(name)
                ]
        yellow += cluster.site_troubles()
        certificate = self.trust.problem()
        if certificate is not None:
            yellow.append(certificate)
        yellow += driver.alarms.present(wall())
        return ("red" if red else "yellow" if yellow else "green"), [*red, *yellow]

    async def status(self) -> control_pb2.StatusReply:
        """The state of the whole cluster."""
        cluster, driver, state = self.cluster, self.cluster.driver, self.cluster.round_state
        health, why = self.problems()
        ledger, store = driver.committed, driver.store
        nodes = [cluster.node_state(name) for name in ledger.nodes]
        leader, epoch, standbys = driver.name, int(driver.state.epoch), list[str]()
        if not driver.leading:
            leader, epoch = "", 0
            if not driver.store_down:
                leader, epoch = await driver.read(store.last_leader)
        elif not driver.store_down:
            standbys = await driver.read(store.standbys)
        return control_pb2.StatusReply(
            standby=not driver.leading,
            standbys=standbys,
            health=health,
            problems=why,
            past=driver.alarms.past(wall()),
            leader=leader,
            epoch=epoch,
            database=f"{store.kind}: {'away' if driver.store_down else 'fine'}",
            policy=state.settings.policy,
            parts=dict(state.settings.parts),
            round=state.number,
            nodes_up=sum(node not in ("down", "late", "unheard") for node in nodes),
            nodes_late=nodes.count("late"),
            nodes_down=nodes.count("down"),
            nodes_unheard=nodes.count("unheard"),
            pending=sum(row.status is JobStatus.PENDING for row in ledger.jobs.values()),
            running=sum(
                row.status is not JobStatus.PENDING and not row.status.is_terminal
                for row in ledger.jobs.values()
            ),
            up_s=boottime() - driver.began_at,
            version=__version__,
            cluster=cluster.settings.cluster.name,
            round_s=self.rounds.last_wall_s,
            policy_failures=self.rounds.total_failures,
        )

    async def usage(
        self, request: control_pb2.UsageRequest, caller: Identity
    ) -> control_pb2.UsageReply:
        """GPU time by user, account or VC, or shares."""
        cluster = self.cluster
        if request.shares:
            reply = control_pb2.UsageReply()
            put_shares(cluster, caller, reply)
            return reply
        since = request.since if request.HasField("since") else None
        by = request.by or ("user" if request.by_user else "vc")
        if by not in ("vc", "account", "user"):
            raise BadInput(f"usage by {shorten(by)}: by vc, account or user")
        found = await self._used(by, since)
        if by == "vc":
            for name, vc in cluster.tenants.vcs().items():
                if vc.gpus is not None:
                    view = found.setdefault(name, control_pb2.UsageView(name=name))
                    view.entitlement = vc.gpus
        elif by == "user" and not caller.is_operator:
            found = {name: view for name, view in found.items() if name == caller.name}
        return control_pb2.UsageReply(usage=[found[name] for name in sorted(found)])

    async def _used(self, by: str, since: float | None) -> dict[str, control_pb2.UsageView]:
        """GPU time by user, account or VC: ended runs from the store, live ones from memory.

        The live runs are looked at first; those that have ended when the store is read count there.
        """
        driver, now = self.cluster.driver, wall()
        ledger, table = driver.committed, driver.table
        waiting: Counter[str] = Counter()
        live: dict[RunId, control_pb2.UsageView] = {}
        async for row in in_turns(ledger.jobs.values()):
            if row.status.is_terminal:
                continue
            name = row.request.user if by == "user" else table.field(row, by) or ""
            run = ledger.live_run(row.job)
            if row.status is JobStatus.PENDING:
                waiting[name] += 1
            elif run is not None:
                mine = control_pb2.UsageView(name=name, gpu_parts_now=ledger.gpus_of(run))
                used = table.live_usage(ledger, row, now)
                if used is not None:
                    mine.gpu_s = used.gpu_s if since is None else used.since(since)
                live[run.key.run_id] = mine
        past, over = await driver.read(
            partial(driver.store.usage, by=by, since=since, live=list(live))
        )
        found = {
            each.name: control_pb2.UsageView(name=each.name, gpu_s=each.gpu_s) for each in past
        }
        for name, count in waiting.items():
            found.setdefault(name, control_pb2.UsageView(name=name)).pending = count
        for run_id, mine in live.items():
            view = found.setdefault(mine.name, control_pb2.UsageView(name=mine.name))
            if run_id not in over:
                view.gpu_s += mine.gpu_s
                view.gpu_parts_now += mine.gpu_parts_now
                view.gpus_now = math.ceil(view.gpu_parts_now)
        return found

    async def calibration(
        self, request: control_pb2.CalibrationRequest
    ) -> control_pb2.CalibrationReply:
        """Errors of first predictions, of jobs that have started since."""
        driver = self.cluster.driver
        since = request.since if request.HasField("since") else 0.0
        found = await driver.read(partial(driver.store.predicted_starts, since))
        return calibration_of(found)

    async def snapshot(self) -> AsyncIterator[control_pb2.SnapshotChunk]:
        """The cluster as a round sees it now: decided again elsewhere it gives the same plan."""
        self.cluster.driver.require_lead()
        now = self.cluster.now
        present = copy_present(self.cluster.round_state, now)
        data = replace(present, later=later_of(self.cluster.live, now)).to_bytes()
        for start in range(0, len(data), CHUNK):
            yield control_pb2.SnapshotChunk(data=data[start : start + CHUNK])

    # -- changing ----------------------------------------------------------------------------------

    async def set_policy(
        self, request: control_pb2.SetPolicyRequest, caller: Identity
    ) -> control_pb2.SetPolicyReply:
        """Switch the policy: validated first, then durable, in force from the next round.

        Raises:
            BadInput: one line; then everything stays as it is.
        """
        driver = self.cluster.driver
        driver.require_lead()
        check_count("options", len(request.options), 200)
        for text in (*request.parts.values(), *request.options):
            check_text("policy", text, 1000)
        with contextlib.suppress(PolicyFailed):  # it may be what another policy is set for
            await self.rounds.look_at_stored()
        wanted = self.cluster.round_state.settings.changed(request.parts, request.options)
        parts, options = wanted.parts, wanted.options
        await self.rounds.validate(wanted)
        row = PolicySet(at=wall(), parts=parts, options=options, actor=caller.name)
        text = " ".join(f"{stage}={name}" for stage, name in parts.items())
        note = Event(at=row.at, kind="set-policy", actor=caller.name, text=text)
        await driver.attach(row, PolicyState(state=b""), note)
        self.cluster.round_state.switch(wanted)
        self.rounds.policy_switched()
        return control_pb2.SetPolicyReply(parts=parts, options=options)

    async def reload(self, actor: str) -> control_pb2.ReloadReply:
        """Read the configuration file again; it is taken as a whole or not at all.

        Raises:
            BadInput: one line; then the old configuration stays.
        """
        cluster, driver = self.cluster, self.cluster.driver
        if self.file is None:
            raise BadInput("this daemon was started without a configuration file")
        old = cluster.settings
        new = await asyncio.to_thread(load_settings, self.file)
        lines = differences(old, new)
        changed = await asyncio.to_thread(round_settings, new)
        if new.cells() != old.cells():
            self._check_cells(new)
        present = cluster.round_state.settings  # as `set-policy` left it
        if changed.host_profiles != present.host_profiles:
            count = plural(len(changed.host_profiles), "measurement")
            lines.append(f"{new.round.host_profiles or 'no profiles of processors'}: {count}")
        if not lines:
            return control_pb2.ReloadReply(changes=[])
        if (changed.parts, changed.options) == (named_parts(old.round), old.round.options):
            changed = changed.with_policy(present.parts, present.options)
        else:
            await self.rounds.validate(changed)
        tenants = cluster.tenants
        added = {key for key, row in tenants.rows.items() if row.source != FILE}
        operators = {n: vc for n, vc in tenants.vcs().items() if ("vc", n) in added}
        self._refuse_lost_names(new, added)
        check_tree(operators | {vc.name: vc for vc in new.tenants() if isinstance(vc, Vc)})
        rows: list[object] = [
            Event(at=wall(), kind="reload", actor=actor, text="; ".join(lines)[:2000])
        ]
        if new.tenants() != old.tenants():
            rows.append(TenantsConfigured(tenants=new.tenants(), at=wall()))
        rows += cluster.drains_of(new, driver.committed.nodes, actor)
        if driver.leading:
            await driver.ask(lambda token: leader.AttachAsked(boottime(), tuple(rows), token))
        cluster.configure(new, changed)
        self.rounds.configured()
        self.shadow.configured(old)
        return control_pb2.ReloadReply(changes=lines)

    def _check_cells(self, new: Settings) -> None:
        """Refuse cells that contradict the GPUs of nodes that have registered."""
        cells = CellRules.from_bytes(new.cells()).plan("cells")
        if cells is not None:
            has = {
                str(node.name): (len(node.gpus), "" if node.gpu_type == ANY_TYPE else node.gpu_type)
                for node in self.cluster.live.nodes.all()
            }
            cells.check_nodes(has, where=str(self.file), all_known=False)

    def _refuse_lost_names(self, new: Settings, added: set[TenantKey]) -> None:
        """Refuse to remove a partition, virtual cluster or class that a live job is in."""
        driver = self.cluster.driver
        known = {key_of(each) for each in new.tenants()} | added | {("class", NORMAL)}
        kinds = {"partition": "partition", "vc": "vc", "priority_class": "class"}
        for row in driver.committed.jobs.values():
            for field, kind in kinds.items() if not row.status.is_terminal else ():
                name = driver.table.field(row, field)
                if name and (kind, name) not in known:
                    raise BadInput(f"{kind} {name} is removed, and job {row.job} is in it")


def _away(cluster: Cluster) -> list[str]:
    """Which nodes are drained, with their reasons, and which are down."""
    found, nodes = [], sorted(cluster.driver.committed.nodes, key=natural)
    drained = [name for name in nodes if name in cluster.drained]
    if drained:
        words = [f"{name} ({cluster.drained[name].reason})" for name in drained[:MOST_NAMED]]
        found.append(f"nodes drained: {_some(words, len(drained))}")
    down = [name for name in nodes if cluster.node_state(name) == "down"]
    if down:
        found.append(f"nodes down: {_some(down[:MOST_NAMED], len(down))}")
    return found


def _problems_of(cluster: Cluster) -> list[str]:
    """What agents say is wrong with their nodes."""
    described = cluster.agents.described
    told = [
        f"{name}: {described[name].problems[0]}"
        for name in sorted(cluster.driver.committed.nodes, key=natural)
        if name in described and described[name].problems
    ]
    return [f"nodes with problems: {_some(told[:MOST_NAMED], len(told))}"] if told else []


def _some(words: Sequence[str], count: int) -> str:
    more = count - len(words)
    return ", ".join(words) + (f" and {more} more" if more else "")
