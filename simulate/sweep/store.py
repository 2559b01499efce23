"""Finished runs on disk, one file each, so that an interrupted sweep can go on.

A file is called by the digest of everything that its run depends on: a folder may serve any number
of studies, and a run that is the same in two of them is done once. Files appear whole or not at
all, and hold numbers and texts only (an npz without pickles), so a folder can be passed on.
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
from simulate.output import appearing_whole, check_writable
from simulate.results import ClusterShape, JobOutcomes, ReplayResult, Segments, Timeline
from simulate.sweep.digest import Digests
from simulate.sweep.run import Inputs, Run

__all__ = ["Store"]

Column = NDArray[Any]


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
        try:
            check_writable(self.folder / "x" if there else self.folder)
        except BadInput as error:
            raise BadInput(f"--resume {error}") from None
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
    tables = {
        "jobs": result.jobs,
        "timeline": result.timeline,
        "segments": result.segments,
        "cluster": result.cluster,
    }
    arrays: dict[str, Any] = {}
    for table, value in tables.items():
        for name, column in _columns(value).items():
            arrays.update(_packed_column(f"{table}.{name}", column))
    told = {
        "policy": result.policy,
        "trace": result.trace,
        "load": result.load,
        "seed": result.seed,
        "spec": result.cluster.spec,
        "summary": result.summary,
        "warnings": result.warnings,
    }
    arrays["told"] = np.array(json.dumps(told, ensure_ascii=False, default=_plain))
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
    told = json.loads(str(arrays["told"]))
    tables: dict[str, dict[str, Column]] = {"jobs": {}, "timeline": {}, "segments": {}}
    tables["cluster"] = {}
    for name, column in arrays.items():
        table, _, rest = name.partition(".")
        if rest.endswith("!codes"):
            key = rest.removesuffix("!codes")
            texts = np.array([*json.loads(str(arrays[f"{table}.{key}!texts"])), None], np.object_)[
                :-1
            ]
            tables[table][key] = texts[column] if len(texts) else texts
        elif rest and not rest.endswith("!texts"):
            tables[table][rest] = column
    jobs = tables["jobs"]
    extra = {
        name.removeprefix("extra."): jobs.pop(name) for name in list(jobs) if name[:6] == "extra."
    }
    return ReplayResult(
        label=told["policy"],
        policy=told["policy"],
        trace=told["trace"],
        load=told["load"],
        seed=told["seed"],
        jobs=JobOutcomes(**jobs, extra=extra),
        timeline=Timeline(**tables["timeline"]),
        segments=Segments(**tables["segments"]) if tables["segments"] else None,
        cluster=ClusterShape(spec=told["spec"], **tables["cluster"]),
        summary=told["summary"],
        warnings=tuple(told["warnings"]),
    )
