"""Everything that one daemon knows, in one place: what the services look into.

Main thread only. The board follows what is reserved; `drained` follows what is committed.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict

from dlsched.core.cluster import ANY_TYPE, expand_hosts
from dlsched.daemon.agents import Agents
from dlsched.daemon.board import Board
from dlsched.daemon.clock import boottime, wall
from dlsched.daemon.control.capacity import Capacity, Host
from dlsched.daemon.control.pace import Pace
from dlsched.daemon.round.machines import ClusterRules
from dlsched.daemon.round.parts import RoundSettings
from dlsched.daemon.round.waiting import Fate
from dlsched.daemon.settings import Settings
from dlsched.daemon.shell import Shell
from dlsched.daemon.speeds import SpeedBook
from dlsched.daemon.tenants import Tenants, configured, virtual_cluster
from dlsched.daemon.trainings import Place, TrainingBook
from dlsched.daemon.trust import DaemonTrust
from dlsched.db.records import Drained, TenantsConfigured
from dlsched.db.speeds import SpeedKey
from dlsched.db.tenants import Vc
from dlsched.db.trainings import TrainingTold
from dlsched.protocol import messages as m
from dlsched.protocol.ledger import Attach, JobStatus, NodeStatus, RegisterNode, Run, Write
from dlsched.rpc.v1.control_pb2 import RunReport
from dlsched.rpc.v1.node_pb2 import NodeFacts

__all__ = ["Cluster", "round_settings", "rules_of"]

log = logging.getLogger("dlsched.daemon")
MOST_IGNORED = 1_000_000  # messages that one report may say were nonsense


def round_settings(settings: Settings) -> RoundSettings:
    """How rounds are decided, as the file says."""
    chosen = settings.round
    parts = {
        "scheduling": chosen.policy,
        "placement": chosen.placement,
        "admission": chosen.admission,
        "fairness": chosen.fairness,
        "estimator": chosen.estimate,
    }
    return RoundSettings(
        parts={stage: name for stage, name in parts.items() if name},
        options=chosen.options,
        round_s=chosen.interval_s,
        seed=chosen.seed,
        restart_overhead_s=chosen.restart_overhead_s,
        min_run_s=chosen.min_run_s,
        preempt_mode=chosen.preempt_mode,
    )


def rules_of(settings: Settings) -> ClusterRules:
    """Partitions and virtual clusters, as the file says."""
    return ClusterRules(
        partitions={
            p.name: frozenset(expand_hosts(p.nodes)) if p.nodes else None
            for p in settings.partitions
        },
        longest_s={p.name: p.max_time_s for p in settings.partitions if p.max_time_s is not None},
        vcs=tuple(virtual_cluster(each) for each in configured(settings) if isinstance(each, Vc)),
    )


class Cluster:
    """The daemon's parts and what only it keeps."""

    def __init__(self, shell: Shell, settings: Settings, agents: Agents, file: Path | None) -> None:
        self.shell = shell
        self.settings = settings
        self.agents = agents
        self.file = file
        self.speeds = SpeedBook()
        self.trainings = TrainingBook()
        self.board = Board(
            round_settings(settings),
            rules_of(settings),
            fate_of=self.fate,
            speeds=self.speeds,
            trainings=self.trainings,
        )
        self.drained: dict[m.NodeName, Drained] = {}
        self.draining_at: dict[m.NodeName, float] = {}  # wall time at which what runs there leaves
        self.unhealthy: dict[m.NodeName, frozenset[m.GpuId]] = {}
        self.pace = Pace()
        self.rounds: Any = None  # set by whoever makes both
        self.trust: DaemonTrust | None = None  # as well
        self.predictions: Any = None  # as well
        self.tenants = Tenants(settings)
        self.on_govern: Callable[[], None] = lambda: None
        self._anchor = wall() - boottime()
        self._capacity: tuple[object, Capacity] | None = None
        shell.send_nudge = agents.nudge
        shell.on_reserve.append(self._reserved)
        shell.on_commit.append(self._committed)
        shell.on_term.append(self._began)

    @property
    def now(self) -> float:
        """The policy's clock: as the wall's when this process began, and never jumping."""
        return self._anchor + boottime()

    # -- following the ledger ----------------------------------------------------------------------

    def _began(self, loaded: Any) -> None:
        self.speeds.load(loaded.speeds)
        self.trainings.load(loaded.trainings)
        self.board.load(loaded, self.now)
        if self.tenants.load(loaded.tenants, self.settings):
            self.shell.note(TenantsConfigured(tenants=configured(self.settings), at=wall()))
        self.govern()
        self.drained = dict(loaded.drained)
        self.draining_at = {
            name: row.by_at for name, row in self.drained.items() if row.by_at is not None
        }
        for name in loaded.ledger.nodes:
            self._configured(name)
        for name, facts in loaded.nodes_described.items():  # addresses: for logs and launches
            told = ParseDict(json.loads(facts), NodeFacts(), ignore_unknown_fields=True)
            self.agents.recall(name, told)

    def _reserved(self, writes: Sequence[Write]) -> None:
        self.board.apply(writes, self.shell.reserved, self.now)
        for write in writes:
            if isinstance(write, RegisterNode):
                self._configured(write.node)

    def _committed(self, changed: set[m.JobId], writes: Sequence[Write]) -> None:
        for write in writes:
            if isinstance(write, Attach) and self.speeds.take(write.row):
                continue
            if isinstance(write, Attach) and self.tenants.take(write.row):
                self.govern()
            elif isinstance(write, Attach) and isinstance(write.row, Drained):
                row = write.row
                self.drained.pop(row.node, None)
                self.draining_at.pop(row.node, None)
                if row.drained:
                    self.drained[row.node] = row
                    if row.by_at is not None:
                        self.draining_at[row.node] = row.by_at

    def rules(self, settings: Settings | None = None) -> ClusterRules:
        """Partitions, virtual clusters and their nodes, as the file and operators say."""
        return replace(rules_of(settings or self.settings), vcs=self.tenants.in_force())

    def govern(self) -> None:
        """Rounds go by the tenants as they are now."""
        rules = self.rules()
        if rules != self.board.rules:
            self.board.configure(self.board.settings, rules)
        self.board.limit_tenants(self.tenants.quotas(), self.tenants.parents())
        self.on_govern()

    def _configured(self, name: m.NodeName) -> None:
        number = 0
        for section in self.settings.nodes:
            if section.name:
                names = expand_hosts(section.name)
            else:
                names = [f"n{number + k + 1}" for k in range(section.count)]
            number += len(names)
            if name in names:
                facts = section.model_dump(
                    include={"cpus", "memory_gb", "rack", "switch", "domain", "nic_gbps"}
                )
                if section.gpu_type:
                    facts["gpu_type"] = section.gpu_type
                self.board.describe_node(name, facts)

    def fate(self, job: m.JobId) -> Fate | None:
        """What came of a job that is live no more, as the store said."""
        stored = self.shell.outcomes.get(job)
        if stored is None:
            return None
        spec = stored.spec
        elements: tuple[m.JobId, ...] = ()
        if spec is not None and spec.array is not None and spec.index == 0:
            elements = tuple(m.JobId(job + k) for k in range(len(spec.array.tasks)))
        return Fate(
            started_at=stored.facts.first_started_at,
            ended_at=stored.facts.ended_at,
            succeeded=stored.job.status is JobStatus.COMPLETED,
            elements=elements,
        )

    def measure(
        self, job: m.JobId, run: Run, step: int, executed_s: float, loss: float = math.nan
    ) -> None:
        """A run tells how far it is: its kind's speed on GPUs like its own."""
        self.board.note_steps(job, step, loss)
        key = self._place_of(job, run)
        if run.stop is not None or run.suspended:
            key = None
        least_s = self.settings.round.measure_s
        rate = self.speeds.told(run.key.run_id, key, step, executed_s, least_s)
        if rate is not None and key is not None:
            self.shell.note(*self.speeds.measured(key, rate, wall()))

    def _place_of(self, job: m.JobId, run: Run) -> SpeedKey | None:
        """What a run is, where, and beside whom.

        None where its GPUs are of several types, or of none named, or shared by more than two.
        """
        kind, place = self.board.asks.kinds.get(job), self.training_place(run)
        if kind is None or not kind[0] or place.gpu_type in ("", ANY_TYPE) or not place.gpus:
            return None
        kinds = [self.board.asks.kinds.get(other) for other in self.board.beside(job)]
        if not kinds:
            return SpeedKey(*kind, place.gpu_type, place.gpus)
        partner = kinds[0] if len(kinds) == 1 else None
        if partner is None or not partner[0]:
            return None
        return SpeedKey(*kind, place.gpu_type, place.gpus, *partner)

    def learn(self, job: m.JobId, run: Run, report: RunReport) -> tuple[int, int] | None:
        """A run tells how its training goes; the batch size that would do better there."""
        book, told = self.trainings, False
        if report.ignored > 0:
            book.ignore(job, min(report.ignored, MOST_IGNORED))
        if report.HasField("restart_s"):
            book.restarted(job, report.restart_s)
            told = True
        if report.HasField("save_s"):
            book.saved(job, report.save_s)
            told = True
        place = self.training_place(run)
        batch: tuple[int, int] | None = None
        if report.HasField("training"):
            told = True
            why = book.told(job, run.key.run, place, report.training)
            if why:
                log.info("event=report-ignored job=%s run=%s why=%r", job, run.key.run, why)
            elif run.stop is None:
                batch = book.of(job).better_batch(place)
        if told and book.of(job).limits is not None:
            self.shell.note(TrainingTold(job=job, known=book.of(job).known(), at=wall()))
        return batch

    def training_place(self, run: Run) -> Place:
        """Where a run is; of GPUs of several types, or of none named, under no name."""
        machines = [self.board.machines.get(name) for name in run.members]
        types = {"" if machine is None else machine.gpu_type for machine in machines}
        gpus = sum(len(member.gpus) for member in run.members.values())
        return Place(types.pop() if len(types) == 1 else "", len(run.members), gpus)

    # -- nodes -------------------------------------------------------------------------------------

    def may_join(self, name: m.NodeName) -> bool:
        """Whether a node is one of the configured, when any are."""
        names = self.settings.node_names()
        return not names or name in names or name in self.shell.committed.nodes

    def heard(self, sync: m.Sync) -> None:
        """A node has synced: it is not late if it hears us too, and these GPUs are no good."""
        self.unhealthy[sync.node] = frozenset(sync.health.unhealthy)
        late = self.is_late(sync.node, boottime())
        self.board.observe_node(sync.node, late=late, unhealthy=sync.health.unhealthy)

    def observe_silence(self) -> None:
        """Nodes that have not been heard for a while get no new runs."""
        now = boottime()
        for name in self.shell.committed.nodes:
            self.board.observe_node(name, late=self.is_late(name, now))

    def is_late(self, name: m.NodeName, now: float) -> bool:
        """Whether a node was not heard for a while, or has not heard what it was told.

        A node that is cut off one way goes on to report; work that it is given would never begin.
        """
        timing = self.shell.state.timing
        longest = timing.witness_beats * timing.beat_s
        hearing = self.shell.state.hearings.get(name)
        if hearing is None or now - hearing.at > longest:
            return True
        if not hearing.renewals:
            return False
        told = hearing.renewals.values()
        arrived = min(told) if hearing.chain is None else hearing.chain.last_sent
        return max(told) - arrived > longest

    def heard_ago(self, name: m.NodeName, now: float) -> float | None:
        """Seconds since a node synced in this term."""
        hearing = self.shell.state.hearings.get(name)
        return None if hearing is None else now - hearing.at

    def observe_uses(self, name: m.NodeName) -> None:
        """GPUs that somebody outside uses get no new runs."""
        described = self.agents.described.get(name)
        if described is not None:
            foreign = [use.uuid for use in described.uses.values() if use.foreign]
            self.board.observe_node(name, foreign=foreign)

    def address(self, name: m.NodeName) -> str:
        """Where a node's agent listens; empty when it has not said."""
        described = self.agents.described.get(name)
        return described.facts.address if described is not None else ""

    def node_state(self, name: m.NodeName) -> str:
        """A node's state in the words of listings."""
        node = self.shell.committed.nodes[name]
        busy = self.shell.committed.busy(name)
        held = self.shell.committed.held_by.get(name, ())
        if node.status is not NodeStatus.UP:
            return "down"
        if name in self.drained:
            return "draining" if held else "drained"
        if self.is_late(name, boottime()):
            return "late"
        if not held:
            return "idle"
        return "full" if len(busy) >= len(node.gpus) else "mixed"

    # -- what fits ---------------------------------------------------------------------------------

    def capacity(self) -> Capacity:
        """What the cluster could ever give."""
        key = (self.board.machines.version, self.settings, len(self.shell.committed.nodes))
        if self._capacity is None or self._capacity[0] != key:
            self._capacity = (key, Capacity(hosts=self._hosts()))
        return self._capacity[1]

    def _hosts(self) -> dict[str, Host]:
        settings = self.settings
        hosts: dict[str, Host] = {}
        for section in settings.nodes:
            if section.name:
                names = expand_hosts(section.name)
            else:
                names = [f"n{len(hosts) + k + 1}" for k in range(section.count)]
            for name in names:
                hosts[name] = Host(
                    name=name,
                    gpus=section.gpus,
                    gpu_type=section.gpu_type,
                    cpus=section.cpus,
                    memory_bytes=None
                    if section.memory_gb is None
                    else int(section.memory_gb * 1e9),
                    partitions=settings.partitions_of(name),
                )
        for name, node in self.shell.committed.nodes.items():
            machine = self.board.machines.get(name)
            known = machine.gpu_type if machine is not None else ""
            facts = self.agents.described.get(name)
            hosts[name] = Host(
                name=name,
                gpus=len(node.gpus),
                gpu_type="" if known == ANY_TYPE else known,
                cpus=facts.facts.cpus or None if facts is not None else None,
                memory_bytes=facts.facts.memory_bytes or None if facts is not None else None,
                partitions=settings.partitions_of(name),
            )
        return hosts
