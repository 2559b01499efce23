"""What was measured of workloads: columns for the jobs that train them.

    model,num_gpus,batch_size,iteration_ms,data_ms,gpu_ms,network_ms
    bert,8,4,530,1,492,85

A table has one row a workload. Its columns among `KEYS` say which jobs a row is of; the others,
numbers all, become columns of the trace where it has none of that name.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.errors import BadInput
from dlsched.core.speed.colocation import WORKLOAD, ColocationTable, Workload
from simulate.traces.textfile import lines_of, open_text
from simulate.traces.trace import Trace

KEYS = (*WORKLOAD, "num_gpus")
MEASURED = frozenset({"gpu_util", "gpu_memory_gib", "data_ms", "gpu_ms", "network_ms"})
OTHER_WORDS = {"batchsize": "batch_size", "gpu_num": "num_gpus"}
IN_MIB = frozenset({"gmem", "gpu_mem_mib", "gpu_memory_mib"})  # words for memory on a GPU
MIB_PER_GIB = 1024.0
_TEXTS = frozenset({"model", "dataset"})


@dataclass(frozen=True, slots=True)
class WorkloadProfiles:
    """Columns of jobs by what they train.

    Attributes:
        keys: the columns that say which jobs a row is of.
        names: of the columns that were measured.
        values: in the order of `names`, by the values of `keys`.
    """

    keys: tuple[str, ...]
    names: tuple[str, ...]
    values: Mapping[Workload, tuple[float, ...]]

    def complete(self, trace: Trace) -> Trace:
        """A trace with these columns; what it says itself stays, and unknown workloads are NaN."""
        found = np.full((len(trace), len(self.names)), np.nan)
        for row, key in enumerate(workloads(trace, self.keys)):
            found[row] = self.values.get(key, np.nan)
        columns = dict(trace.columns)
        for place, name in enumerate(self.names):
            said = columns.get(name)
            if said is None or said.dtype == np.object_:
                columns[name] = found[:, place]
            else:
                columns[name] = np.where(np.isnan(said), found[:, place], said)
        return replace(trace, columns=columns)


def workloads(trace: Trace, keys: Sequence[str]) -> list[Workload]:
    """What each job of a trace trains, as values of some of `KEYS`."""
    columns = [_key_column(trace, name) for name in keys]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _key_column(trace: Trace, name: str) -> NDArray[Any]:
    if name == "num_gpus":
        return np.maximum(np.ceil(trace.num_gpus), 1.0)
    unknown = "" if name in _TEXTS else np.nan
    column = trace.columns.get(name)
    return np.full(len(trace), unknown, np.object_) if column is None else column


def is_colocation(header: str) -> bool:
    """Does a table with this header line hold speeds of pairs?"""
    return {"speed1", "speed2", "model1", "model2"}.issubset(_names(header))


def is_workloads(header: str) -> bool:
    """Does a table with this header line hold measurements of workloads?"""
    names = {_word(name) for name in _names(header)}
    return "model" in names and bool(MEASURED & names)


def _names(header: str) -> set[str]:
    return {name.strip() for name in header.split(",")}


def _word(name: str) -> str:
    return "gpu_memory_gib" if name in IN_MIB else OTHER_WORDS.get(name, name)


def read_workloads(path: Path) -> WorkloadProfiles:
    """Read a table of workloads.

    Raises:
        BadInput: one line with file and line number: a value that is no number, a negative one, or
            a workload that stands there twice.
    """
    with open_text(path) as text:
        reader = csv.DictReader(lines_of(path, text))
        given = list(reader.fieldnames or ())
        words = reader.fieldnames = [_word(name) for name in given]
        keys = tuple(name for name in KEYS if name in words)
        names = tuple(name for name in words if name not in KEYS)
        divisor = {_word(name): MIB_PER_GIB for name in given if name in IN_MIB}
        values: dict[Workload, tuple[float, ...]] = {}
        for row in reader:
            where = f"{path}:{reader.line_num}"
            key = tuple(_key(where, name, row[name]) for name in keys)
            if key in values:
                raise BadInput(f"{where}: {' '.join(map(str, key))} stands there twice")
            values[key] = tuple(
                _number(where, name, row[name]) / divisor.get(name, 1.0) for name in names
            )
    if not values:
        raise BadInput(f"{path}: holds no workloads")
    return WorkloadProfiles(keys, names, values)


def read_colocation(path: Path) -> ColocationTable:
    """Read speeds of pairs on the same GPUs, relative to each job alone.

    Needed are `model1`, `speed1`, `model2` and `speed2`; `dataset`, `batchsize`, `amp` and
    `gpu_num` of each tell workloads apart, where they are given.

    Raises:
        BadInput: one line with file and line number: a speed that is no number of at least 0, or a
            pair that stands there twice.
    """
    with open_text(path) as text:
        reader = csv.DictReader(lines_of(path, text))
        halves = ((name[:-1], name[-1:]) for name in reader.fieldnames or ())
        words = reader.fieldnames = [_word(name) + half for name, half in halves]
        keys = tuple(name for name in WORKLOAD if f"{name}1" in words)
        speeds: dict[tuple[Workload, Workload, int], tuple[float, float]] = {}
        for row in reader:
            where = f"{path}:{reader.line_num}"
            one, other = (
                tuple(_key(where, name, row.get(f"{name}{half}")) for name in keys) for half in "12"
            )
            gpus = int(_number(where, "gpu_num1", row.get("num_gpus1", "1")))
            pair = one, other, gpus
            if pair in speeds or (one != other and (other, one, gpus) in speeds):
                raise BadInput(f"{where}: this pair stands there twice")
            speeds[pair] = (
                _number(where, "speed1", row["speed1"]),
                _number(where, "speed2", row["speed2"]),
            )
    if not speeds:
        raise BadInput(f"{path}: holds no pairs")
    return ColocationTable(keys, speeds, frozenset(gpus for _, _, gpus in speeds))


def _key(where: str, name: str, text: str | None) -> str | float:
    if name not in _TEXTS:
        return _number(where, name, text)
    if not (text or "").strip():
        raise BadInput(f"{where}: no {name}")
    return str(text).strip()


def _number(where: str, name: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise BadInput(f"{where}: {name} must be a number of at least 0, not {text!r}")
    return value
