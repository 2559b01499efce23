"""Metrics for Prometheus: counted when something happens, or taken every few seconds."""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
from prometheus_client import Counter, Histogram
from prometheus_client.metrics_core import Metric

from dlsched.core.arrays import Floats
from dlsched.daemon.live.job_columns import ENDED, PENDING
from dlsched.daemon.metrics.job_counts import NO_VC, JobCounts
from dlsched.daemon.training.current import reporting_runs
from dlsched.rpc.metrics_port import (
    MetricsPort,
    Moment,
    Values,
    certificate_metric,
    counter,
    gauge,
    new_registry,
)
from dlsched.system.clock import boottime

if TYPE_CHECKING:
    from dlsched.daemon.cluster import Cluster
    from dlsched.daemon.leader_driver import LeaderDriver
    from dlsched.protocol.ledger import Ledger
    from dlsched.protocol.messages import NodeName

JOB_STATES = ("pending", "starting", "running", "suspended", "stopping")
NODE_STATES = (
    "idle",
    "mixed",
    "full",
    "draining",
    "drained",
    "down",
    "late",
    "unheard",
    "reserved",
    "maint",
    "spare",
)
BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
DESCRIBED_S = 120.0  # older descriptions of GPUs say nothing of the present


MOST_JOBS = 500  # whose trainings have metrics: those with the newest reports
_OF_JOBS = {  # by the names of `TrainingNow`
    "loss": ("dlsched_job_loss", "The newest loss that a running job has reported"),
    "steps_s": ("dlsched_job_steps_per_second", "Training steps a second"),
    "samples_s": ("dlsched_job_samples_per_second", "Samples a second, of all ranks"),
    "gpu_memory_bytes": ("dlsched_job_gpu_memory_bytes", "In use on the fullest of its GPUs"),
    "gpu_utilization": ("dlsched_job_gpu_utilization", "How busy its GPUs are, from 0 to 1"),
    "report_age_s": ("dlsched_job_report_age_seconds", "Since its last report"),
}


