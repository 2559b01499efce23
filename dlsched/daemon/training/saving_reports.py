"""What runs report of their checkpoints: events of their jobs, and a grace that is long enough.

A stop may cost a job its steps; `dlsched show` says so before it happens. The grace of a job grows
with its measured checkpoints, up to the site's limit; the job's own is the least.
"""

from __future__ import annotations

from dataclasses import replace

from dlsched.core.cluster.description import GIB
from dlsched.daemon.cluster import Cluster
from dlsched.db.records import Event
from dlsched.protocol import leader
from dlsched.protocol.ledger import Job, Run
from dlsched.rpc.v1.control_pb2 import RunReport
from dlsched.system.clock import boottime

SAVES_NOTHING = "the script has registered no state: a stop loses all its steps"
SAVES = 2.0  # that fit in a grace: one may be under way when the job is asked to stop
LEAVE_S = 5.0  # to end the step, and to exit


def note_saving(cluster: Cluster, job: Job, run: Run, report: RunReport, at: float) -> list[Event]:
    """Lengthen a job's grace if its checkpoints take longer; return the events of its report.

    Args:
        cluster: with the site's limit.
        job: whose grace it is.
        run: the run that reports.
        report: a valid one.
        at: for display.
    """
    told = []
    is_news = cluster.unsaved.is_news
    if report.HasField("saves") and is_news(job.job, "no-checkpoint", not report.saves):
        told.append(("no-checkpoint", SAVES_NOTHING))
    if report.HasField("save_bytes") and report.HasField("room_bytes"):
        needed, room = report.save_bytes, report.room_bytes
        if is_news(job.job, "no-room", needed > room):
            text = f"a checkpoint needs {needed / GIB:.3g} GiB, and {room / GIB:.3g} GiB are free"
            told.append(("no-room", text))
    if report.HasField("expected_save_s") and report.HasField("save_bytes"):
        size = f"{report.save_bytes / GIB:.3g} GiB"
        said = f"a checkpoint of {size} will take about {report.expected_save_s:.3g} s"
        if text := _lengthen(cluster, job, report.expected_save_s, said):
            told.append(("grace", text))
    if report.HasField("save_s"):
        said = f"a checkpoint took {report.save_s:.3g} s"
        if text := _lengthen(cluster, job, report.save_s, said):
            told.append(("grace", text))
    key = run.key
    return [
        Event(at=at, kind=kind, actor="job", job=key.job, run_id=key.run_id, text=text)
        for kind, text in told
    ]


def note_unsaved(cluster: Cluster, job: Job, run: Run, report: RunReport) -> None:
    """Note that a rank could not write a checkpoint, where a report says so."""
    if report.HasField("unsaved_step") and cluster.driver.committed.is_newest(run):
        cluster.unsaved.note(job, run, report.unsaved_step, report.unsaved_why)


def _lengthen(cluster: Cluster, job: Job, save_s: float, text: str) -> str:
    """Make a job's grace long enough for its checkpoints; return what changed, empty for nothing.

    That the site's limit is too short is said at the first checkpoint, and with each change.

    Args:
        cluster: with the site's limit.
        job: whose grace it is.
        save_s: that a checkpoint takes.
        text: says so.
    """
    needed_s, most_s = save_s * SAVES + LEAVE_S, cluster.settings.limits.grace_s
    before_s = job.terms.grace_s
    grace_s = max(before_s, min(needed_s, most_s))
    if needed_s <= before_s or (grace_s == before_s and cluster.trainings.of(job.job).saves > 1):
        return ""
    if grace_s > before_s:
        terms = replace(job.terms, grace_s=grace_s)
        cluster.driver.step(leader.TermsAsked(boottime(), job.job, terms))
        text += f": grace {before_s:.4g} s -> {grace_s:.4g} s"
    if needed_s > most_s:
        text += f"; a stop may come too early: the longest grace here is {most_s:.4g} s"
    return text
