"""`open_trace`: whatever the file, its jobs in the normal form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from dlsched.core.errors import BadInput
from simulate.traces.formats import (
    acme,
    alibaba2023,
    blox,
    dlsched,
    gavel,
    helios,
    pai,
    philly,
    philly_attempts,
    philly_passed,
    pollux,
    shockwave,
    slurm,
    tiresias,
    venus,
)
from simulate.traces.options import ReadOptions
from simulate.traces.textfile import first_line
from simulate.traces.trace import Trace

__all__ = ["FORMATS", "detect_format", "open_trace"]

Reader = Callable[[Path, ReadOptions], Trace]

FORMATS: dict[str, Reader] = {
    "dlsched": dlsched.read,
    "philly": philly.read,
    "philly-passed": philly_passed.read,
    "helios": helios.read,
    "venus": venus.read,
    "pai": pai.read,
    "alibaba2023": alibaba2023.read,
    "acme": acme.read,
    "slurm": slurm.read,
    "tiresias": tiresias.read,
    "blox": blox.read,
    "gavel": gavel.read,
    "shockwave": shockwave.read,
    "pollux": pollux.read,
    "sia": pollux.read,
}
# By header, the most particular first: a native file may carry any further column.
_BY_HEADER: tuple[tuple[str, ModuleType], ...] = (
    ("philly-passed", philly_passed),
    ("philly", philly_attempts),
    ("venus", venus),
    ("acme", acme),
    ("helios", helios),
    ("alibaba2023", alibaba2023),
    ("slurm", slurm),
    ("tiresias", tiresias),
    ("blox", blox),
    ("gavel", gavel),
    ("shockwave", shockwave),
    ("pollux", pollux),
    ("dlsched", dlsched),
)
# In a folder, the file that is the trace.
_BY_FILE_NAME = {"cluster_job_log": "philly", "cluster_log.csv": "helios"}


def open_trace(
    path: str | Path, format: str = "auto", *, options: ReadOptions | None = None
) -> Trace:
    """Read a trace of any known format.

    Args:
        path: a file (plain, gzip, or Parquet for the native format), or a folder for the formats
            that are published as folders (pai, philly, helios).
        format: one of `FORMATS`, or "auto" to tell it by header and content.
        options: which jobs to keep.

    Raises:
        BadInput: the format is unknown or can't be told, or the file is malformed; the message is
            one line with file and, where there is one, line number.
    """
    path = Path(path)
    if format == "auto":
        format = detect_format(path)
    reader = FORMATS.get(format)
    if reader is None:
        raise BadInput(
            f"trace format {format!r} is unknown; the known ones are auto, {', '.join(FORMATS)}"
        )
    if path.is_dir() and format != "pai":
        path = _file_in(path, format)
    return reader(path, options or ReadOptions())


def detect_format(path: Path) -> str:
    """Tell the format of a file or folder.

    Raises:
        BadInput: it can't be read, or looks like none of the known formats.
    """
    if pai.find_job_table(path):
        return "pai"
    if path.is_dir():
        for name, format in _BY_FILE_NAME.items():
            if (path / name).exists():
                return format
        raise BadInput(
            f"{path}: a folder without pai_job_table.csv, {' or '.join(_BY_FILE_NAME)}; "
            "name the trace file itself"
        )
    if path.suffix == ".parquet":
        return "dlsched"
    line = first_line(path)
    if not line:
        raise BadInput(f"{path}: the file is empty; a trace begins with a line of column names")
    if line.lstrip().startswith("["):
        return "philly"
    header = [name.strip(' "') for name in line.split("|" if "|" in line else ",")]
    for name, module in _BY_HEADER:
        if module.recognises(header):
            return name
    raise BadInput(
        f"{path}:1: not the header of a known trace format ({line[:60]!r}); a native trace has "
        "job_id,submit_time,num_gpus,duration, other formats can be named with --format"
    )


def _file_in(folder: Path, format: str) -> Path:
    for name, known in _BY_FILE_NAME.items():
        if known == format:
            return folder / name
    raise BadInput(f"{folder}: a folder; a {format} trace is one file")
