"""What `--profiles` names: throughputs, how batch sizes grow, and what was measured of sharing.

One file or folder, or several with commas between. A file's header says what it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dlsched.composition.host_tables import HostTables, is_host_table
from dlsched.core.errors import BadInput
from dlsched.core.speed.colocation import ColocationTable
from dlsched.core.speed.throughput_table import Measurement, ThroughputTable
from simulate.goodput.application import Application
from simulate.goodput.files import holds_applications, read_applications
from simulate.goodput.typed_files import holds_typed_applications, read_typed_applications
from simulate.profiles.batch_rules import BatchPatterns
from simulate.profiles.throughput_file import measurements_of
from simulate.profiles.workloads import (
    WorkloadProfiles,
    is_colocation,
    is_workloads,
    read_colocation,
    read_workloads,
)
from simulate.traces.textfile import first_line, lines_of, open_text


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


class Profiles(NamedTuple):
    """What was measured of jobs; None for what no file has.

    Attributes:
        throughputs: steps per second.
        patterns: how batch sizes grow.
        pairs: speeds of pairs of workloads on the same GPUs, relative to each one alone.
        workloads: what each workload uses.
        host: speeds with more or fewer processors and memory.
    """

    throughputs: ThroughputTable | None = None
    patterns: BatchPatterns | None = None
    pairs: ColocationTable | None = None
    workloads: WorkloadProfiles | None = None
    host: HostTables | None = None


def open_profiles(text: str | None) -> Profiles:
    """Read everything that is named; nothing when nothing is.

    Raises:
        BadInput: one line with file and line number; nothing that is known; two tables of a kind of
            which there is one.
    """
    if text is None:
        return Profiles()
    measured: list[Measurement] = []
    hosts: list[Path] = []
    found = Profiles()
    for name in filter(None, (part.strip() for part in text.split(","))):
        for file in _files(Path(name)):
            header = first_line(file)
            if "from_epoch" in header:
                _refuse_second(found.patterns, file, "batch sizes")
                found = found._replace(patterns=BatchPatterns.read(file))
            elif is_host_table(header):
                hosts.append(file)
            elif is_colocation(header):
                _refuse_second(found.pairs, file, "pairs")
                found = found._replace(pairs=read_colocation(file))
            elif is_workloads(header):
                _refuse_second(found.workloads, file, "workloads")
                found = found._replace(workloads=read_workloads(file))
            else:
                measured.extend(measurements_of(file))
    if measured:
        found = found._replace(throughputs=ThroughputTable(measured))
    if hosts:
        found = found._replace(host=read_host_files(hosts))
    if not any((measured, hosts, found.pairs, found.workloads)):
        raise BadInput(f"--profiles {text}: holds no throughputs")
    return found


def _files(place: Path) -> list[Path]:
    """The tables that a file or a folder has.

    Raises:
        BadInput: a folder has none.
    """
    if not place.is_dir():
        return [place]
    words = ("throughputs", "batch_size", "colocation", "profiles", "demands", "sensitivity")
    patterns = (f"*{word}*.csv{packed}" for word in words for packed in ("", ".gz"))
    found = sorted({file for pattern in patterns for file in place.glob(pattern)})
    if not found:
        raise BadInput(
            f"{place}: a folder without *throughputs*.csv[.gz] of speeds, *colocation*.csv[.gz] of "
            "pairs, *profiles*.csv[.gz] of workloads, *demands*.csv[.gz] and "
            "*sensitivity*.csv[.gz] of processors and memory, or applications.csv[.gz] of measured "
            "applications"
        )
    return found


def _refuse_second(before: object, file: Path, what: str) -> None:
    if before is not None:
        raise BadInput(f"--profiles: {file} is a second table of {what}")


def read_host_files(files: Sequence[Path]) -> HostTables:
    """Read files of speeds by processors and memory, plain or gzip (see `HostTables`).

    Raises:
        BadInput: one line with file and line number.
    """
    tables = HostTables()
    for file in files:
        with open_text(file) as text:
            tables.read(str(file), lines_of(file, text))
    return tables
