"""The fields that a job asks for and that its record has under `asked`."""

from __future__ import annotations

from typing import Any

from dlsched.client.job_records import Job
from dlsched.jobs.field import Value
from dlsched.record import field_names
from dlsched.rpc import messages
from dlsched.rpc.job_fields import get_fields, said_fields


def _counts(name: str, value: Value) -> bool:
    """Whether a field of a request is shown of a job that has it."""
    return value not in (None, "", ()) and name not in field_names(Job)


_UNSAID = get_fields(messages.JobRequest())
_QUIET = {name: value for name, value in _UNSAID.items() if _counts(name, value)}


def asked_of(request: Any) -> dict[str, Value]:
    """The fields of a `JobRequest` that are said and that a `Job` has not itself, by name."""
    said = said_fields(request)
    found = {name: value for name, value in _QUIET.items() if name not in said}
    return found | {name: value for name, value in said.items() if _counts(name, value)}
