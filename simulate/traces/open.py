"""`open_trace`: whatever the file, its jobs in the normal form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from dlsched.core.errors import BadInput, not_known
from simulate.traces.formats import dlsched, pai, philly, pollux, slurm
from simulate.traces.formats.acme import ACME
from simulate.traces.formats.alibaba2023 import ALIBABA2023
from simulate.traces.formats.chronus import CHRONUS
from simulate.traces.formats.elasticflow import ELASTICFLOW
from simulate.traces.formats.gavel import GAVEL, SHOCKWAVE
from simulate.traces.formats.helios import HELIOS, VENUS
from simulate.traces.formats.lucid import LUCID
from simulate.traces.formats.muri import MURI
from simulate.traces.formats.philly_tables import ATTEMPTS, PASSED
from simulate.traces.formats.simulators import BLOX, TIRESIAS
from simulate.traces.formats.synergy import SYNERGY
from simulate.traces.options import ReadOptions
from simulate.traces.textfile import first_line
from simulate.traces.trace import Trace

Reader = Callable[[Path, ReadOptions], Trace]

FORMATS: dict[str, Reader] = {
    "dlsched": dlsched.read,
    "philly": philly.read,
    "philly-passed": PASSED.read,
    "helios": HELIOS.read,
    "venus": VENUS.read,
    "pai": pai.read,
    "alibaba2023": ALIBABA2023.read,
    "acme": ACME.read,
    "slurm": slurm.read,
    "chronus": CHRONUS.read,
    "elasticflow": ELASTICFLOW.read,
    "lucid": LUCID.read,
    "muri": MURI.read,
    "synergy": SYNERGY.read,
    "tiresias": TIRESIAS.read,
    "blox": BLOX.read,
    "gavel": GAVEL.read,
    "shockwave": SHOCKWAVE.read,
    "pollux": pollux.read,
    "sia": pollux.read,
}
# By header, the most particular first: a native file may carry any further column.
_BY_HEADER: tuple[tuple[str, Callable[[Sequence[str]], bool]], ...] = (
    ("philly-passed", PASSED.recognises),
    ("philly", ATTEMPTS.recognises),
    ("venus", VENUS.recognises),
    ("acme", ACME.recognises),
    ("helios", HELIOS.recognises),
    ("alibaba2023", ALIBABA2023.recognises),
    ("slurm", slurm.recognises),
    ("chronus", CHRONUS.recognises),
    ("elasticflow", ELASTICFLOW.recognises),
    ("lucid", LUCID.recognises),
    ("muri", MURI.recognises),
    ("synergy", SYNERGY.recognises),
    ("tiresias", TIRESIAS.recognises),
    ("blox", BLOX.recognises),
    ("gavel", GAVEL.recognises),
    ("shockwave", SHOCKWAVE.recognises),
    ("pollux", pollux.recognises),
    ("dlsched", dlsched.recognises),
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
        raise not_known("trace format", format, ("auto", *FORMATS))
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
    for name, recognises in _BY_HEADER:
        if recognises(header):
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
