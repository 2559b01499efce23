"""Reading profiles of applications that were measured on several GPU types.

    placements.csv     application,gpu_type,placement,local_bsz,step_time,sync_time
    scalability.csv    application,gpu_type,num_nodes,num_replicas,local_bsz,step_time,sync_time
    validation.csv     as without types
    applications.csv   as without types; where there is none, the published applications are meant

Applications in `PIPELINES` split one replica over several GPUs, their times are those of one stage
and one microbatch; an iteration passes all microbatches through all stages, forward and backward.

Source: the layout of the published artifact of Subramanya et al., "Sia", SOSP 2023, and what its
simulator knows of each application.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dlsched.core.errors import BadInput, plural
from simulate.goodput.files import (
    LIMITS,
    Key,
    find_table,
    learning_of,
    placed_times,
    profile_table,
    spread_times,
)
from simulate.goodput.hardware import Hardware, TypedApplication
from simulate.goodput.step_times import Shape, SpreadMeasurement, StepTime, StepTimes
from simulate.traces.textfile import first_line

# initial batch, largest batch, fewest and most samples a GPU, epochs: as published
PUBLISHED: dict[str, tuple[int, int, int, int, int]] = {
    "bert": (12, 384, 4, 12, 2),
    "cifar10": (128, 4096, 32, 1024, 100),
    "deepspeech2": (20, 640, 10, 80, 80),
    "gpt_pmp": (48, 384, 48, 48, 2),
    "imagenet": (200, 12800, 20, 200, 90),
    "ncf": (256, 32768, 32, 32768, 10),
    "yolov3": (8, 512, 4, 8, 50),
}
RESTART_S = {
    "cifar10": 50.0, "deepspeech2": 25.0, "bert": 120.0, "yolov3": 80.0, "imagenet": 250.0,
    "ncf": 15.0,
}  # fmt: skip
BELIEVED_RESTART_S = {"deepspeech2": 25.0, "imagenet": 250.0, "bert": 120.0, "yolov3": 45.0}
SLOWDOWN = {
    "cifar10": 1.8, "ncf": 1.5, "imagenet": 1.2, "yolov3": 1.2, "bert": 1.2, "deepspeech2": 1.2,
}  # fmt: skip
CEILING = {("deepspeech2", "rtx"): 57}  # samples believed to fit, whatever was measured
USUAL_RESTART_S = 30.0

STAGES = {("gpt_pmp", "rtx"): 8, ("gpt_pmp", "dgx-ext"): 2}  # GPUs of a replica
PIPELINES = {name for name, _ in STAGES}
MICROBATCHES = 48  # of one sample each
PASSES = 3  # a backward pass takes as long as two forward ones


def holds_typed_applications(folder: Path) -> bool:
    """Is this a folder of such tables?"""
    place = find_table(folder, "placements") if folder.is_dir() else None
    return place is not None and "gpu_type" in first_line(place).split(",")


def read_typed_applications(folder: Path) -> dict[str, TypedApplication]:
    """Read a folder, by application.

    Raises:
        BadInput: one line with file and line number: a table or column is missing, a number is not
            one or cannot be, rows contradict each other.
    """
    hardware = _hardware(folder)
    learning = learning_of(folder)
    limits = _limits(folder)
    found: dict[str, TypedApplication] = {}
    for name, (initial, maximum, local_min, local_max, epochs) in sorted(limits.items()):
        on = {gpu_type: each for (owner, gpu_type), each in hardware.items() if owner == name}
        if not on or name not in learning:
            continue
        if epochs > learning[name].epochs:
            raise BadInput(
                f"{folder}: {name} ends after {plural(epochs, 'epoch')}, its validation runs have "
                f"{learning[name].epochs}"
            )
        found[name] = TypedApplication(
            name=name,
            initial=initial,
            maximum=maximum,
            local_min=local_min,
            local_max=local_max,
            epochs=epochs,
            times=next(iter(on.values())).times,
            learning=learning[name],
            on=on,
            slowdown=SLOWDOWN.get(name, 1.0),
            restart_s=RESTART_S.get(name, USUAL_RESTART_S),
            believed_restart_s=BELIEVED_RESTART_S.get(name, USUAL_RESTART_S),
        )
    if not found:
        raise BadInput(f"{folder}: holds no application with step times and validation runs")
    return found


def _limits(folder: Path) -> dict[str, tuple[int, int, int, int, int]]:
    """Batch limits and epochs, of the folder or as published."""
    if find_table(folder, "applications") is None:
        return PUBLISHED
    table = profile_table(folder, "applications", LIMITS)
    columns = [table.number(name).astype(np.int64).tolist() for name in LIMITS]
    names = table.text("application").tolist()
    return dict(zip(names, zip(*columns, strict=True), strict=True))


def _hardware(folder: Path) -> dict[Key, Hardware]:
    shapes: dict[Key, dict[Shape, dict[int, StepTime]]] = {}
    for _, key, shape, time, local in placed_times(folder, PIPELINES):
        if (measured := _whole_iteration(key, time, local)) is not None:
            shapes.setdefault(key, {}).setdefault(shape, {})[measured[0]] = measured[1]
    spread: dict[Key, list[SpreadMeasurement]] = {}
    for key, row in spread_times(folder, PIPELINES):
        if (measured := _whole_iteration(key, row.time, row.local)) is not None:
            whole = SpreadMeasurement(row.nodes, row.replicas, *measured)
            spread.setdefault(key, []).append(whole)
    found: dict[Key, Hardware] = {}
    for key, mine in shapes.items():
        rows = {shape: sorted(times.items()) for shape, times in mine.items()}
        found[key] = Hardware(
            times=StepTimes(" on ".join(key), rows, spread.get(key, ())),
            shapes=rows,
            spread=spread.get(key, ()),
            ceiling=CEILING.get(key, 2**31),
            unit=STAGES.get(key, 1),
        )
    return found


def _whole_iteration(key: Key, time: StepTime, local: int) -> tuple[int, StepTime] | None:
    """Samples a replica and the time of all of them; of a pipeline, from that of a stage."""
    stages = STAGES.get(key)
    if stages is None:
        return local, time
    if local != 1:
        return None
    step = PASSES * ((stages - 1) * time.step_s + MICROBATCHES * time.step_s) + time.sync_s
    return MICROBATCHES, StepTime(step, time.sync_s)
