"""What `dlsched update` may change, from the words of `submit` to the fields of a job.

Values are texts: seconds and points in time as decimal numbers, several of a kind joined by
commas; an empty text takes the wish back.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from dlsched.client.submission.dependencies import parse_dependencies
from dlsched.client.submission.durations import duration, time_limit
from dlsched.client.submission.gpus import parse_gpus
from dlsched.client.submission.hosts import expand
from dlsched.client.submission.moments import moment
from dlsched.client.submission.texts import check_text
from dlsched.rpc.v1 import control_pb2

__all__ = ["changes", "wire_dependencies"]

_PLAIN = {
    "name": "name",
    "partition": "partition",
    "vc": "vc",
    "priority_class": "priority_class",
    "comment": "comment",
    "notify": "notify",
}


def changes(given: Mapping[str, str], *, now: datetime | None = None) -> dict[str, str]:
    """Return fields and their new values.

    Raises:
        BadInput: a malformed value.
    """
    at = now or datetime.now().astimezone()
    fields: dict[str, str] = {}
    for key, text in given.items():
        what = f"--{key.replace('_', '-')}"
        if key in _PLAIN:
            fields[_PLAIN[key]] = check_text(what, text, empty=key != "name")
        elif key == "time":
            limit = time_limit(what, text) if text else None
            fields["time_limit_s"] = "" if limit is None else f"{limit:.0f}"
        elif key in {"begin", "deadline"}:
            fields[f"{key}_at"] = f"{moment(what, text, now=at):.3f}" if text else ""
        elif key == "expected":
            fields["expected_s"] = f"{duration(what, text):.0f}" if text else ""
        elif key == "grace":
            fields["grace_s"] = f"{duration(what, text, bare='seconds'):.0f}" if text else ""
        elif key == "gpus":
            wish = parse_gpus(what, text)
            fields["gpus"] = str(wish.count)
            if wish.types:
                fields["gpu_types"] = ",".join(wish.types)
        else:
            field = {"nodelist": "only_nodes", "exclude": "not_nodes"}[key]
            fields[field] = ",".join(expand(what, text)) if text else ""
    return fields


def wire_dependencies(what: str, text: str) -> list[control_pb2.Dependency]:
    """Whom a job waits for, as it is sent; an empty text is nobody.

    Raises:
        BadInput: malformed.
    """
    return [
        control_pb2.Dependency(
            kind=each.kind, job=each.job, task=each.task, delay_s=each.delay_s, or_next=each.or_next
        )
        for each in (parse_dependencies(what, text) if text.strip() else ())
    ]
