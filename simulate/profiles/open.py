"""What `--profiles` names: throughputs, and how batch sizes grow.

One file or folder, or several with commas between. A file's header says what it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dlsched.core.errors import BadInput
from dlsched.core.speed.throughput_table import ThroughputTable
from simulate.goodput.application import Application
from simulate.goodput.files import holds_applications, read_applications
from simulate.goodput.typed_files import holds_typed_applications, read_typed_applications
from simulate.profiles.batch_rules import BatchPatterns
from simulate.profiles.throughput_file import measurements_of
from simulate.traces.textfile import first_line


def open_applications(text: str | None) -> Mapping[str, Application] | None:
    """Read the measured applications of a folder; None where it is no such folder.

    Raises:
        BadInput: one line with file and line number.
    """
    if text is None or "," in text:
        return None
    if holds_typed_applications(Path(text)):
        return read_typed_applications(Path(text))
    if not holds_applications(Path(text)):
        return None
    return read_applications(Path(text))


def open_profiles(text: str | None) -> tuple[ThroughputTable | None, BatchPatterns | None]:
    """Read everything that is named; nothing when nothing is.

    Raises:
        BadInput: one line with file and line number; no throughputs; two tables of batch sizes.
    """
    if text is None:
        return None, None
    measured, patterns = [], None
    for name in filter(None, (part.strip() for part in text.split(","))):
        place = Path(name)
        files = sorted(place.glob("*batch_size*.csv")) if place.is_dir() else [place]
        sizes = [file for file in files if "from_epoch" in first_line(file)]
        for file in sizes:
            if patterns is not None:
                raise BadInput(f"--profiles: {file} is a second table of batch sizes")
            patterns = BatchPatterns.read(file)
        if place.is_dir() or not sizes:
            measured.extend(measurements_of(place))
    if not measured:
        raise BadInput(f"--profiles {text}: holds no throughputs")
    return ThroughputTable(measured), patterns
