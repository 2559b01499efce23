"""How a job ended: the words of the sources, mapped on four."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from simulate.traces.trace import TextColumn

STATUSES = ("completed", "cancelled", "failed", "unfinished")

_WORDS = {
    "completed": ("pass", "completed", "terminated", "succeeded", "success", "done", "cd"),
    "cancelled": ("killed", "cancelled", "canceled", "preempted", "revoked", "ca", "pr", "rv"),
    "failed": (
        *("failed", "timeout", "node_fail", "out_of_memory", "boot_fail", "deadline"),
        *("launch_failed", "reconfig_fail", "special_exit", "f", "to", "nf", "oom", "bf", "dl"),
    ),
    "unfinished": (
        *("unfinished", "running", "waiting", "pending", "suspended", "requeued", "requeue_hold"),
        *("completing", "configuring", "resizing", "stopped", "signaling", "stage_out"),
        *("requeue_fed", "resv_del_hold", "interrupted", "r", "pd", "s", "rq", "cg", "cf"),
    ),
}
_NORMAL = {word: status for status, words in _WORDS.items() for word in words} | {"": ""}


def normal_status(word: str) -> str | None:
    """Map a source's word, in any case, on one of `STATUSES`; "" stays "", None is unknown.

    Slurm's `CANCELLED by 1002` and its cut form `CANCELLED+` count as cancelled.
    """
    first, _, _ = word.strip().lower().partition(" ")
    return _NORMAL.get(first.rstrip("+"))


def normal_statuses(words: Iterable[str]) -> tuple[TextColumn, list[int]]:
    """Map a column of words; also say at which rows the word is unknown."""
    column = list(words)
    known = {word: normal_status(word) for word in set(column)}
    unknown = {word for word, status in known.items() if status is None}
    rows = [row for row, word in enumerate(column) if word in unknown] if unknown else []
    return np.array([known[word] or "" for word in column], dtype=object), rows
