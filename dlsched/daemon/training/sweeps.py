"""Successive halving of live sweeps: notes values at rungs, and stops the jobs that are behind.

A value at a rung is stored before or together with any stop that follows from it. A job is stopped
once: when its owner queues it again, it runs on.
"""

from __future__ import annotations

import math
from functools import partial

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.training.halving import to_stop
from dlsched.db.records import Event, JobSpec
from dlsched.db.rungs import RungReached
from dlsched.jobs.sweep import Halving
from dlsched.protocol import leader
from dlsched.protocol.ledger import Ledger, Run
from dlsched.protocol.messages import JobId, StopReason
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import boottime, wall


def _rule_of(spec: JobSpec) -> Halving | None:
    return None if spec.sweep is None else spec.sweep.halving


def note_rungs(cluster: Cluster, run: Run, report: control_pb2.RunReport) -> None:
    """Note the value of a report of rank 0 at each rung that its job has reached with it."""
    driver, rungs = cluster.driver, cluster.rungs
    spec = driver.table.spec(driver.committed.jobs[run.key.job])
    rule = _rule_of(spec)
    if rule is None or not driver.leading or driver.store_down:
        return
    array = JobId(run.key.job - spec.index)
    if array not in rungs.of:
        rungs.unread[array] = run.key.job  # a later report is noted
        return
    if rule.metric in report.not_finite:
        value = None
    elif rule.metric == "loss" and report.HasField("loss"):
        value = report.loss
    elif rule.metric in report.metrics:
        value = report.metrics[rule.metric]
    else:
        return
    known = rungs.of[array].setdefault(run.key.job, {})
    for rung in rule.rungs_up_to(report.step):
        if rung not in known:
            row = RungReached(job=run.key.job, rung=rung, step=report.step, value=value)
            driver.note(row)
            rungs.add(array, row)


async def read_rungs(cluster: Cluster, array: JobId) -> None:
    """Read what the jobs of an array reached before this term."""
    rungs = cluster.rungs
    rows = await cluster.driver.read(partial(cluster.driver.store.rungs, array))
    if array in rungs.unread and rungs is cluster.rungs:
        rungs.load(array, rows)


def _may_stop(ledger: Ledger, job: JobId) -> bool:
    """Whether a job is live, and is not being cancelled yet."""
    row, run = ledger.jobs.get(job), ledger.live_run(job)
    if row is None or row.status.is_terminal:
        return False
    return run is None or run.stop is not StopReason.CANCEL


def judge_sweeps(cluster: Cluster) -> None:
    """Stop the jobs that successive halving gives up, in all sweeps with new values."""
    driver, rungs = cluster.driver, cluster.rungs
    jobs, table = driver.reserved.jobs, driver.table
    for array in [each for each, of in rungs.of.items() if not any(job in jobs for job in of)]:
        rungs.forget(array)
    while rungs.changed:
        array = rungs.changed.pop()
        reached = rungs.of[array]
        running = [
            job
            for job, rows in reached.items()
            if _may_stop(driver.reserved, job) and not any(row.stopped for row in rows.values())
        ]
        if not running:
            continue
        rule = _rule_of(table.spec(jobs[running[0]]))
        assert rule is not None
        values = {
            job: {rung: math.nan if row.value is None else row.value for rung, row in rows.items()}
            for job, rows in reached.items()
        }
        events: list[leader.AttachAsked | leader.CancelAsked] = []
        now = boottime()
        for job, verdict in to_stop(rule, values, running).items():
            was, why = reached[job][verdict.rung], verdict.text(rule.metric)
            row = RungReached(job=job, rung=was.rung, step=was.step, value=was.value, stopped=True)
            reached[job][verdict.rung] = row
            note = Event(at=wall(), kind="cancel", actor="daemon", job=job, text=why)
            events += [
                leader.AttachAsked(now, (note, row)),
                leader.CancelAsked(now, -1, job, why),
            ]
        if events:
            driver.step(leader.Together(now, tuple(events)))
