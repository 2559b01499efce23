"""How Slurm says which GPUs of its node a task sees, and how tasks are spread over nodes.

Command lines are checked with it before a job is submitted, and `srun` reads it inside the job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Distribution", "GpuBinding", "read_distribution", "read_gpu_binding"]

MOST = 4096  # tasks of one step
MOST_GPUS = 63  # of one node, that a list or a mask can name
_BINDINGS = "none, closest, single:N, per_task:N, map_gpu:0,1,… or mask_gpu:0x1,0x2,…"
_DISTRIBUTIONS = "block, cyclic or plane=N"
_FORMAT = re.compile(r"(?:(?:verbose|v|quiet|q),)?(?:(?:gres/)?gpu:)?([a-z_]+)(?::(.*))?", re.ASCII)
_ITEM = re.compile(r"(0x[0-9a-f]{1,16}|[0-9a-f]{1,16})(?:\*(\d{1,4}))?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuBinding:
    """Which GPUs of its node a task sees; without any of these, all that the step has there."""

    tasks_per_gpu: int = 0  # so many tasks, one after the other, see one GPU
    per_task: int = 0  # GPUs of each task
    masks: tuple[int, ...] = ()  # bits of the GPUs of one task after the other, again and again
    is_closest: bool = False


def read_gpu_binding(text: str) -> GpuBinding:
    """Read the value of `--gpu-bind`, or what `--tres-bind` says of GPUs.

    Raises:
        ValueError: it is not understood; the text says what would be.
    """
    match = _FORMAT.fullmatch(text.strip().lower())
    kind, value = (match[1], match[2] or "") if match else ("", "")
    if kind in ("none", "closest") and not value:
        return GpuBinding(is_closest=kind == "closest")
    if kind in ("single", "per_task"):
        if not value.isdigit() or not 0 < int(value) <= MOST:
            raise ValueError(f"{text!r}: {kind} needs a number, as {kind}:1")
        count = int(value)
        return GpuBinding(tasks_per_gpu=count) if kind == "single" else GpuBinding(per_task=count)
    if kind in ("map_gpu", "mask_gpu"):
        masks = _masks(value, is_map=kind == "map_gpu")
        if masks is None:
            example = "0,1" if kind == "map_gpu" else "0x1,0x2"
            raise ValueError(f"{text!r}: {kind} needs a list of numbers, as {kind}:{example}")
        return GpuBinding(masks=masks)
    raise ValueError(f"{text!r} is not {_BINDINGS}")


def _masks(text: str, *, is_map: bool) -> tuple[int, ...] | None:
    found: list[int] = []
    for item in text.split(","):
        match = _ITEM.fullmatch(item)
        if match is None or (is_map and not (match[1].isdigit() or match[1].startswith("0x"))):
            return None
        number = int(match[1], 16 if match[1].startswith("0x") or not is_map else 10)
        if number >= (MOST_GPUS if is_map else 1 << MOST_GPUS):
            return None
        found += [1 << number if is_map else number] * int(match[2] or 1)
        if len(found) > MOST:
            return None
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """How tasks are spread over nodes."""

    name: str = ""  # block, cyclic or plane; empty: not said
    plane: int = 0  # so many tasks, one after the other, on one node, then on the next; 0: blocks
    rest: str = ""  # what is said of processors, which no task is bound to


def read_distribution(text: str, plane_size: str = "") -> Distribution:
    """Read the value of `--distribution`; `plane_size` is that of a plane without one.

    Raises:
        ValueError: it is not understood; the text says what would be.
    """
    first = re.split("[:,]", text.strip().lower(), maxsplit=1)[0]
    rest = text.strip().lower()[len(first) :]
    name, equals, size = first.partition("=")
    if name == "plane":
        size = size or plane_size
        if not (size.isascii() and size.isdigit() and 0 < int(size) <= MOST):
            raise ValueError(f"{text!r}: plane needs a number, as plane=4")
        return Distribution(name=name, plane=int(size), rest=rest)
    if equals or name not in ("block", "cyclic", "*"):
        raise ValueError(f"{text!r} is not {_DISTRIBUTIONS}")
    if name == "*":
        return Distribution(rest=rest)
    return Distribution(name=name, plane=int(name == "cyclic"), rest=rest)
