"""`dlsched whatif --html`: the predicted schedules as one page, drawn by the report's code."""

from __future__ import annotations

import math

import numpy as np

from dlsched.cli.jobs.predicted import range_text
from dlsched.cli.jobs.whatif.tables import cells_of, note_of, title_of
from dlsched.cli.output.file_output import save
from dlsched.cli.output.times import clock_text, local_text
from dlsched.client.submission.durations import duration_text
from dlsched.core.errors import plural
from dlsched.core.rewards import RewardCurve
from dlsched.daemon.live.nodes import natural
from dlsched.rpc.v1.control_pb2 import WhatIfJob, WhatIfOutcome, WhatIfReply
from simulate.report.drawing.charts import Figure, Table
from simulate.report.predicted import DrawnJob, PredictedSchedule, predicted_page, schedule_figure
from simulate.report.rewards import Ending, reward_figure
from simulate.results.tables import ClusterShape, Ints, Segments


def write_page(reply: WhatIfReply, target: str) -> None:
    """Write the page.

    Raises:
        DlschedError: the file cannot be written.
    """
    save([page_of(reply).encode()], target)


def page_of(reply: WhatIfReply) -> str:
    """The page as text."""
    first = reply.outcomes[0]
    has_job = first.HasField("gpus")
    title = "What if: all jobs"
    if has_job:
        title = f"What if: job {reply.job}" if reply.job else "What if: a job that is not submitted"
    columns, rows = cells_of(reply)
    return predicted_page(
        title,
        list(_facts(reply).items()),
        Table(caption="The first line is the present", columns=columns, rows=rows),
        [f"{title_of(each, reply)}: {note_of(each)}" for each in reply.outcomes],
        predicted_figure(reply, has_job=has_job),
        more=[_rewards(reply)] if reply.sla else [],
    )


def _rewards(reply: WhatIfReply) -> Figure:
    """What the job's end is worth, and when it is predicted in each alternative."""
    since = reply.submitted_at
    ends = [
        Ending(
            title_of(each, reply),
            each.end.p10 - since,
            each.end.at - since,
            each.end.p90 - since,
            each.reward,
        )
        for each in reply.outcomes
        if each.HasField("reward")
    ]
    return reward_figure(RewardCurve.of_text(reply.sla), ends)


def predicted_figure(reply: WhatIfReply, *, has_job: bool = False) -> Figure:
    """The predicted schedules as Gantt charts; with `has_job` its job has a frame."""
    order = sorted(range(len(reply.nodes)), key=lambda index: natural(reply.nodes[index].name))
    nodes = [reply.nodes[index] for index in order]
    place = np.argsort(np.array(order, np.int64))  # in the picture, of each node of the reply
    told = [each for each in reply.outcomes if not each.why]
    schedules = [_schedule(each, reply, place, has_job=has_job) for each in told]
    return schedule_figure(
        [each for each in schedules if each.blocks.job.size],
        ClusterShape(
            spec="",
            node_name=np.array([node.name for node in nodes], np.object_),
            node_gpus=np.array([node.gpus for node in nodes], np.int64),
            node_type=np.array([node.gpu_type for node in nodes], np.object_),
        ),
        deadline=reply.deadline_at - reply.at if reply.HasField("deadline_at") else None,
    )


def _facts(reply: WhatIfReply) -> dict[str, str]:
    first = reply.outcomes[0]
    gpus = sum(node.gpus for node in reply.nodes)
    facts = {
        "Predicted at": local_text(reply.at),
        "Policy": reply.policy,
        "Live jobs": str(first.jobs),
        "Cluster": f"{plural(len(reply.nodes), 'node')}, {plural(gpus, 'GPU')}",
    }
    if reply.state:
        facts["State"] = reply.state
    if reply.HasField("deadline_at"):
        facts["Deadline"] = local_text(reply.deadline_at)
    return facts


def _schedule(
    outcome: WhatIfOutcome, reply: WhatIfReply, node: Ints, *, has_job: bool
) -> PredictedSchedule:
    blocks = outcome.blocks
    numbers = sorted(set(blocks.job))
    place = {number: k for k, number in enumerate(numbers)}
    known = {each.job: each for each in outcome.all}
    latest = outcome.end.p90 - reply.at if outcome.end.HasField("p90") else None
    return PredictedSchedule(
        label=title_of(outcome, reply),
        jobs=tuple(_drawn(number, known.get(number), reply.at) for number in numbers),
        blocks=Segments(
            job=np.array([place[number] for number in blocks.job], np.int64),
            node=node[np.array(blocks.node, np.int64)],
            gpus=np.array(blocks.gpus, np.int64),
            start=np.array(blocks.start, np.float64) - reply.at,
            end=np.array(blocks.end, np.float64) - reply.at,
        ),
        chosen=place.get(reply.job, -1) if has_job else -1,
        latest=latest,
    )


def _drawn(number: int, job: WhatIfJob | None, now: float) -> DrawnJob:
    """A job's name in the chart, and its tooltip."""
    name = str(number) if number else "new"
    if job is None:
        return DrawnJob(name, "")
    parts = [job.name, plural(job.gpus, "GPU"), f"user {job.user}"]
    for what, moment in (("starts", job.start), ("ends", job.end)):
        if moment.HasField("at"):
            between = range_text(moment, now)
            interval = f" (from {between})" if between != "-" else ""
            parts.append(f"{what} {clock_text(moment.at, now)}{interval}")
    if job.end.HasField("at") and math.isfinite(job.submitted_at):
        parts.append(f"JCT {duration_text(job.end.at - job.submitted_at)}")
    return DrawnJob(name, " · ".join(parts))
