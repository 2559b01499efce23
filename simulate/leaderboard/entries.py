"""Which policies take part in which division, and what each of them is told about durations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Told = Literal["nothing", "history", "noise", "truth"]
ESTIMATES: dict[Told, str] = {
    "nothing": "history",  # asked for by none of them
    "history": "history",
    "noise": "noise:1.0",
    "truth": "oracle",
}
TELLS: dict[Told, str] = {
    "nothing": "no durations",
    "history": "means of the user's finished jobs",
    "noise": "the true duration times a log-normal error of sigma 1",
    "truth": "the true duration",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A policy that takes part.

    Attributes:
        label: unique within the division.
        policy: its name.
        told: about durations.
        options: of the policy, `KEY=VALUE`.
    """

    label: str
    policy: str
    told: Told
    options: tuple[str, ...] = ()


def _several(told: Told, *policies: str) -> list[Entry]:
    suffix = "" if told == "nothing" else f" ({told})"
    return [Entry(label=f"{name}{suffix}", policy=name, told=told) for name in policies]


def _gavel(objective: str) -> Entry:
    return Entry(
        label=f"gavel {objective}",
        policy="gavel",
        told="nothing" if objective == "max-min" else "truth",
        options=(f"gavel.objective={objective}",),
    )


UNTOLD = _several("nothing", "fifo", "first-fit", "las", "tiresias", "multi-queue", "gandiva-fair")
AT_MOST_FOUR = ("antman.most_opportunistic=3",)  # on a GPU: `stages` knows no more
TOLD = ("sjf", "qssf", "srtf", "srsf", "easy", "conservative")  # take durations of any quality
ENTRIES: dict[str, tuple[Entry, ...]] = {
    "rigid": (
        *UNTOLD,
        *_several("nothing", "gandiva", "mlfs", "sjf-gpu", "multifactor"),
        *_several("history", *TOLD),
        *_several("noise", *TOLD),
        *_several("truth", *TOLD, "themis", "themis-greedy"),
    ),
    "deadlines": (
        *_several("nothing", "fifo", "tiresias", "edf"),
        *_several("noise", "karuna"),
        *_several("truth", "srtf", "chronus", "karuna"),
    ),
    "elastic": (
        *_several("nothing", "fifo", "tiresias"),
        *_several("truth", "srtf", "afs"),
        Entry(
            label="optimus (truth)",
            policy="optimus",
            told="truth",
            options=("optimus.oracle=true",),
        ),
    ),
    "types": (
        *_several("nothing", "fifo", "las", "tiresias", "gandiva-fair"),
        *_several("truth", "srtf"),
        *(_gavel(each) for each in ("max-min", "makespan", "ftf")),
    ),
    "sharing": (
        *_several("nothing", "fifo", "tiresias", "gandiva"),
        *_several("truth", "srtf", "lucid", "muri"),
        Entry(label="muri", policy="muri", told="nothing", options=("muri.durations=unknown",)),
        Entry(label="antman", policy="antman", told="nothing", options=AT_MOST_FOUR),
        *_several("nothing", "muri-antman", "salus"),
    ),
}
ABSENT = {  # policies that take no part, and why
    "carbyne": "is for jobs that wait for each other",
    "dl2": "needs a network trained for the cluster",
    "elasticflow": "is for elastic jobs with deadlines, compared on its own page",
    "pollux": "is for applications measured for goodput",
    "shockwave": "plans by epochs, which these traces do not have",
    "sia": "is for applications measured for goodput",
    "synergy": "is about processors and memory",
    "what-if": "chooses among the others",
}