class Metrics:
    """The metrics of one daemon."""

    def __init__(self) -> None:
        registry = self.registry = new_registry()
        self._rounds = Counter("dlsched_rounds", "Rounds decided", ["mode"], registry=registry)
        self._round_s = Histogram(
            "dlsched_round_seconds", "Wall time of a decision", ["mode"],
            buckets=BUCKETS, registry=registry,
        )  # fmt: skip
        self._round_cpu = Counter(
            "dlsched_round_cpu_seconds", "CPU time of decisions", registry=registry
        )
        self._failures = Counter(
            "dlsched_policy_failures", "Rounds that a policy failed", registry=registry
        )
        self.lag = Histogram(
            "dlsched_loop_lag_seconds", "How late the event loop is", buckets=BUCKETS,
            registry=registry,
        )  # fmt: skip
        self._moment = Moment(registry)
        self._port = MetricsPort(registry)
        self._gpu_s: dict[str, dict[str, float]] = {}  # by kind of tenant and name
        self._gathered_at: float | None = None
        self._counted: Ledger | None = None  # of which `_busy` are the busy GPUs by node
        self._busy: dict[NodeName, int] = {}

    def follow(self, driver: LeaderDriver) -> None:
        """Count what becomes of the jobs of a leader."""
        JobCounts(driver, self.registry)

    def decided(self, mode: str, wall_s: float, cpu_s: float) -> None:
        """Count a round that was decided; seconds of wall and CPU time."""
        self._rounds.labels(mode).inc()
        self._round_s.labels(mode).observe(wall_s)
        self._round_cpu.inc(max(cpu_s, 0.0))

    def policy_failed(self) -> None:
        """Count a round whose policy failed."""
        self._failures.inc()

    def gather(self, cluster: Cluster, expires_at: float | None = None) -> None:
        """Take the metrics of this moment from the cluster, in the main thread.

        `expires_at` is when the daemon's certificate does, in seconds since the epoch.
        """
        ledger = cluster.driver.committed
        if ledger is not self._counted:  # a ledger never changes, it is replaced
            self._busy = {name: len(ledger.busy(name)) for name in ledger.nodes}
            self._counted = ledger
        self._moment.families = [
            *_of_daemon(cluster),
            *_of_nodes(cluster, self._busy),
            *_of_jobs(cluster),
            *self._of_tenants(cluster),
            *_of_trainings(cluster),
            *certificate_metric("dlsched", expires_at),
        ]

    def _of_tenants(self, cluster: Cluster) -> Iterator[Metric]:
        """GPUs and jobs of each tenant; GPU-seconds are summed from moment to moment.

        Of accounts only those that operators have made are labels, since users can name others.
        """
        now, before = boottime(), self._gathered_at
        self._gathered_at = now
        passed_s = now - before if before is not None else 0.0
        jobs, tenants, requests = cluster.live.jobs, cluster.tenants, cluster.live.requests
        names, vcs = requests.names(), tenants.vcs()
        live = jobs["phase"] != ENDED
        gpus = (jobs["gpus_now"] * jobs["gpu_share"])[live]
        waits = jobs["phase"][live] == PENDING
        kinds = {
            "vc": ("virtual cluster", names["vc"], {*names["vc"], *vcs}),
            "account": ("account", names["account"], set(tenants.accounts())),
            "partition": (
                "partition",
                requests.partitions(),
                set(cluster.settings.partition_rules()),
            ),
        }
        for kind, (words, known, shown) in kinds.items():
            code = jobs[kind][live] + 1  # 0: none
            counted = (
                np.bincount(code, weights, minlength=len(known) + 1)
                for weights in (gpus, waits, ~waits)
            )
            rows = dict.fromkeys([NO_VC, *sorted(shown)], np.zeros(3))
            for name, row in zip((NO_VC, *known), np.stack([*counted], axis=1), strict=True):
                where = name if name in shown else NO_VC
                rows[where] = rows[where] + row
            yield from self._of_kind(kind, words, rows, passed_s)
        yield gauge(
            "dlsched_vc_gpus_quota", "GPUs that a virtual cluster may have",
            {(vc.name,): float(vc.gpus) for vc in vcs.values() if vc.gpus is not None}, ["vc"],
        )  # fmt: skip

    def _of_kind(
        self, kind: str, words: str, rows: Mapping[str, Floats], passed_s: float
    ) -> Iterator[Metric]:
        """The metrics of tenants of one kind, each with its GPUs, pending and placed jobs."""
        spent = self._gpu_s.setdefault(kind, {})
        for name, (gpus, _, _) in rows.items():
            spent[name] = spent.get(name, 0.0) + float(gpus) * passed_s
        states: Values = {
            (name, state): float(count)
            for name, (_, *counts) in rows.items()
            for state, count in zip(("pending", "placed"), counts, strict=True)
        }
        yield gauge(
            f"dlsched_{kind}_gpus_held", f"GPUs that jobs of a {words} hold",
            {(name,): float(row[0]) for name, row in rows.items()}, [kind],
        )  # fmt: skip
        yield gauge(
            f"dlsched_{kind}_jobs", f"Live jobs by {words}: pending, or placed on GPUs",
            states, [kind, "state"],
        )  # fmt: skip
        yield counter(
            f"dlsched_{kind}_gpu_seconds", f"Time for which GPUs were held, by {words}",
            {(name,): seconds for name, seconds in spent.items()}, [kind],
        )  # fmt: skip

    def serve(self, where: str, page: Callable[[], bytes]) -> int:
        """Listen; returns the port.

        Args:
            where: HOST:PORT.
            page: what `/` answers, as HTML; every other path has the metrics.

        Raises:
            BadInput: for an address that is malformed.
            Unavailable: for one that is in use, or of another machine.
        """
        return self._port.listen(where, "daemon.metrics", page)

    def close(self) -> None:
        """Stop listening."""
        self._port.close()


