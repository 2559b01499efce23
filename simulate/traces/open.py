"""`open_trace`: whatever the file, its jobs in the normal form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from dlsched.core.errors import BadInput
from simulate.traces.formats import (
    blox,
    dlsched,
    helios,
    philly_passed,
    tiresias,
    venus,
)
from simulate.traces.options import ReadOptions
from simulate.traces.textfile import first_line
from simulate.traces.trace import Trace

__all__ = ["FORMATS", "detect_format", "open_trace"]

Reader = Callable[[Path, ReadOptions], Trace]


# By header, the most particular first: a native file may carry any further column.
_BY_HEADER: tuple[tuple[str, ModuleType], ...] = (
    ("philly-passed", philly_passed),
    ("venus", venus),
    ("helios", helios),
    ("tiresias", tiresias),
    ("blox", blox),
    ("dlsched", dlsched),
)
FORMATS: dict[str, Reader] = {
    "dlsched": dlsched.read,
    "philly-passed": philly_passed.read,
    "helios": helios.read,
    "venus": venus.read,
    "tiresias": tiresias.read,
    "blox": blox.read,
}


def open_trace(
    path: str | Path, format: str = "auto", *, options: ReadOptions | None = None
) -> Trace:
    """Read a trace of any known format.

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
    return reader(path, options or ReadOptions())


def detect_format(path: Path) -> str:
    """Tell a format by name and header; raises BadInput when none fits."""
    if path.suffix == ".parquet":
        return "dlsched"
    line = first_line(path)
    header = [name.strip() for name in line.split(",")]
    for name, module in _BY_HEADER:
        if module.recognises(header):
            return name
    raise BadInput(f"{path}: no known format; its first line is {line[:60]!r}")
