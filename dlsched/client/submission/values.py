"""From the text of an option to the value of its field, by the field's form."""

from __future__ import annotations

import math
from datetime import datetime

from dlsched.client.submission.durations import duration, time_limit
from dlsched.client.submission.texts import check_text, whole_number
from dlsched.core.errors import BadInput, not_known, shorten
from dlsched.jobs.field import Field, Value

_NOTIFY = {
    *("begin", "end", "fail", "preempt", "requeue", "invalid_depend", "array_tasks"),
    *("checkpoint", "time_limit", "time_limit_50", "time_limit_80", "time_limit_90", "all", "none"),
}
_NEVER_HAPPEN = {"stage_out"}  # there are no burst buffers


def word_of(key: str) -> str:
    """An option's long word."""
    return "--" + key.replace("_", "-")


def read_value(row: Field, what: str, text: str, now: datetime) -> Value:  # noqa: PLR0911, PLR0912
    """Read a text; None is no limit.

    Args:
        row: the field; its form is not `own`.
        what: names the option in errors.
        text: as the user wrote it.
        now: what relative moments count from.

    Raises:
        BadInput: the text is malformed or out of the field's bounds.
    """
    match row.form:
        case "text" | "lines":
            return check_text(what, text, longest=row.longest, empty=row.form == "lines")
        case "number":
            return read_number(what, text, row.least)
        case "whole":
            return whole_number(what, text, least=int(row.least), most=int(row.most))
        case "seconds":
            return duration(what, text, bare=row.bare)
        case "limit":
            return time_limit(what, text)
        case "flag":
            return text == "yes"
        case "choice":
            return _choice(what, text, row.choices)
        case "events":
            return _events(what, text)
        case "moment":
            from dlsched.client.submission.moments import moment  # noqa: PLC0415

            return moment(what, text, now=now)
        case "curve":
            return _curve(what, text)
        case "hosts":
            from dlsched.core.cluster.host_lists import node_names  # noqa: PLC0415

            return tuple(node_names(what, [text]))
        case "features":
            from dlsched.core.cluster.features import (  # noqa: PLC0415
                constraint_text,
                parse_constraint,
            )

            return constraint_text(parse_constraint(what, text))
        case "pattern":
            from dlsched.client.submission.output_patterns import output_pattern  # noqa: PLC0415

            return output_pattern(what, text)
    raise AssertionError(f"{row.name} is read by code of its own")


def read_number(what: str, text: str, least: float = -1e15) -> float:
    """Read a finite number that is not below a bound.

    Raises:
        BadInput: it is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= 1e15:
        raise BadInput(f"{what}: {shorten(text)!r} is not a number")
    return number


def _choice(what: str, text: str, known: tuple[str, ...]) -> str:
    word = text.strip().lower()
    if word not in known:
        raise not_known(f"{what}:", word, known)
    return word


def _curve(what: str, text: str) -> str:
    """A reward curve with times in seconds."""
    from dlsched.core.rewards import FORM, RewardCurve  # noqa: PLC0415

    def seconds(word: str) -> float:
        return duration(what, word, bare="seconds")

    try:
        return RewardCurve.of_text(text, seconds).to_text()
    except ValueError as error:
        raise BadInput(f"{what}: {shorten(text)!r}: {error} ({FORM})") from None


def _events(what: str, text: str) -> str:
    typed = [word.strip() for word in text.split(",") if word.strip()]
    words = [word.lower() for word in typed]
    for word, shown in zip(words, typed, strict=True):
        if word not in _NOTIFY | _NEVER_HAPPEN:
            raise not_known(f"{what}:", shown, sorted(_NOTIFY))
    kept = [word for word in words if word not in _NEVER_HAPPEN]
    return "" if "none" in words else ",".join(dict.fromkeys(kept))
