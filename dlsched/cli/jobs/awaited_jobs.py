"""Which jobs of a history waited for which others, in the words of a trace.

A job of a trace waits for the ends of its parents. `after` (a start), `singleton`, "or" and delays
cannot be said that way, nor can jobs that are not in the trace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlsched.client.job_records import Job

_ENDS = ("afterok", "afterany", "afternotok", "aftercorr")
_CONDITION = re.compile(r"(?P<kind>\w+):(?P<job>\d+)(?:_\d+)?(?P<delay>\+[\d.]+)?(?P<or_next>\?)?")


@dataclass(frozen=True, slots=True)
class Awaited:
    """What a job waited for.

    Attributes:
        parents: ids of the jobs that ended before it, as users write them.
        differs: whether it waited for something else too.
    """

    parents: tuple[str, ...] = ()
    differs: bool = False


def awaited_by(jobs: Sequence[Job]) -> Mapping[int, Awaited]:
    """What each of some jobs waited for among them, by job id."""
    by_id = {job.job_id: job for job in jobs}
    elements: dict[int, dict[int | None, Job]] = {}
    for job in jobs:
        if job.array_job_id is not None:
            elements.setdefault(job.array_job_id, {})[job.array_task_id] = job
    return {job.job_id: _awaited(job, by_id, elements) for job in jobs}


def _awaited(
    job: Job, by_id: Mapping[int, Job], elements: Mapping[int, Mapping[int | None, Job]]
) -> Awaited:
    parents: dict[str, None] = {}
    differs = False
    for text in job.dependencies:
        said = _CONDITION.fullmatch(text)
        if said is None or said["kind"] not in _ENDS or said["or_next"]:
            differs = True
            continue
        differs |= said["delay"] is not None
        named = int(said["job"])
        array = elements.get(named, {})
        if said["kind"] == "aftercorr" and array:
            found = [array[job.array_task_id]] if job.array_task_id in array else []
        else:
            found = list(array.values()) or ([by_id[named]] if named in by_id else [])
        differs |= not found
        parents |= dict.fromkeys(each.shown_id for each in found)
    return Awaited(tuple(parents), differs)
