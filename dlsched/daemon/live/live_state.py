"""The live state: jobs, nodes and GPUs, what is seen of them, and what rounds decided of them.

A round's snapshot is made of it, and services ask it why a job waits. It lives in the main thread.

Invariant: every pending job has a reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from dlsched.core.arrays import Bools, Floats
from dlsched.core.cluster.occupancy import Placement
from dlsched.core.sharing.gpu_limits import Holder
from dlsched.daemon.live import job_columns as c
from dlsched.daemon.live.live_columns import LiveColumns
from dlsched.daemon.live.nodes import ClusterRules, natural
from dlsched.db.records import JobSpec
from dlsched.protocol.ledger import pause_after
from dlsched.protocol.messages import GpuId, JobId, NodeName
from dlsched.tenants.fields import Quota

UNSEEN = "Resources: waits for the next round"  # why a job waits that no round has seen


class LiveState(LiveColumns):
    """The jobs, nodes and GPUs of this term, as rounds and services see them."""

    # -- what is not in the ledger -----------------------------------------------------------------

    def describe_node(self, name: NodeName, facts: Mapping[str, object]) -> None:
        """Note what the configuration says of a node (gpu_type, cpus, memory_gb, switch, …)."""
        self.nodes.describe(name, facts)
        self.request_round()

    def observe_node(
        self,
        name: NodeName,
        *,
        late: bool | None = None,
        unhealthy: Iterable[GpuId] | None = None,
        foreign: Iterable[GpuId] | None = None,
    ) -> None:
        """Note what is seen of a node and not stored; see `LiveNodes.observe`."""
        if self.nodes.observe(name, late=late, unhealthy=unhealthy, foreign=foreign):
            self.request_round()

    def note_gpu_use(
        self, job: JobId, utilisation: float, memory_gib: float, seconds: float
    ) -> None:
        """Note how busy and how full a job's GPUs were over some seconds; not while it shares them.

        Args:
            job: its id.
            utilisation: 0 to 1, the mean of its GPUs.
            memory_gib: of the fullest; NaN where unknown.
            seconds: since the last look.
        """
        row = self.jobs.row_of.get(job)
        if row is None or self.co_located(job):
            return
        before, mean = self.jobs.get("gpu_util_s", row), self.jobs.get("gpu_util", row)
        seen = before + seconds
        mean = mean if before else 0.0
        mean += (100.0 * utilisation - mean) * seconds / seen
        most = np.fmax(self.jobs.get("gpu_memory", row), memory_gib)
        self.jobs.set(row, gpu_util=mean, gpu_util_s=seen, gpu_memory=most)

    def note_steps(
        self, job: int, step: int, loss: float = np.nan, accuracy: float = np.nan
    ) -> None:
        """Note how many steps a job has done, and of its loss and accuracy what is finite."""
        row = self.jobs.row_of.get(job)
        if row is not None:
            told = {"loss": loss, "accuracy": accuracy}
            finite = {name: value for name, value in told.items() if np.isfinite(value)}
            self.jobs.set(row, steps_done=step, **finite)

    def set_rules(self, rules: ClusterRules) -> None:
        """Set other partitions and virtual clusters; running jobs run on."""
        self.rules = rules
        if rules.site.half_life_s != self.jobs.usage.half_life_s:
            self.jobs.usage.settle(max(self._now, 0.0))  # what was used fades anew from now on
            self.jobs.usage.half_life_s = rules.site.half_life_s
            self._usage_settled = True
        self.constraints.set_rules(rules)
        self.eligibility.limit_partitions(rules.longest_s, rules.access)
        self.request_round()

    def set_quotas(self, quotas: Mapping[Holder, Quota], parents: Mapping[str, str]) -> None:
        """Set other quotas, and the parents of accounts; running jobs run on."""
        live = [(job, spec) for job, spec in self.requests.specs.items() if self._is_live(job)]
        self.eligibility.tenant_limits.change(quotas, parents, live)
        self.request_round()

    def avoid(self, job: JobId, nodes: frozenset[NodeName]) -> None:
        """Keep a job from some nodes, and from no other ones, if the others could do now."""
        row = self.jobs.row_of.get(job)
        if row is None or self.jobs.get("phase", row) == c.ENDED:
            return
        self.requests.avoid(job, frozenset(map(str, nodes)))
        if nodes and not self._could_do(job, row):
            self.requests.avoid(job, frozenset())
        self.request_round()

    def _could_do(self, job: JobId, row: int) -> bool:
        """Whether the nodes of a job's pool that take runs have room for it when they are idle."""
        body = self.requests.specs[job].body
        pool = self.constraints.pool_mask(self.jobs.get("pool", row), self.nodes)
        usable = [x for k, x in enumerate(self.nodes.all()) if x.is_open and pool >> k & 1]
        gpus = body.gpus if body.gang is None else sum(body.gang)
        nodes = 1 if body.gang is None else len(body.gang)
        return len(usable) >= nodes and sum(len(each.gpus) for each in usable) >= gpus

    # -- rounds ------------------------------------------------------------------------------------

    def judge(self, now: float) -> Bools:
        """Which rows policies may see as waiting; the reasons of the others are noted."""
        self._now = now
        eligible, reasons = self.eligibility.judge(now, self.claims)
        self._reasons.update(reasons)
        return eligible

    def offer_ranges(self, now: float) -> None:
        """Set how many nodes jobs with a range of nodes ask for in the next round."""
        self.ranges.offer(
            unreserved=lambda job: self.unreserved(job, now),
            is_seen=lambda job: not self.eligibility.hindrance(job, now),
            claimed=self.claims,
            where=self.accounting.where,
        )

    def note_seen(self) -> None:
        """Note that a snapshot, of which a decision is made, has all that is here now."""
        self._seen = self._stamp
        self._highest_shown = self.requests.highest
        self._shown = frozenset(self._unsettled)

    def settle(self) -> None:
        """Note that the policy knows what the last snapshot has: its decision was accepted."""
        self._unsettled -= self._shown

    def take_decision(
        self,
        *,
        launched: Mapping[int, Placement],
        suspended: Iterable[int],
        reasons: Mapping[int, str],
        positions: Mapping[int, int],
        terms: Mapping[str, Floats],
    ) -> None:
        """Follow a decision that was verified.

        Args:
            launched: jobs that get GPUs.
            suspended: jobs that lose theirs.
            reasons: why jobs got nothing.
            positions: the places of waiting jobs in the policy's order, from 1.
            terms: the numbers behind that order, by name and place.
        """
        for job in suspended:
            self.claims.drop(job)
            row = self.jobs.row_of.get(job)
            if row is not None and self.jobs.get("leaving", row) == c.IS_ENDING:
                self.jobs.set(row, leaving=c.GIVES_WAY)  # its GPUs are another job's from then on
        for job, placement in launched.items():
            row = self.jobs.row_of.get(job)
            if row is not None:
                self.claims.add(job, self.jobs.get("runs", row) + 1, placement)
        self._reasons.update(reasons)
        for job, nodes in self.constraints.avoided.items():
            if job in reasons:
                names = ", ".join(sorted(nodes, key=natural))
                self._reasons[job] = f"{reasons[job]}; its start has failed on {names}"
        self._positions = dict(positions)
        self._terms = dict(terms)
        self.changed = self._stamp != self._seen  # by what came after its snapshot

    def ready_claims(self) -> list[tuple[JobId, Placement]]:
        """Claims that can become starts now; claims that became void are dropped."""
        if self.claims.drop_void():
            self.request_round()
        return self.claims.ready()

    def giving_way(self) -> list[int]:
        """Jobs whose run was asked to give way and is not over yet."""
        rows = (self.jobs["phase"] == c.HOLDING) & (self.jobs["leaving"] == c.GIVES_WAY)
        found: list[int] = self.jobs["job"][rows].tolist()
        return found

    def note_reason(self, job: int, why: str) -> None:
        """Note why a job that policies do not see waits."""
        self._reasons[job] = why

    def was_known(self, job: int) -> bool:
        """Whether a job of this number was ever submitted."""
        return 0 < job <= self.requests.highest

    def decline(self, job: JobId, why: str, now: float) -> None:
        """Note that the leader refused to start a job: it pauses, and a round decides anew."""
        self.claims.drop(job)
        row = self.jobs.row_of.get(job)
        if row is not None:
            failures = self.jobs.get("failed_starts", row) + 1
            self.jobs.set(row, failed_starts=failures, not_before=now + pause_after(failures))
            self._reasons[job] = why
            self.accounting.unstored.add(job)
        self.request_round()

    @contextmanager
    def supposing(self, specs: Sequence[JobSpec], now: float) -> Iterator[list[int]]:
        """Have jobs in the columns as if they had just been submitted; yields their ids."""
        highest = self.requests.highest
        ids = [highest + 1 + k for k in range(len(specs))]
        try:
            self.requests.append(dict(zip(ids, specs, strict=True)), now)
            for job, spec in zip(ids, specs, strict=True):
                self.eligibility.enter(job, spec)
            yield ids
        finally:
            for job, spec in zip(ids, specs, strict=True):
                if job in self.jobs.row_of:
                    self.eligibility.forget(job, spec)
                    self.constraints.forget(job)
                self.requests.specs.pop(job, None)
                self._reasons.pop(job, None)
            self.jobs.pack(self.jobs["job"] <= highest)

    # -- questions ---------------------------------------------------------------------------------

    @property
    def stamp(self) -> int:
        """A number that grows with every change that could start a job."""
        return self._stamp

    def waiting(self) -> list[int]:
        """Jobs without a run that have a place in the policy's order."""
        return list(self._positions)

    def reason(self, job: JobId) -> str:
        """Why a pending job waits; never empty."""
        if job in self.jobs.row_of:
            hindrance = self.eligibility.hindrance(job, self._now)  # known before the next round
            if hindrance:
                return hindrance
        claim = self.claims.get(job)
        if claim is not None:
            hindrance = self.nodes.hindrance(claim.placement, self.share_of(job))
            return f"Resources: {hindrance or 'about to start'}"
        return self._reasons.get(job) or UNSEEN

    def reasons(self, jobs: Sequence[int]) -> list[str]:
        """The `reason` of each of many jobs, of which most have no hindrance."""
        known, row_of, claims = self._reasons, self.jobs.row_of, self.claims
        hindered = self.eligibility.hindered(self._now).tolist()
        return [
            self.reason(JobId(job))
            if (row := row_of.get(job)) is None or hindered[row] or job in claims
            else known.get(job) or UNSEEN
            for job in jobs
        ]

    def unseen_because(self, job: JobId) -> str:
        """Why policies do not see a pending job; empty when they do, or it does not wait."""
        row = self.jobs.row_of.get(job)
        if row is None or self.jobs.get("phase", row) != c.PENDING:
            return ""
        hindrance = self.eligibility.hindrance(job, self._now)
        known = self._reasons.get(job, "")
        return hindrance or (known if known.startswith("JobArrayTaskLimit") else "")

    def position(self, job: JobId) -> int | None:
        """A waiting job's place in the policy's order, from 1; None while it has none."""
        return self._positions.get(job)

    def order_terms(self, job: JobId) -> dict[str, float]:
        """The numbers behind a waiting job's place, by name; empty where its policy has none."""
        place = self._positions.get(job)
        if place is None:
            return {}
        found = {name: float(values[place - 1]) for name, values in self._terms.items()}
        return {name: value for name, value in found.items() if not math.isnan(value)}

    def order(self) -> tuple[list[int], dict[str, Floats]]:
        """The waiting jobs, the first in the policy's order first, and the numbers behind it."""
        places = np.fromiter(self._positions.values(), np.int64, len(self._positions)) - 1
        return list(self._positions), {name: v[places] for name, v in self._terms.items()}

    def where(self, job: JobId) -> Placement | None:
        """Where a job's live run is, suspended or not; None without one."""
        return self.accounting.where.get(job)

    def unreserved(self, job: JobId, now: float) -> int:
        """The nodes, as bits, that reservations leave to a job that would start now."""
        row = self.jobs.row_of[job]
        limit, mine = self.jobs.get("time_limit", row), self.requests.specs[job].body.reservation
        until = math.inf if math.isnan(limit) else now + limit
        left = 0 if mine else -1
        for each in self.rules.reservations:
            nodes = sum(
                1 << k for k, node in enumerate(self.nodes.all()) if node.name in each.nodes
            )
            if each.name == mine:
                left = nodes if each.admits(now, until) else 0
            elif not mine and each.blocks(now, until):
                left &= ~nodes
        return left

    def may_stay(self, job: JobId) -> bool:
        """Whether a job whose run fails may start again on its GPUs: nothing has changed for it."""
        where, row = self.accounting.where.get(job), self.jobs.row_of.get(job)
        if where is None or row is None or self.requests.specs[job].body.retry_elsewhere:
            return False
        usable = self.constraints.pool_mask(self.jobs.get("pool", row), self.nodes)
        usable &= self.unreserved(job, self._now)
        return (
            self.jobs.get("leaving", row) != c.GIVES_WAY
            and all(usable >> index & 1 for index in where.nodes)
            and not self.nodes.is_closed(where)
            and not self.eligibility.hindrance(job, self._now)
        )

    def share_of(self, job: int) -> float:
        """What a job needs of each of its GPUs, in (0, 1]."""
        return float(self.jobs.get("gpu_share", self.jobs.row_of[job]))

    def co_located(self, job: JobId) -> list[JobId]:
        """The other jobs that run on the very GPUs of a running job."""
        where = self.accounting.where.get(job)
        if where is None:
            return []
        phase, row_of = self.jobs["phase"], self.jobs.row_of
        there = map(JobId, self.accounting.sharing[where])
        return sorted(
            other for other in there if other != job and phase[row_of[other]] == c.HOLDING
        )
