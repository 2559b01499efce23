"""The newest values of a run's training and of its GPUs, for listings, metrics and curves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from heapq import nsmallest

from dlsched.core.sums import ordered_sum
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.reported.curves import OURS
from dlsched.daemon.reported.failures import Failure
from dlsched.daemon.training.sweeps import note_rungs
from dlsched.db.records import Event
from dlsched.protocol.ledger import Run
from dlsched.protocol.messages import JobId, NodeName
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import boottime

MOST_RANKS = 4096  # whose memory is kept
MOST_STACKS = 64  # ranks whose stacks are kept of one hang


def gpu_use(cluster: Cluster, run: Run) -> dict[str, float]:
    """How much the GPUs of a run do, as their nodes have described it last.

    Returns:
        `gpu_utilization` (0..1, the mean) and `gpu_memory_bytes` (of the fullest GPU), where known.
    """
    uses = []
    for member in run.members.values():
        described = cluster.agents.described.get(member.node)
        if described is not None:
            uses += [described.uses[gpu] for gpu in member.gpus if gpu in described.uses]
    busy = [use.utilization for use in uses if use.HasField("utilization")]
    full = [use.memory_used_bytes for use in uses if use.HasField("memory_used_bytes")]
    found: dict[str, float] = {}
    if busy:
        found["gpu_utilization"] = ordered_sum(busy) / len(busy)
    if full:
        found["gpu_memory_bytes"] = float(max(full))
    return found


def values_now(cluster: Cluster, job: JobId, run: Run | None) -> dict[str, float]:
    """The newest values of a job by the names of `TrainingNow`, without the job's own metrics.

    Without a live run there is only the last loss.
    """
    mine = cluster.curves.jobs.get(job)
    if run is None or not run.released:
        return {} if mine is None or "loss" not in mine.newest else {"loss": mine.newest["loss"]}
    found: dict[str, float] = {}
    if mine is not None:
        found = {name: mine.newest[name] for name in OURS if name in mine.newest}
        if mine.run == run.key.run_id and mine.reported_at is not None:
            found["report_age_s"] = max(0.0, boottime() - mine.reported_at)
    found |= gpu_use(cluster, run)
    if idle_s := cluster.idle_gpus.idle_s(job):
        found["gpu_idle_s"] = idle_s
    if "gpu_memory_bytes" in found:
        found["gpu_memory_bytes"] = int(found["gpu_memory_bytes"])
    return found


def note_values(
    cluster: Cluster, run: Run, report: control_pb2.RunReport, at: float, executed_s: float
) -> list[Event]:
    """Note the values of a rank's report; rank 0 speaks for the job, each rank for its memory.

    Args:
        cluster: with the curves.
        run: that reports.
        report: with valid numbers only.
        at: the wall clock.
        executed_s: seconds that the run has executed.

    Returns:
        an event for each value that is NaN or infinite for the first time in this run.
    """
    mine = cluster.curves.of(run.key.job)
    if mine.run != run.key.run_id:
        earlier = mine.last_progress()
        if earlier is not None:
            cluster.driver.note(earlier)
        mine.begin(run.key.run_id)
    mine.reported_at, mine.executed_s = boottime(), executed_s
    if report.HasField("gpu_memory_bytes") and len(mine.memory) < MOST_RANKS:
        mine.memory[report.rank] = report.gpu_memory_bytes
    if report.rank != 0:
        return []
    if report.HasField("step"):
        step_s = report.batch_s if report.HasField("batch_s") else None
        mine.stepped(report.step, step_s)
    if report.HasField("doing"):  # after the step, where one report has both
        mine.doing, mine.idle_s = report.doing, 0.0
    if not report.HasField("step"):
        return []
    values: dict[str, float] = dict(report.metrics)
    if report.HasField("loss"):
        values["loss"] = report.loss
    if report.HasField("batch_s") and report.batch_s > 0:
        values["steps_s"] = 1.0 / report.batch_s
        samples = _samples(cluster, run, report.metrics)
        if not math.isnan(samples):
            values["samples_s"] = samples / report.batch_s
    if mine.memory:
        values["gpu_memory_bytes"] = float(max(mine.memory.values()))
    values |= gpu_use(cluster, run)
    mine.add(at, report.step, values)
    note_rungs(cluster, run, report)
    return [
        Event(
            at=at,
            kind="not-finite",
            actor="job",
            job=run.key.job,
            run_id=run.key.run_id,
            text=f"{name} is not a finite number at step {report.step}",
        )
        for name in mine.became_strange(report.not_finite)
    ]


def note_failure(cluster: Cluster, run: Run, report: control_pb2.RunReport, at: float) -> None:
    """Note the failure of a rank, where a report has one; `at` is the wall clock."""
    if report.error:
        failure = Failure(
            rank=report.rank, node=report.node, error=report.error, at=report.error_at or at
        )
        cluster.failures.add(run.key.run_id, failure)


def stacks_of(cluster: Cluster, run: Run, report: control_pb2.RunReport, at: float) -> list[Event]:
    """The event with a rank's stacks, where a report has them and the run hangs; once a hang."""
    mine = cluster.curves.jobs.get(run.key.job)
    if not report.stacks or mine is None or mine.hang is None or report.rank in mine.hang.stacks:
        return []
    if len(mine.hang.stacks) >= MOST_STACKS:
        return []
    mine.hang.stacks.add(report.rank)
    return [
        Event(
            at=at,
            kind="stacks",
            actor="job",
            job=run.key.job,
            run_id=run.key.run_id,
            node=NodeName(report.node),
            text=f"rank {report.rank}\n{report.stacks}",
        )
    ]


def _samples(cluster: Cluster, run: Run, metrics: Mapping[str, float]) -> float:
    """Samples of a step on all ranks: as reported, else as submitted; NaN where it is unknown."""
    for name in ("samples", "batch"):
        if name in metrics:
            return metrics[name]
    table = cluster.driver.table
    said = table.field(cluster.driver.committed.jobs[run.key.job], "batch_size")
    return math.nan if said is None else float(said)


def reporting_runs(cluster: Cluster, most: int) -> Iterator[tuple[Run, dict[str, float]]]:
    """Runs that report, at most so many, those with the newest reports first; and their values."""
    ledger, now = cluster.driver.committed, boottime()
    ages = {
        job: now - mine.reported_at
        for job, mine in cluster.curves.jobs.items()
        if mine.reported_at is not None
    }
    for job in nsmallest(most, ages, key=ages.__getitem__):
        run = ledger.live_run(job)
        if run is not None and run.released:
            yield run, values_now(cluster, job, run)