def _of_daemon(cluster: Cluster) -> Iterator[Metric]:
    driver = cluster.driver
    for name, text, value in (
        ("leading", "1 while this process leads", driver.leading),
        ("epoch", "The leader's term", driver.state.epoch),
        ("orphans", "Runs that are alive and unknown", len(driver.committed.orphans)),
        ("store_available", "1 while the database stores", not driver.store_trouble),
    ):
        yield gauge(f"dlsched_{name}", text, float(value))
    for name, text, total in (
        ("transactions", "Transactions committed", driver.transactions),
        ("nudges_lost", "Nudges that did not reach their node", cluster.agents.lost_nudges),
        (
            "reports_ignored",
            "Reports of jobs that were invalid or of another run",
            cluster.trainings.ignored,
        ),
        (
            "checkpoints_failed",
            "Checkpoints that jobs could not write",
            cluster.unsaved.failures,
        ),
    ):
        yield counter(f"dlsched_{name}", text, float(total))


def _of_nodes(cluster: Cluster, busy: Mapping[NodeName, int]) -> Iterator[Metric]:
    ledger = cluster.driver.committed
    states = Tally(cluster.node_state(name, busy[name]) for name in ledger.nodes)
    yield gauge(
        "dlsched_nodes", "Nodes by state", {(s,): states[s] for s in NODE_STATES}, ["state"]
    )
    total = sum(len(node.gpus) for node in ledger.nodes.values())
    bad = sum(len(cluster.unhealthy.get(name, ())) for name in ledger.nodes)
    gpus: Values = {("all",): total, ("busy",): sum(busy.values()), ("unhealthy",): bad}
    yield gauge("dlsched_gpus", "GPUs of all nodes", gpus, ["state"])
    now = boottime()
    use: dict[tuple[str, ...], float] = {}
    full: dict[tuple[str, ...], float] = {}
    for name in ledger.nodes:
        described = cluster.agents.described.get(name)
        if described is None or now - described.heard_at > DESCRIBED_S:
            continue
        if not math.isnan(described.utilization):
            use[name,] = described.utilization
        if not math.isnan(described.memory_used_bytes):
            full[name,] = described.memory_used_bytes
    yield gauge(
        "dlsched_node_gpu_utilization", "How busy the GPUs of a node are, from 0 to 1, the mean",
        use, ["node"],
    )  # fmt: skip
    yield gauge("dlsched_node_gpu_memory_used_bytes", "GPU memory in use on a node", full, ["node"])


def _of_jobs(cluster: Cluster) -> Iterator[Metric]:
    states = Tally(row.status.value for row in cluster.driver.committed.jobs.values())
    yield gauge("dlsched_jobs", "Live jobs by state", {(s,): states[s] for s in JOB_STATES},
                ["state"])  # fmt: skip
    running = sum(
        cluster.driver.committed.live_run(job) is not None for job in cluster.unsaved.jobs
    )
    yield gauge("dlsched_jobs_unsaved", "Running jobs whose latest checkpoint has failed", running)
    jobs, now = cluster.live.jobs, cluster.now
    since = np.maximum(jobs["submit_time"], jobs["begin_at"])
    waits = (jobs["phase"] == PENDING) & ~jobs["held"] & (since <= now)
    longest = float((now - since[waits]).max()) if waits.any() else 0.0
    yield gauge("dlsched_longest_wait_seconds", "Of the jobs that wait and are not held", longest)


def _of_trainings(cluster: Cluster) -> Iterator[Metric]:
    """Metrics of running jobs with the job's number as their only label.

    Names that users choose are no labels, and the number of jobs is bounded, so that the number of
    series is.
    """
    running = [(run.key.job, values) for run, values in reporting_runs(cluster, MOST_JOBS)]
    for key, (name, text) in _OF_JOBS.items():
        found: Values = {(str(job),): values[key] for job, values in running if key in values}
        yield gauge(name, text, found, ["job"])
