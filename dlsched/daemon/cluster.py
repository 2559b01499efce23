"""The cluster in memory: what the services of one daemon look into. It lives in the main thread.

The live state follows what is *reserved*; tenants, speeds and drained nodes follow what is
*committed*.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterable, Sequence

from google.protobuf.json_format import ParseDict

from dlsched.core.cluster.reservations import Reservation
from dlsched.core.sums import ordered_sum
from dlsched.daemon.capacity import Capacity, capacity_of
from dlsched.daemon.checkpoints import Checkpoints
from dlsched.daemon.contents import JobContents
from dlsched.daemon.failed_starts import FailedStarts
from dlsched.daemon.fencing import Fencing
from dlsched.daemon.gpu_faults import GpuFaults
from dlsched.daemon.interactive import InteractiveJobs
from dlsched.daemon.leader_driver import LeaderDriver, LedgerFollower
from dlsched.daemon.live.live_state import LiveState
from dlsched.daemon.live.nodes import ClusterRules
from dlsched.daemon.live.rungs import Rungs
from dlsched.daemon.nodes.agents import Agents
from dlsched.daemon.nodes.node_facts import facts_that_count, features_in_force, mismatches
from dlsched.daemon.reported.curves import Curves
from dlsched.daemon.reported.failures import Failures
from dlsched.daemon.reported.idle_gpus import IdleGpus
from dlsched.daemon.reported.speeds import SpeedTable
from dlsched.daemon.reported.training_profiles import TrainingProfiles
from dlsched.daemon.round.configured import round_settings
from dlsched.daemon.round.parts import RoundSettings
from dlsched.daemon.round.round_state import RoundState
from dlsched.daemon.settings import Settings
from dlsched.daemon.short_tasks.exchange import TaskLists
from dlsched.daemon.site_rules.partition_access import AccessLists, PartitionAccess
from dlsched.daemon.tenants import Tenants
from dlsched.daemon.unsaved import UnsavedJobs
from dlsched.daemon.writer import TermBegun
from dlsched.db.records import (
    ClockMoved,
    Drained,
    Event,
    TenantRemoved,
    TenantsConfigured,
    TenantSet,
)
from dlsched.db.speeds import SpeedsForgotten, SpeedsSet
from dlsched.protocol import messages as m
from dlsched.protocol import rules
from dlsched.protocol.ledger import Changes, MemberOver, NodeStatus, RegisterNode, Restart
from dlsched.rpc.v1.node_pb2 import NodeFacts
from dlsched.system.clock import boottime, wall

log = logging.getLogger("dlsched.daemon")
_FOLLOWED = (SpeedsSet, SpeedsForgotten, TenantSet, TenantRemoved, TenantsConfigured, Drained)
NOT_CONFIGURED = "no longer in the configuration"  # why a node is drained


class Cluster(LedgerFollower):
    """The state of one cluster, in this term.

    Attributes:
        driver: of the leader.
        settings: the configuration.
        agents: of the nodes.
        checkpoints: of jobs, live or ended.
        contents: what jobs execute that are about to start.
        speeds: measured speeds of trainings.
        trainings: what elastic jobs have reported.
        curves: losses and metrics that jobs have reported.
        unsaved: the jobs whose latest checkpoint could not be written.
        rungs: what jobs of sweeps have reached, in this term.
        task_lists: short tasks of arrays, in this term.
        idle_gpus: the jobs whose GPUs do next to nothing.
        failures: what ranks have said of their failures.
        tenants: users, accounts, virtual clusters, partitions and quotas.
        live: jobs, nodes and GPUs; a new one in each term.
        round_state: the policy that decides, and what its last decision left behind.
        drained: nodes that are drained, and until when runs may stay on them.
        unhealthy: GPUs of each node that report errors.
        fencing: the site's command that switches nodes off.
        gpu_faults: of GPUs that run jobs.
        failed_starts: of the last minutes.
        groups: of Unix, of users with jobs in partitions that are for groups.
        filter_trouble: why the site's filter of submissions fails; empty: it does not.
        unknown_names: users and groups of the configuration that this machine does not know.
        access_changed: set when such groups may have to be looked up anew.
        leaving: ended jobs that are about to leave the database.
        interactive: jobs that need a client.
    """

    def __init__(self, driver: LeaderDriver, settings: Settings, agents: Agents) -> None:
        self.driver = driver
        self.settings = settings
        self.agents = agents
        self.checkpoints = Checkpoints(driver)
        self.contents = JobContents(driver)
        self.speeds = SpeedTable()
        self.trainings = TrainingProfiles()
        self.curves = Curves()
        self.unsaved = UnsavedJobs(driver, self.curves)
        self.rungs = Rungs()
        self.task_lists = TaskLists(driver)
        self.idle_gpus = IdleGpus()
        self.failures = Failures()
        self.tenants = Tenants(settings)
        self.groups: dict[str, frozenset[str]] = {}
        self.filter_trouble = ""
        self.unknown_names: list[str] = []
        self.access_changed = asyncio.Event()
        self.live = LiveState(self._rules(), speeds=self.speeds, trainings=self.trainings)
        self.round_state = RoundState(self.live, round_settings(settings))
        self.drained: dict[m.NodeName, Drained] = {}
        self.unhealthy: dict[m.NodeName, frozenset[m.GpuId]] = {}
        self.gpu_faults = GpuFaults(driver, lambda: self.settings.faults)
        self.failed_starts = FailedStarts(
            driver,
            lambda: self.settings.faults,
            lambda: self.live,
            lambda: self.drained,
        )
        self.fencing = Fencing(driver, lambda: self.settings.fencing)
        self.leaving: set[m.JobId] = set()
        self.interactive = InteractiveJobs(driver)
        self._anchor = wall() - boottime()
        self._capacity: tuple[object, Capacity] | None = None
        driver.follow(self)
        driver.may_stay = self._may_stay

    @property
    def now(self) -> float:
        """The policy's clock: the wall clock when this term began, and it never jumps."""
        return self._anchor + boottime()

    def _may_stay(self, job: m.JobId) -> bool:
        return self.live.may_stay(job)

    # -- following the ledger ----------------------------------------------------------------------

    def term_began(self, term: TermBegun) -> None:
        """Begin anew from what the database has."""
        loaded = term.loaded
        self._anchor = wall() - boottime()
        self.speeds.load(loaded.speeds)
        self.trainings.load(loaded.trainings)
        self.curves.load(loaded.curves)
        self.rungs = Rungs()
        self.task_lists.began()
        self.live = self.live.successor(loaded, self.now, term.ended, term.learn_from)
        self.round_state = RoundState.of_loaded(self.live, self.round_state.settings, loaded)
        if self.tenants.load(loaded.tenants, self.settings):
            self.driver.note(TenantsConfigured(tenants=self.settings.tenants(), at=wall()))
        self._apply_tenants()
        self.access_changed.set()
        self.drained = dict(loaded.drained)
        self.failed_starts.term_began(term.failed_starts, self.now)
        changes = self.drains_of(self.settings, loaded.ledger.nodes, "daemon")
        if changes:
            self.driver.note(*changes)
        for name, facts in loaded.nodes_described.items():  # addresses: for logs and launches
            known = ParseDict(json.loads(facts), NodeFacts(), ignore_unknown_fields=True)
            self.agents.recall(name, known)
        self._apply_tenants()
        for name in loaded.ledger.nodes:
            self._describe_as_configured(name)

    def reserved(self, changes: Changes) -> None:
        """Follow changes of the reserved ledger."""
        rows, facts_of = self.driver.reserved.jobs, self.driver.table.of
        again = [write.job for write in changes.of(Restart)]
        if again:
            self.live.revive({job: (rows[job], facts_of(job)) for job in again}, self.now)
        self.live.apply(changes, self.driver.reserved, self.now)
        self.live.clock_was_set(ordered_sum(row.by_s for row in changes.of(ClockMoved)))
        for registered in changes.of(RegisterNode):
            self._describe_as_configured(registered.node)
        for over in changes.of(MemberOver):
            if over.exit is not None:
                self._note_end(over.exit)

    def rows_to_store(self) -> Sequence[object]:
        """What jobs and owners have received by what is stored now."""
        return self.live.rows_to_store()

    def _note_end(self, end: m.ExitRecord) -> None:
        """Follow the end of a run that could not start, lost its keeper, or whose epilog failed."""
        soon = asyncio.get_running_loop().call_soon
        if end.is_failed_start:
            soon(self.failed_starts.note, end, self.now)
        elif end.hook:
            soon(self.drain, end.node, f"{end.hook} (job {end.key.job})")

    def drain(self, node: m.NodeName, why: str) -> None:
        """Drain a node for a reason that it reports, unless it is drained; an operator resumes."""
        if node not in self.drained:
            actor = f"node {node}"
            log.warning("event=drained node=%s why=%r", node, why)
            row = Drained(node=node, drained=True, reason=why, actor=actor, at=wall())
            self.driver.note(row, Event(at=wall(), kind="drain", actor=actor, node=node, text=why))

    def committed(self, changed: set[m.JobId], changes: Changes) -> None:
        """Follow the rows of a committed transaction."""
        for row in changes.of(*_FOLLOWED):
            if self.speeds.take(row):
                continue
            if self.tenants.take(row):
                self._apply_tenants()
            elif isinstance(row, Drained):
                self.drained.pop(row.node, None)
                if row.drained:
                    self.drained[row.node] = row

    # -- configuration and tenants -----------------------------------------------------------------

    def configure(self, settings: Settings, rounds: RoundSettings) -> None:
        """Take over another configuration, and other settings of rounds."""
        self.settings = settings
        self.tenants.take(TenantsConfigured(tenants=settings.tenants(), at=wall()))
        self.round_state.configure(rounds)
        self.live.set_rules(self._rules())
        self._apply_tenants()
        self.access_changed.set()
        for name in self.driver.committed.nodes:
            self.note_facts(name)

    def drains_of(
        self, settings: Settings, registered: Iterable[m.NodeName], actor: str
    ) -> list[Drained]:
        """The drains that a configuration begins or ends.

        A registered node that it does not name is drained, if it names any; one that it names
        again, and that was drained for that reason alone, takes runs again.
        """
        named = settings.configured_nodes()
        found = []
        for name in registered:
            row = self.drained.get(name)
            gone = bool(named) and name not in named
            if gone if row is None else (row.reason == NOT_CONFIGURED and not gone):
                reason = NOT_CONFIGURED if gone else "in the configuration again"
                found.append(
                    Drained(node=name, drained=gone, reason=reason, actor=actor, at=wall())
                )
        return found

    def _rules(self) -> ClusterRules:
        rules = self.settings.partition_rules()
        lists = {name: AccessLists.of(each) for name, each in rules.items()}
        return ClusterRules(
            partitions=self.settings.partition_nodes(),
            longest_s={name: p.max_time_s for name, p in rules.items() if p.max_time_s is not None},
            vcs=self.tenants.in_force(),
            site=self.tenants.site_rules(self.settings),
            features=features_in_force(self.settings, self.agents),
            cells=self.settings.cells(),
            reservations=self.tenants.kept_nodes(),
            spares=frozenset(
                name for name, node in self.settings.configured_nodes().items() if node.spare
            ),
            access=PartitionAccess(
                lists={name: each for name, each in lists.items() if each is not None},
                operators=frozenset(self.settings.trust.operators),
                operator_uids=frozenset({0, os.geteuid()}),
                groups=dict(self.groups),
            ),
        )

    def note_groups(self, user: str, groups: frozenset[str]) -> None:
        """Note a user's Unix groups; waiting jobs are judged by them from now on."""
        if self.groups.get(user) != groups:
            self.groups[user] = groups
            self._apply_tenants()

    def _apply_tenants(self) -> None:
        """Have rounds follow the tenants as they are now."""
        rules = self._rules()
        if rules != self.live.rules:
            self.live.set_rules(rules)
        self.live.set_quotas(self.tenants.quotas(), self.tenants.parents())

    def _describe_as_configured(self, name: m.NodeName) -> None:
        section = self.settings.configured_nodes().get(name)
        facts = facts_that_count(section, self.agents.described.get(name))
        if facts:
            self.live.describe_node(name, facts)

    def note_facts(self, name: m.NodeName) -> None:
        """Follow what a node's agent has said of it; one with less than configured is drained."""
        self._describe_as_configured(name)
        self._capacity = None
        self._apply_tenants()  # it may have a feature now
        low = [words for words, is_low in self.mismatches(name) if is_low]
        if low:
            self.drain(name, "; ".join(low))

    def mismatches(self, name: m.NodeName) -> list[tuple[str, bool]]:
        """Where the configuration and a node's agent differ, and whether the node has less."""
        section = self.settings.configured_nodes().get(name)
        node, described = self.driver.reserved.nodes.get(name), self.agents.described.get(name)
        if section is None or node is None:
            return []
        return list(mismatches(section, node, described))

    # -- nodes -------------------------------------------------------------------------------------

    def may_join(self, name: m.NodeName) -> bool:
        """Whether a node may register: it is configured or known, or none is configured."""
        names = self.settings.configured_nodes()
        return not names or name in names or name in self.driver.committed.nodes

    def note_sync(self, sync: m.Sync) -> None:
        """Note that a node has synced, and which of its GPUs report errors."""
        self.unhealthy[sync.node] = frozenset(sync.health.unhealthy)
        late = self.is_late(sync.node, boottime())
        self.live.observe_node(sync.node, late=late, unhealthy=sync.health.unhealthy)

    def note_silence(self) -> None:
        """Note which nodes are late: they get no new runs."""
        self.failed_starts.tick(self.now)
        now = boottime()
        for name in self.driver.committed.nodes:
            self.live.observe_node(name, late=self.is_late(name, now))

    def note_gpu_uses(self, name: m.NodeName) -> None:
        """Note which GPUs of a node processes outside of jobs use: they get no new runs."""
        described = self.agents.described.get(name)
        if described is not None:
            foreign = [m.GpuId(use.uuid) for use in described.uses.values() if use.foreign]
            self.live.observe_node(name, foreign=foreign)
            self.gpu_faults.note(name, described)

    def is_late(self, name: m.NodeName, now: float) -> bool:
        """Whether a node has been silent for a while, or has not received what it was sent.

        A node that receives nothing still reports; a run that it is given would never begin. `now`
        is read from `boottime`.
        """
        state, timing = self.driver.state, self.driver.state.timing
        longest = timing.witness_beats * timing.beat_s
        last = state.last_syncs.get(name)
        if last is None or now - max(last.at, state.window_from) > longest:
            return True
        if not last.renewals:
            return False
        sent = last.renewals.values()
        received = min(sent) if last.chain is None else last.chain.last_sent
        return max(sent) - received > longest

    def is_awaited(self, name: m.NodeName, now: float) -> bool:
        """Whether a node has not synced in this term, and may have had no time to do so.

        It gets no new runs, either, but nothing is wrong with it. After one full window it is late.
        """
        state = self.driver.state
        new = not rules.window_passed(state.window_from, now, state.timing)
        return new and name not in state.last_syncs

    def synced_ago(self, name: m.NodeName, now: float) -> float | None:
        """Seconds since a node's last sync in this term; None before its first."""
        last = self.driver.state.last_syncs.get(name)
        return None if last is None else now - last.at

    def refusal(self, name: m.NodeName, now: float) -> str:
        """Why an agent with a node's name was refused lately; empty when none was."""
        refused, timing = self.driver.state.refusals.get(name), self.driver.state.timing
        longest = 2 * timing.witness_beats * timing.beat_s
        return refused.why if refused is not None and now - refused.at <= longest else ""

    def address(self, name: m.NodeName) -> str:
        """Where a node's agent listens; empty while it is not known."""
        described = self.agents.described.get(name)
        return described.facts.address if described is not None else ""

    def is_overdue(self, name: m.NodeName) -> bool:
        """Whether a node's state is `late`: it is up, not drained, and has been silent too long."""
        node, now = self.driver.committed.nodes[name], boottime()
        up = node.status is NodeStatus.UP and name not in self.drained
        return up and self.is_late(name, now) and not self.is_awaited(name, now)

    def is_mostly_away(self) -> bool:
        """Whether more than half of the nodes are drained, down or late."""
        nodes = self.driver.committed.nodes
        away = [
            name
            for name, row in nodes.items()
            if name in self.drained or row.status is not NodeStatus.UP or self.is_overdue(name)
        ]
        return 2 * len(away) > len(nodes)

    def site_troubles(self) -> list[str]:
        """What is wrong with names and functions of the site that the configuration has."""
        fails = [self.filter_trouble] if self.settings.submit.filter else []
        return [*self.unknown_names, *filter(None, fails)]

    def node_state(self, name: m.NodeName, busy: int | None = None) -> str:
        """A node's state, as listings call it; `busy` are its busy GPUs, if they are known."""
        ledger = self.driver.committed
        node, held = ledger.nodes[name], ledger.held_by.get(name, ())
        if node.status is not NodeStatus.UP:
            return "down"
        if name in self.drained:
            return "draining" if held else "drained"
        if self.is_awaited(name, boottime()):
            return "unheard"
        if self.is_overdue(name):
            return "late"
        if not held:
            spare = "spare" if name in self.live.rules.spares else ""
            return self._reserved_state(name) or spare or "idle"
        busy = len(ledger.busy(name)) if busy is None else busy
        return "full" if busy >= len(node.gpus) else "mixed"

    def reservation_of(self, name: m.NodeName) -> Reservation | None:
        """The reservation that a node is in now."""
        there = (each for each in self.live.rules.reservations if name in each.nodes)
        return next((each for each in there if each.start <= self.now < each.end), None)

    def _reserved_state(self, name: m.NodeName) -> str:
        found = self.reservation_of(name)
        if found is None:
            return ""
        return "maint" if found.maintenance else "reserved"

    def capacity(self) -> Capacity:
        """What the cluster could ever give to one job."""
        ledger = self.driver.committed
        key = (self.live, self.live.nodes.version, self.settings, len(ledger.nodes))
        if self._capacity is None or self._capacity[0] != key:
            made = capacity_of(self.settings, ledger, self.live.nodes, self.agents)
            self._capacity = (key, made)
        return self._capacity[1]
