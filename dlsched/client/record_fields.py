"""From the fields of a message to those of a record of any kind.

The messages are a client's or protobuf's: both have the same attributes.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from dlsched.record import field_names
from dlsched.rpc.messages import message_class

T = TypeVar("T")

# fields of records that have another name in the message
_THEIRS: dict[str, dict[str, str]] = {  # by the name of the record
    "Job": {
        "job_id": "job",
        "array_job_id": "array_job",
        "array_task_id": "array_task",
        "exit_code": "code",
        "exit_signal": "signal",
    },
    "Checkpoint": {"job_id": "job", "array_job_id": "array_job", "array_task_id": "array_task"},
    "Unsaved": {"job_id": "job", "array_job_id": "array_job", "array_task_id": "array_task"},
    "Run": {"run_s": "executed_s"},
    "SweptJob": {"job_id": "job", "array_task_id": "task"},
    "Node": {"reason": "why", "reason_by": "why_actor", "reason_at": "why_at"},
    "Gpu": {"reason": "why"},
    "Training": {
        "gpus": "replicas",
        "initial_batch": "initial",
        "maximum_batch": "maximum",
        "batch_is_fixed": "fixed",
        "ignored_reports": "ignored",
    },
}


@cache
def names_of(kind: type, message: str) -> dict[int, tuple[str, bool]]:
    """A record's name of each field of its message, by the field's number, and: is it a list?"""
    theirs = _THEIRS.get(kind.__name__, {})
    ours = {theirs.get(name, name): name for name in field_names(kind)}
    return {
        each.number: (ours[each.name], each.is_repeated)
        for each in message_class(message).fields_by_name.values()
        if each.name in ours
    }


@cache
def _unsaid(kind: type, message: str) -> dict[str, Any]:
    """What a record has of an empty message."""
    made = message_class(message)
    empty, unknown = made(), {name for name in field_names(kind) if getattr(kind, name, 0) is None}
    found: dict[str, Any] = {}
    for number, (ours, is_list) in names_of(kind, message).items():
        default = getattr(empty, made.fields_by_number[number].name)
        found[ours] = () if is_list else None if ours in unknown else default
    return found


def said_of(kind: type, view: Any) -> dict[str, Any]:
    """The fields of a record that its message says."""
    names = names_of(kind, type(view).__name__)
    found = {}
    for field, value in view.ListFields():
        known = names.get(field.number)
        if known is not None:
            found[known[0]] = tuple(value) if known[1] else value
    return found


def _read(kind: type, view: Any) -> dict[str, Any]:
    """The fields of a record that its message has, said or not."""
    return _unsaid(kind, type(view).__name__) | said_of(kind, view)


def record_of(kind: type[T], view: Any, **own: Any) -> T:
    """The record of a message; `own` are the fields that are not as the message has them."""
    return kind(**(_read(kind, view) | own))
