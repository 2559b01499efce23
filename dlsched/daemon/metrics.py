"""What the daemon tells Prometheus; gauges are read from the cluster when they are scraped."""

from __future__ import annotations

import threading
from collections import Counter as Tally
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from dlsched.core.errors import BadInput

if TYPE_CHECKING:
    from dlsched.daemon.cluster import Cluster

__all__ = ["Metrics"]

JOB_STATES = ("pending", "starting", "running", "suspended", "stopping")
NODE_STATES = ("idle", "mixed", "full", "draining", "drained", "down", "late")
BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class Metrics:
    """One registry a daemon."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
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
        self._jobs = Gauge("dlsched_jobs", "Live jobs by state", ["state"], registry=registry)
        self._nodes = Gauge("dlsched_nodes", "Nodes by state", ["state"], registry=registry)
        self._gpus = Gauge("dlsched_gpus", "GPUs of all nodes", ["state"], registry=registry)
        self._gauges = {
            name: Gauge(f"dlsched_{name}", text, registry=registry)
            for name, text in (
                ("leading", "1 while this process leads"),
                ("epoch", "The leader's term"),
                ("transactions_committed", "Transactions since the start"),
                ("orphans", "Runs that are alive and unknown"),
                ("store_available", "1 while the database stores"),
                ("nudges_lost", "Nudges that did not reach their node"),
                ("reports_ignored", "Words of jobs that made no sense or were of another run"),
            )
        }
        self._server: tuple[Any, threading.Thread] | None = None

    def decided(self, mode: str, wall_s: float, cpu_s: float) -> None:
        """A round was decided."""
        self._rounds.labels(mode).inc()
        self._round_s.labels(mode).observe(wall_s)
        self._round_cpu.inc(max(cpu_s, 0.0))

    def policy_failed(self) -> None:
        """A round was lost to its policy."""
        self._failures.inc()

    def gather(self, cluster: Cluster) -> None:
        """Take the gauges from the cluster; main thread, every few seconds."""
        shell, ledger = cluster.shell, cluster.shell.committed
        states = Tally(row.status.value for row in ledger.jobs.values())
        for state in JOB_STATES:
            self._jobs.labels(state).set(states[state])
        nodes = Tally(cluster.node_state(name) for name in ledger.nodes)
        for state in NODE_STATES:
            self._nodes.labels(state).set(nodes[state])
        total = sum(len(node.gpus) for node in ledger.nodes.values())
        busy = sum(len(ledger.busy(name)) for name in ledger.nodes)
        self._gpus.labels("all").set(total)
        self._gpus.labels("busy").set(busy)
        for name, value in (
            ("leading", shell.leading),
            ("epoch", shell.state.epoch),
            ("transactions_committed", shell.transactions),
            ("orphans", len(ledger.orphans)),
            ("store_available", not shell.store_down),
            ("nudges_lost", cluster.agents.lost_nudges),
            ("reports_ignored", cluster.trainings.ignored),
        ):
            self._gauges[name].set(float(value))

    def serve(self, where: str) -> int:
        """Listen; the port.

        Raises:
            BadInput: for an address that is none, or is taken.
        """
        host, _, port = where.rpartition(":")
        if not host or not port.isdigit():
            raise BadInput(f"daemon.metrics: {where!r} is not HOST:PORT")
        try:
            server, thread = start_http_server(int(port), host, registry=self.registry)
        except OSError as error:
            raise BadInput(f"daemon.metrics: cannot listen on {where}: {error}") from None
        self._server = (server, thread)
        return int(server.server_port)

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()
            self._server = None
