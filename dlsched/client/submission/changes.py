"""What `dlsched update` may change, from the words of `submit` to the fields of a job.

Values are texts: seconds and points in time as decimal numbers, several of a kind joined by
commas; an empty text takes the wish back.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dlsched.client.submission.dependencies import parse_dependencies
from dlsched.client.submission.gpus import parse_gpus
from dlsched.client.submission.moments import refuse_past
from dlsched.client.submission.values import read_value, word_of
from dlsched.jobs.field import Value
from dlsched.jobs.fields import FIELDS
from dlsched.rpc import messages

_ROWS = {row.options[0].key: row for row in FIELDS if row.update != "never" and row.options}


def changes(
    given: Mapping[str, str], words: Mapping[str, str] | None = None, *, now: datetime | None = None
) -> dict[str, str]:
    """Return fields and their new values, of texts by the keys of options.

    Args:
        given: the texts.
        words: what the user calls options; those that are not named, by their long words.
        now: the time that relative moments count from.

    Raises:
        BadInput: a malformed value, or a deadline that has passed.
    """
    at = now or datetime.now().astimezone()
    fields: dict[str, str] = {}
    for key, text in given.items():
        row, what = _ROWS[key], (words or {}).get(key) or word_of(key)
        if row.name == "gpus":
            wish = parse_gpus(what, text)
            fields["gpus"] = str(wish.count)
            if wish.types:
                fields["gpu_types"] = ",".join(wish.types)
        elif text or not row.clearable:
            value = read_value(row, what, text, at)
            if row.name == "deadline_at" and isinstance(value, float):
                refuse_past(what, text, value, now=at)
            fields[row.name] = _text(row.form, value)
        else:
            fields[row.name] = ""
    return fields


def _text(form: str, value: Value) -> str:
    """A value as an update sends it."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return (
            f"{value:.3f}"
            if form == "moment"
            else f"{value:.0f}"
            if form in ("seconds", "limit")
            else repr(value)
        )
    return str(value)


def wire_dependencies(what: str, text: str) -> list[messages.Dependency]:
    """Return the dependencies of a job as messages; an empty text means none.

    Raises:
        BadInput: the text is malformed.
    """
    return [
        messages.Dependency(
            kind=each.kind, job=each.job, task=each.task, delay_s=each.delay_s, or_next=each.or_next
        )
        for each in (parse_dependencies(what, text) if text.strip() else ())
    ]
