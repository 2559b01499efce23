"""Golden names to ours, one table per data folder."""

from __future__ import annotations

import re
from pathlib import Path

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


TIRESIAS_POLICIES = {
    "fifo": "fifo",
    "fjf": "first-fit",
    "sjf": "sjf-gpu",
    "shortest": "srtf",
    "shortest-gpu": "srsf",
}
TIRESIAS_SAMPLE = "gpu_time_samples_1000.csv.gz"  # what the artifact's gittins runs read


def tiresias_policy(name: str, folder: Path) -> tuple[str, tuple[str, ...]]:
    """Our policy and its options for one of Tiresias' names, as in `dlas-gpu-05`."""
    if name in TIRESIAS_POLICIES:
        return TIRESIAS_POLICIES[name], ()
    options = ["semantics=tiresias"]
    if name == "dlas":
        return "tiresias", (*options, "variant=dlas")
    if name == "dlas-gpu-gittins":
        return "tiresias", (*options, "variant=gittins", f"sample={folder / TIRESIAS_SAMPLE}")
    match = re.fullmatch(r"dlas-gpu(?:-([0-9]+))?", name)
    if match is None:
        raise KeyError(name)
    knob = {None: "0", "05": "0.5"}.get(match[1], match[1])
    return "tiresias", (*options, "variant=dlas-gpu", f"knob={knob}")
