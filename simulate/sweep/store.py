"""Finished runs on disk, one file each, so that an interrupted sweep can go on.

The name of a file is the digest of everything that its run depends on: a folder may serve any
number of studies, and a run that is the same in two of them is done once. Files appear whole or not
at all, and hold numbers and texts only (an npz without pickles), so a folder can be passed on.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlsched.core.errors import BadInput, DlschedError
from dlsched.system.output_files import appearing_whole, why_not_writable
from simulate.results.tables import (
    ClusterShape,
    JobOutcomes,
    ReplayResult,
    Segments,
    Timeline,
    Trajectories,
)
from simulate.sweep.digest import Digests
from simulate.sweep.run import Inputs, Run

Column = NDArray[Any]

TABLES: dict[str, Any] = {
    "jobs": JobOutcomes,
    "timeline": Timeline,
    "segments": Segments,
    "trajectories": Trajectories,
    "cluster": ClusterShape,
}


class Store:
    """The folder of `--resume`."""

    def __init__(self, folder: str | Path, inputs: Inputs) -> None:
        """Open a folder, which need not exist yet.

        Raises:
            BadInput: it is a file, or cannot be written.
        """
        self.folder = Path(folder)
        there = os.path.isdir(self.folder)
        if not there and os.path.exists(self.folder):
            raise BadInput(f"--resume {folder}: not a folder")
        path = self.folder / "x" if there else self.folder
        if why := why_not_writable(path):
            raise BadInput(f"--resume {path}: {why}")
        self._digests = Digests(inputs)

    def path_of(self, run: Run) -> Path:
        """Where a run's result is, once there is one."""
        return self.folder / f"{self._digests.of(run)}.npz"

    def load(self, run: Run) -> ReplayResult | None:
        """The stored result of a run; None when there is none, or when its file is damaged."""
        path = self.path_of(run)
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                result = _unpacked({name: arrays[name] for name in arrays.files})
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return None
        return replace(result, label=run.settings.label)

    def save(self, run: Run, result: ReplayResult) -> None:
        """Keep a result.

        Raises:
            DlschedError: the folder cannot be written.
        """
        try:
            self.folder.mkdir(exist_ok=True)
            with appearing_whole(self.path_of(run)) as part, part.open("wb") as file:
                np.savez_compressed(file, **_packed(result))
        except OSError as error:
            raise DlschedError(
                f"--resume {self.folder}: cannot be written ({error.strerror})"
            ) from None


def _packed(result: ReplayResult) -> dict[str, Any]:
    """A result as named arrays of numbers and texts."""
    arrays: dict[str, Any] = {}
    for table in TABLES:
        for name, column in _columns(getattr(result, table)).items():
            arrays.update(_packed_column(f"{table}.{name}", column))
    rest = {
        "policy": result.policy,
        "trace": result.trace,
        "load": result.load,
        "seed": result.seed,
        "spec": result.cluster.spec,
        "summary": result.summary,
        "warnings": result.warnings,
    }
    arrays["rest"] = np.array(json.dumps(rest, ensure_ascii=False, default=_plain))
    return arrays


def _plain(value: Any) -> Any:
    """What JSON does not know: numpy's scalars and read-only mappings."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} has no place in a summary")


def _columns(table: Any) -> dict[str, Column]:
    """The array columns of a table of results, `extra` ones by "extra.NAME"."""
    if table is None:
        return {}
    found = {f.name: getattr(table, f.name) for f in fields(table)}
    extra = found.pop("extra", {})
    found.update({f"extra.{name}": column for name, column in extra.items()})
    return {name: column for name, column in found.items() if isinstance(column, np.ndarray)}


def _packed_column(name: str, column: Column) -> dict[str, Column]:
    """Texts as codes into their distinct values: users repeat, and npz knows no texts."""
    if column.dtype != np.object_:
        return {name: column}
    numbers: dict[str, int] = {}
    codes = np.fromiter(
        (numbers.setdefault(text, len(numbers)) for text in column.tolist()), np.int64, len(column)
    )
    # as JSON, since numpy cuts trailing NULs off its own texts
    return {f"{name}!codes": codes, f"{name}!texts": np.array(json.dumps(list(numbers)))}


def _unpacked(arrays: Mapping[str, Column]) -> ReplayResult:
    rest = json.loads(str(arrays["rest"]))
    tables: dict[str, dict[str, Any]] = {name: {} for name in TABLES}
    for name, column in arrays.items():
        table, dot, key = name.partition(".")
        if key.endswith("!codes"):
            key = key.removesuffix("!codes")
            texts = json.loads(str(arrays[f"{table}.{key}!texts"]))
            tables[table][key] = np.array([*texts, None], np.object_)[column]
        elif dot and not key.endswith("!texts"):
            tables[table][key] = column
    jobs = tables["jobs"]
    jobs["extra"] = {
        name.removeprefix("extra."): jobs.pop(name) for name in list(jobs) if name[:6] == "extra."
    }
    tables["cluster"]["spec"] = rest.pop("spec")
    made: dict[str, Any] = {
        name: TABLES[name](**columns) if columns else None for name, columns in tables.items()
    }
    rest["warnings"] = tuple(rest["warnings"])
    return ReplayResult(label=rest["policy"], **made, **rest)
