"""Metrics for Prometheus; the gauges are taken from the cluster every few seconds."""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dlsched.core.errors import BadInput
from dlsched.daemon.training.current import reporting_runs

if TYPE_CHECKING:
    from dlsched.daemon.cluster import Cluster

JOB_STATES = ("pending", "starting", "running", "suspended", "stopping")
NODE_STATES = ("idle", "mixed", "full", "draining", "drained", "down", "late", "unheard")
BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


MOST_JOBS = 500  # whose trainings have metrics: those with the newest reports
_OF_JOBS = {  # by the names of `TrainingNow`
    "loss": ("dlsched_job_loss", "The newest loss that a running job has reported"),
    "steps_s": ("dlsched_job_steps_per_second", "Training steps a second"),
    "samples_s": ("dlsched_job_samples_per_second", "Samples a second, of all ranks"),
    "gpu_memory_bytes": ("dlsched_job_gpu_memory_bytes", "In use on the fullest of its GPUs"),
    "gpu_utilization": ("dlsched_job_gpu_utilization", "How busy its GPUs are, from 0 to 1"),
    "report_age_s": ("dlsched_job_report_age_seconds", "Since its last report"),
}

_HEADERS = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
    ("Cache-Control", "no-store"),
]


class _Trainings(Collector):
    """Metrics of running jobs with the job's number as their only label.

    Names that users choose are no labels, and the number of jobs is bounded, so that the number of
    series is. All of them change at once, so no scrape sees half of them.
    """

    def __init__(self) -> None:
        self.values: Mapping[int, Mapping[str, float]] = {}

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the metrics of all jobs at one moment."""
        values = self.values
        for key, (name, text) in _OF_JOBS.items():
            family = GaugeMetricFamily(name, text, labels=["job"])
            for job, each in values.items():
                if key in each:
                    family.add_metric([str(job)], each[key])
            yield family


class Metrics:
    """The metrics of one daemon."""

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
                ("reports_ignored", "Reports of jobs that were invalid or of another run"),
            )
        }
        self._trainings = _Trainings()
        registry.register(self._trainings)
        self._server: tuple[Any, threading.Thread] | None = None

    def decided(self, mode: str, wall_s: float, cpu_s: float) -> None:
        """Count a round that was decided; seconds of wall and CPU time."""
        self._rounds.labels(mode).inc()
        self._round_s.labels(mode).observe(wall_s)
        self._round_cpu.inc(max(cpu_s, 0.0))

    def policy_failed(self) -> None:
        """Count a round whose policy failed."""
        self._failures.inc()

    def gather(self, cluster: Cluster) -> None:
        """Take the gauges from the cluster, in the main thread."""
        driver, ledger = cluster.driver, cluster.driver.committed
        states = Tally(row.status.value for row in ledger.jobs.values())
        for state in JOB_STATES:
            self._jobs.labels(state).set(states[state])
        busy = {name: len(ledger.busy(name)) for name in ledger.nodes}
        nodes = Tally(cluster.node_state(name, busy[name]) for name in ledger.nodes)
        for state in NODE_STATES:
            self._nodes.labels(state).set(nodes[state])
        total = sum(len(node.gpus) for node in ledger.nodes.values())
        self._gpus.labels("all").set(total)
        self._gpus.labels("busy").set(sum(busy.values()))
        for name, value in (
            ("leading", driver.leading),
            ("epoch", driver.state.epoch),
            ("transactions_committed", driver.transactions),
            ("orphans", len(ledger.orphans)),
            ("store_available", not driver.store_down),
            ("nudges_lost", cluster.agents.lost_nudges),
            ("reports_ignored", cluster.trainings.ignored),
        ):
            self._gauges[name].set(float(value))
        self._trainings.values = {
            run.key.job: values for run, values in reporting_runs(cluster, MOST_JOBS)
        }

    def serve(self, where: str, page: Callable[[], bytes]) -> int:
        """Listen; returns the port.

        Args:
            where: HOST:PORT.
            page: what `/` answers, as HTML; every other path has the metrics.

        Raises:
            BadInput: for an address that is malformed or in use.
        """
        host, _, port = where.rpartition(":")
        if not host or not port.isdigit():
            raise BadInput(f"daemon.metrics: {where!r} is not HOST:PORT")
        try:
            server, thread = start_http_server(int(port), host, registry=self.registry)
        except OSError as error:
            raise BadInput(f"daemon.metrics: cannot listen on {where}: {error}") from None
        metrics: Any = server.get_app()

        def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            if environ["PATH_INFO"] not in ("", "/"):
                found: Iterable[bytes] = metrics(environ, start_response)
                return found
            if environ["REQUEST_METHOD"] != "GET":
                start_response("405 Method Not Allowed", [("Allow", "GET")])
                return [b""]
            content = page()
            start_response("200 OK", [*_HEADERS, ("Content-Length", str(len(content)))])
            return [content]

        server.set_app(answer)
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
