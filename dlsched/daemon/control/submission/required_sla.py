"""`--require-sla`: jobs are taken in only if they keep their deadlines, and break no other's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from dlsched.core.errors import BadInput, PolicyFailed, plural
from dlsched.core.scenarios import verdict_of
from dlsched.daemon.control.predicting.predicted import put_deadline
from dlsched.daemon.control.submission.earliest_deadline import earliest_deadline
from dlsched.daemon.control.submission.job_validation import ValidJob
from dlsched.daemon.predictions import JobForecast, Predictions
from dlsched.daemon.rpc_errors import TooMuch
from dlsched.db.records import JobSpec
from dlsched.rpc.v1 import control_pb2

MOST = 200  # jobs of a call, elements of arrays counted


def check_has_deadlines(asked: Sequence[ValidJob]) -> None:
    """Refuse a call in which a job has no deadline that could be required.

    Raises:
        BadInput: one line that names the job.
        TooMuch: these are more than can be predicted together.
    """
    for place, each in enumerate(asked, 1):
        if each.body.deadline_at is None:
            which = f"job {place} of {len(asked)}" if len(asked) > 1 else "the job"
            raise BadInput(f"--require-sla: {which} has no --deadline")
    total = sum(each.elements for each in asked)
    if total > MOST:
        raise TooMuch(f"--require-sla: {plural(total, 'job')} in one call, at most {MOST}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """Why jobs are not taken in.

    Attributes:
        why: each reason that is no missed deadline.
        late: by place in the call, the jobs that miss theirs: their elements, and the forecast of
            the one with the least chance.
    """

    predictions: Predictions
    asked: Sequence[ValidJob]
    specs: Sequence[JobSpec]
    why: Sequence[str] = ()
    late: Mapping[int, tuple[range, JobForecast | None]] = field(default_factory=dict)

    async def told(self) -> control_pb2.SubmitReply:
        """What the user is told, with deadlines that would be kept: others are predicted for it."""
        reply = control_pb2.SubmitReply()
        for place, (mine, worst) in self.late.items():
            told = reply.declined.add(place=place)
            deadline_at = self.asked[place - 1].body.deadline_at
            if worst is None or deadline_at is None or math.isnan(worst.on_time):
                told.why = "no end is predicted: it ends too far ahead"
                continue
            now = self.specs[0].submitted_at
            found = await earliest_deadline(
                self.predictions, self.specs, mine, likely=worst.end_p90, now=now
            )
            if worst.refused and found is None:
                told.why = worst.refused
                continue
            put_deadline(told.deadline, worst, deadline_at)
            told.deadline.ClearField("earliest_at")
            if found is not None:
                told.deadline.earliest_at = found
        for why in self.why:
            reply.declined.add(why=why)
        return reply


async def declined(
    predictions: Predictions, asked: Sequence[ValidJob], specs: Sequence[JobSpec]
) -> Declined | None:
    """Say why jobs are not taken in; None: they may be.

    Args:
        predictions: of the cluster.
        asked: the jobs and arrays of the call, each with a deadline.
        specs: of their elements, in the same order.
    """
    no = partial(Declined, predictions=predictions, asked=asked, specs=specs)
    if any(each.held or each.body.dependencies for each in asked):
        return no(why=["a job that is held, or depends on others, has no predicted end"])
    try:
        forecasts, broken = await predictions.with_and_without(specs)
    except (BadInput, PolicyFailed) as error:
        return no(why=[f"not predicted: {error}"])
    first, late = 0, dict[int, tuple[range, JobForecast | None]]()
    for place, each in enumerate(asked, 1):
        mine = range(first, first + each.elements)
        first += each.elements
        worst = min((forecasts[element] for element in mine), key=_chance)
        if verdict_of(_chance(worst)) != "ok":
            late[place] = mine, worst
    why = []
    if broken:
        jobs = plural(len(broken), "other job")
        why.append(f"{jobs} would no longer be sure to keep the deadline")
    return no(why=why, late=late) if why or late else None


def _chance(forecast: JobForecast | None) -> float:
    """The chance to be on time; 0 for what is not predicted."""
    if forecast is None or math.isnan(forecast.on_time):
        return 0.0
    return forecast.on_time
