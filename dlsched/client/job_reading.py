"""From messages of jobs to records, one by one or by column.

Zero and empty become None if they mean "not known". The messages are a client's or protobuf's: both
have the same attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlsched.client.job_records import Job, Queue, Step, Summary
from dlsched.client.listed_jobs import ListedJobs
from dlsched.client.record_fields import names_of, record_of, said_of
from dlsched.rpc.columns import Column, by_field, combined, spread, unpacked
from dlsched.rpc.messages import message_class

if TYPE_CHECKING:
    from dlsched.jobs.field import Value

_VIEW = message_class("JobView").fields_by_name
_NAMES = names_of(Job, "JobView")
_PLAIN = {number: name for number, (name, is_list) in _NAMES.items() if not is_list}


def _of_training(view: Any) -> dict[str, Any]:
    return said_of(Job, view) | {"metrics": dict(sorted(view.metrics.items()))}


_READ: dict[str, Callable[[Any], dict[str, Any]]] = {
    "gang": lambda gang: {"gang": tuple(gang)},
    "gpu_types": lambda types: {"gpu_types": tuple(types)},
    "nodes": lambda nodes: {"nodes": tuple(nodes)},
    "where": lambda where: {"gpu_indices": {each.node: tuple(each.gpus) for each in where}},
    "dependencies": lambda those: {"dependencies": tuple(map(_dependency, those))},
    "steps": lambda steps: {"steps": tuple(record_of(Step, each) for each in steps)},
    "training": _of_training,
}
_PARTS = {_VIEW[name].number: read for name, read in _READ.items()}
# fields that the message has itself and a `Job` only among those asked for
_FURTHER = sorted(
    name
    for name, field in _VIEW.items()
    if field.number not in _PLAIN and name not in {*_READ, "asked"}
)


def job_of(view: Any, request: Any = None) -> Job:
    """Return the record of a `JobView`, with the fields of a `JobRequest` as those asked for.

    There are many of them, so only the few fields that the message says are looked at and set: the
    others are the class's defaults.
    """
    found: dict[str, Any] = {"job_id": view.job, "gpu_indices": {}, "metrics": {}}
    for field, value in view.ListFields():
        number = field.number
        if number in _PLAIN:
            found[_PLAIN[number]] = value
        elif number in _PARTS:
            found |= _PARTS[number](value)
    if request is not None:
        found["asked"] = _asked(request, *[None] * len(_FURTHER))
    else:
        asked = view.asked if view.HasField("asked") else None
        further = (getattr(view, name) if view.HasField(name) else None for name in _FURTHER)
        found["asked"] = _asked(asked, *further)
    job = object.__new__(Job)
    vars(job).update(found)
    return job


def _asked(request: Any, *further: Value) -> Mapping[str, Value]:
    found = {n: value for n, value in zip(_FURTHER, further, strict=True) if value is not None}
    if request is None:
        return found
    from dlsched.client.asked_fields import asked_of  # noqa: PLC0415  # lists seldom have them

    return found | asked_of(request)


def _dependency(view: Any) -> str:
    if not view.job:
        return str(view.kind)
    task = f"_{view.task}" if view.HasField("task") else ""
    delay = f"+{view.delay_s / 60:g}" if view.delay_s else ""
    return f"{view.kind}:{view.job}{task}{delay}{'?' if view.or_next else ''}"


# -- lists ----------------------------------------------------------------------------------------


def listed(columns: Mapping[str, Column], count: int) -> ListedJobs:
    """Return jobs by column.

    Args:
        columns: by the names of a `JobView`'s fields.
        count: of jobs.
    """
    found: dict[str, Column] = {}
    for name, column in columns.items():
        number = _VIEW[name].number
        if number in _PLAIN:
            found[_PLAIN[number]] = column
        elif number in _PARTS:
            parts = list(map(_PARTS[number], column.values))
            for part in dict.fromkeys(name for each in parts for name in each):
                unsaid = ListedJobs.unsaid(part)
                values = [each.get(part, unsaid) for each in parts]
                found[part] = Column(values, column.places)
    asked = [columns.get(name) for name in ("asked", *_FURTHER)]
    if any(asked):
        nothing = Column([None])
        found["asked"] = combined([each or nothing for each in asked], count, _asked)
    unsaid_too = {n: c._replace(unsaid=ListedJobs.unsaid(n)) for n, c in found.items()}
    return ListedJobs(count, unsaid_too)


def queue_page_of(page: Any) -> tuple[ListedJobs, Summary]:
    """Return the lines of one `QueuePage` and its summary, which only the last page has."""
    views = [*page.jobs, *(each.first for each in page.folded)]  # `jobs`: asked for without columns
    said = [{field.name: value for field, value in view.ListFields()} for view in views]
    lines = listed(spread(by_field(said)), len(said))
    if page.folded:
        none = [None] * len(page.jobs)
        lines = lines.with_columns(
            tasks=Column([*none, *(each.tasks for each in page.folded)]),
            count=Column([*none, *(each.count for each in page.folded)]),
        )
    if page.HasField("columns"):
        lines = ListedJobs.joined([listed(unpacked(page.columns), page.columns.count), lines])
    last = page.summary
    return lines, record_of(Summary, last, round_s=last.round_s if last.round else None)


def queue_of(pages: Sequence[tuple[ListedJobs, Summary]]) -> Queue:
    """Return the record of an answer in pages."""
    lines = ListedJobs.joined([each for each, _ in pages])
    if "tasks" in lines.columns:  # folded lines come last
        lines = lines.in_order()
    return Queue(lines=lines, summary=pages[-1][1] if pages else Summary())
