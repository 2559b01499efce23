"""Measured workloads and their packing classes, from which Lucid's limits are learned."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dlsched.core.arrays import Floats, Ints
from dlsched.core.errors import BadInput
from dlsched.core.speed.colocation import Workload
from dlsched.policies.scheduling.lucid.classes import NAMES, classes_of_pairs
from simulate.profiles.workloads import WorkloadProfiles, read_colocation, read_workloads

CLASS = ("share_score", "label")  # columns that say a workload's class, the first one counts


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredClasses:
    """Workloads whose class is known.

    Attributes:
        gpu_util: per cent of the time in which the GPU computes, alone.
        memory_util: per cent of the time in which its memory is read or written; None: unknown.
        classes: 0 tiny, 1 medium, 2 jumbo.
    """

    gpu_util: Floats
    memory_util: Floats | None
    classes: Ints


def read_classes(workloads: Path, pairs: Path | None) -> MeasuredClasses:
    """Read workloads, and their classes from a table of pairs or from a column of their own.

    Args:
        workloads: a table as for `--profiles`, with `gpu_util`.
        pairs: relative speeds, likewise; None: the table of workloads says the classes.

    Raises:
        BadInput: one line with the file: a column is missing, a class is none, or no workload has a
            class.
    """
    profiles = read_workloads(workloads)
    names = profiles.names
    if "gpu_util" not in names:
        raise BadInput(f"{workloads}: has no column gpu_util")
    known = _said(workloads, profiles) if pairs is None else _of_pairs(profiles, pairs)
    if not known:
        raise BadInput(f"{pairs}: has no pair of a workload of {workloads}")
    rows = np.array([profiles.values[key] for key in known])
    has_memory = "gmem_util" in names
    return MeasuredClasses(
        gpu_util=rows[:, names.index("gpu_util")],
        memory_util=rows[:, names.index("gmem_util")] if has_memory else None,
        classes=np.array(list(known.values()), np.int64),
    )


def _said(path: Path, profiles: WorkloadProfiles) -> dict[Workload, int]:
    column = next((name for name in CLASS if name in profiles.names), None)
    if column is None:
        raise BadInput(f"{path}: has no column {CLASS[0]}; name a table of pairs with --pairs")
    place = profiles.names.index(column)
    found: dict[Workload, int] = {}
    for key, values in profiles.values.items():
        if values[place] not in range(len(NAMES)):
            words = ", ".join(f"{number} {name}" for number, name in enumerate(NAMES))
            raise BadInput(f"{path}: {column} is {values[place]:g}, not one of {words}")
        found[key] = int(values[place])
    return found


def _of_pairs(profiles: WorkloadProfiles, pairs: Path) -> dict[Workload, int]:
    """Classes by the mean speed over all measured pairs of a workload."""
    table = read_colocation(pairs)
    if table.keys != profiles.keys:
        ours, theirs = ", ".join(profiles.keys), ", ".join(table.keys)
        raise BadInput(
            f"{pairs}: workloads are told apart by {theirs}, in the other file by {ours}"
        )
    speeds: dict[Workload, list[float]] = defaultdict(list)
    for (one, other, _), (fast, slow) in table.speeds.items():
        speeds[one].append(fast)
        speeds[other].append(slow)
    there = [key for key in profiles.values if key in speeds]
    means = np.array([np.mean(speeds[key]) for key in there])
    return dict(zip(there, classes_of_pairs(means).tolist(), strict=True))
