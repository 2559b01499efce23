"""Job ids as text: `11160`, `11160_3`, `11160_[2-5]`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dlsched.client.submission.texts import task_set
from dlsched.core.errors import BadInput, shorten
from dlsched.record import Record

_ID = re.compile(r"(\d{1,18})(?:_(\d{1,10}|\[[\d,:%-]+\]))?", re.ASCII)


class JobName(Record):
    """A job, an array as a whole (`tasks` empty), or some elements of an array."""

    job: int
    tasks: tuple[int, ...] = ()


def job_name(text: str, what: str = "") -> JobName:
    """Read one id; `what` names the option in the error.

    Raises:
        BadInput: the text is not a job id.
    """
    match = _ID.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        option = f"{what}: " if what else ""
        raise BadInput(f"{option}{shorten(text)!r} is not a job id (11160, 11160_3 or 11160_[2-5])")
    inside = (match[2] or "").strip("[]")
    tasks = task_set(text, inside.partition("%")[0]).tasks if inside else ()
    return JobName(job=int(match[1]), tasks=tasks)


def job_names(texts: Iterable[str]) -> list[JobName]:
    """Read ids; a text may hold several, joined by commas outside brackets."""
    return [
        job_name(word)
        for text in texts
        for word in re.split(r",(?![^\[]*\])", text)
        if word or text == ""
    ]
