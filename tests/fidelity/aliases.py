"""Golden names to ours, one table per data folder."""

from __future__ import annotations

import re

BLOX_POLICIES = {"Fifo": "fifo", "Las": "las", "Srtf": "srtf"}
BLOX_PLACEMENTS = {"scattered": "first-free", "consolidated": "consolidated"}


def blox_admission(name: str) -> tuple[str, tuple[str, ...]]:
    """Our admission and its options for one of Blox' names, as in `LoadBasedAccept-1.2x`."""
    if name == "AcceptAll":
        return "accept-all", ()
    match = re.fullmatch(r"LoadBasedAccept-([0-9.]+)x", name)
    if match is None:
        raise KeyError(name)
    return "load-threshold", (f"admission.threshold={match[1]}",)
