"""Throughput tables from CSV files, plain or gzip.

    accelerator,scale_factor,model,batch_size,co_model,co_batch_size,steps_per_s,co_steps_per_s
    v100,1,ResNet-18,64,,,26.5,
    v100,1,ResNet-18,64,A3C,,20.1,4.2

Needed are `accelerator`, `scale_factor`, `model` and `steps_per_s`. `consolidated`, where it is
given, is 1 for GPUs on one server and 0 for others. A row with a `co_model` is a pair on the same
GPUs, and then needs `co_steps_per_s`. `steps_per_s` is that of the whole job; 0 means that it does
not run. The words of ElasticFlow's tables (`gpu_type,model,global_batch_size,num_gpus,
iterations_per_s`) mean the same.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from dlsched.core.errors import BadInput
from dlsched.core.speed.throughput_table import JobKind, Measurement
from simulate.traces.textfile import lines_of, open_text

NEEDED = ("accelerator", "scale_factor", "model", "steps_per_s")
ELASTICFLOW_WORDS = {
    "gpu_type": "accelerator",
    "num_gpus": "scale_factor",
    "global_batch_size": "batch_size",
    "iterations_per_s": "steps_per_s",
}
_BATCH = " (batch size "


def measurements_of(place: Path) -> list[Measurement]:
    """The rows of a table: a file, or all files of a folder whose names contain `throughputs`.

    Raises:
        BadInput: one line with file and line number.
    """
    files = [place]
    if place.is_dir():
        found = [*place.glob("*throughputs*.csv"), *place.glob("*throughputs*.csv.gz")]
        files = sorted(found)
        if not files:
            raise BadInput(
                f"{place}: a folder without *throughputs*.csv[.gz] of speeds, and without "
                "applications.csv[.gz] of measured applications"
            )
    return [m for file in files for m in _measurements(file)]


def _measurements(file: Path) -> list[Measurement]:
    with open_text(file) as text:
        reader = csv.DictReader(lines_of(file, text))
        names = reader.fieldnames or ()
        reader.fieldnames = [ELASTICFLOW_WORDS.get(name, name) for name in names]
        missing = [name for name in NEEDED if name not in (reader.fieldnames or ())]
        if missing:
            raise BadInput(f"{file}: a table of throughputs needs a column {missing[0]}")
        measured = [_measurement(f"{file}:{reader.line_num}", row) for row in reader]
    if not measured:
        raise BadInput(f"{file}: holds no throughputs")
    return measured


def job_kind(name: str) -> JobKind:
    """The kind that a job type is called by, as in `ResNet-18 (batch size 64)`."""
    model, found, rest = name.partition(_BATCH)
    size = rest.removesuffix(")")
    if found and rest.endswith(")") and size.isdigit():
        return JobKind(model, int(size))
    return JobKind(name)


def _measurement(where: str, row: Mapping[str, str | None]) -> Measurement:
    def text(name: str) -> str:
        return (row.get(name) or "").strip()

    def kind(model: str, batch: str) -> JobKind:
        if not text(batch):
            return JobKind(text(model))
        return JobKind(text(model), _whole(where, batch, text(batch)))

    for name in ("accelerator", "model"):
        if not text(name):
            raise BadInput(f"{where}: no {name}")
    if text("consolidated") not in ("", "0", "1"):
        raise BadInput(f"{where}: consolidated must be 0 or 1, not {text('consolidated')!r}")
    paired = bool(text("co_model"))
    return Measurement(
        gpu_type=text("accelerator"),
        scale=_whole(where, "scale_factor", text("scale_factor")),
        kind=kind("model", "batch_size"),
        rate=_number(where, "steps_per_s", text("steps_per_s")),
        partner=kind("co_model", "co_batch_size") if paired else None,
        partner_rate=_number(where, "co_steps_per_s", text("co_steps_per_s")) if paired else 0.0,
        spread=text("consolidated") == "0",
        where=where,
    )


def _whole(where: str, name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise BadInput(f"{where}: {name} must be a whole number from 1 up, not {text!r}")
    return int(text)


def _number(where: str, name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{where}: {name} must be a number, not {text!r}") from None
