"""Dependencies: `afterok:12:13,afterany:14`, `after:9+30`, `singleton`; `?` is or.

As in Slurm, a bare id means `afterany`: `14` and `afterok:12,14`.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlsched.client.job_ids import job_name
from dlsched.client.submission.texts import whole_number
from dlsched.core.errors import BadInput, not_known, shorten

KINDS = ("after", "afterok", "afterany", "afternotok", "aftercorr")
MOST = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One job that must have got somewhere; joined with the next one by "or" if `or_next`."""

    kind: str
    job: int = 0
    task: int | None = None
    delay_s: float = 0.0
    or_next: bool = False


def parse_dependencies(what: str, text: str) -> list[Condition]:
    """Read a list of conditions, joined by commas (and) or question marks (or), not both.

    Raises:
        BadInput: malformed, an unknown kind, or both ways of joining.
    """
    if "," in text and "?" in text:
        raise BadInput(f"{what}: {shorten(text)!r} mixes ',' (and) with '?' (or)")
    either = "?" in text
    found = [
        condition
        for part in text.strip().split("?" if either else ",")
        for condition in _clause(what, part.strip(), text)
    ]
    if len(found) > MOST:
        raise BadInput(f"{what}: {len(found)} jobs; at most {MOST}")
    if not either:
        return found
    return [
        Condition(
            kind=each.kind,
            job=each.job,
            task=each.task,
            delay_s=each.delay_s,
            or_next=place < len(found) - 1,
        )
        for place, each in enumerate(found)
    ]


def _clause(what: str, part: str, whole: str) -> list[Condition]:
    kind, _, ids = part.partition(":")
    kind = kind.lower()
    if kind == "singleton" and not ids:
        return [Condition(kind="singleton")]
    if kind[:1].isdecimal() and not ids:
        return [_job(what, "afterany", part)]
    if kind not in KINDS:
        raise not_known(f"{what}:", kind or whole, (*KINDS, "singleton"))
    if not ids:
        raise BadInput(f"{what}: {shorten(part)!r} names no job ({kind}:ID)")
    return [_job(what, kind, word) for word in ids.split(":")]


def _job(what: str, kind: str, word: str) -> Condition:
    text, plus, minutes = word.partition("+")
    if plus and kind != "after":
        raise BadInput(f"{what}: {shorten(word)!r}: only after:ID+MINUTES knows a delay")
    delay_s = 60.0 * whole_number(f"{what} (after +)", minutes, most=10_000_000) if plus else 0.0
    name = job_name(text, what)
    if len(name.tasks) > 1:
        raise BadInput(f"{what}: {shorten(text)!r}: name the array, or one of its elements")
    return Condition(
        kind=kind, job=name.job, task=name.tasks[0] if name.tasks else None, delay_s=delay_s
    )
