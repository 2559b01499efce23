"""Profiles of how fast models run with more or fewer processors and memory, from CSV files.

    model,cpus_per_gpu,memory_gb_per_gpu,steps_per_s
    resnet18,3,62.5,1.56
    resnet18,9,62.5,3.75

Every combination of processors and memory of a model must be there; without the column of memory
(or with it empty) memory makes no difference. `dlsched admin profile` writes this.

The tables of Synergy's artifact are read as they are, told by their headers: demands
(`cluster_cpu_per_gpu,model,ideal_cpu_per_gpu,ideal_mem_gb_per_gpu,iteration_s_at_fair_share,
speedup_at_ideal`, …) and matrices (`cluster_cpu_per_gpu,model,cpu_per_gpu,mem_gb_per_gpu,
normalized_throughput`). Both speak of servers with so many processors for each GPU; those of the
cluster's own ratio are taken. Where only demands are given, a model's speed is linear between the
proportional share and its ideal one.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dlsched.core.allocation import HostShare
from dlsched.core.errors import BadInput
from dlsched.core.speed.sensitivity import HostProfile

MEASURED = ("model", "cpus_per_gpu", "steps_per_s")
DEMANDS = (
    "cluster_cpu_per_gpu", "model", "ideal_cpu_per_gpu", "ideal_mem_gb_per_gpu",
    "iteration_s_at_fair_share", "speedup_at_ideal",
)  # fmt: skip
MATRIX = (
    "cluster_cpu_per_gpu", "model", "cpu_per_gpu", "mem_gb_per_gpu", "normalized_throughput",
)  # fmt: skip


@dataclass
class HostTables:
    """What files say of processors and memory.

    Attributes:
        measured: steps/s by model, and by (processors, GB) for each GPU.
        demands: by (processors for each GPU of a server, model).
        matrices: likewise: gain by (processors, GB) for each GPU.
    """

    measured: dict[str, dict[HostShare, float]] = field(default_factory=dict)
    demands: dict[tuple[float, str], tuple[HostShare, float, float]] = field(default_factory=dict)
    matrices: dict[tuple[float, str], dict[HostShare, float]] = field(default_factory=dict)

    def read(self, name: str, lines: Iterable[str]) -> None:
        """Take in a table.

        Args:
            name: of the file, for messages.
            lines: its text.

        Raises:
            BadInput: one line with file and line number.
        """
        reader = csv.DictReader(lines)
        names = set(reader.fieldnames or ())
        for row in reader:
            line = _Line(f"{name}:{reader.line_num}", row)
            if names.issuperset(DEMANDS):
                _enter_demand(self, line)
            elif names.issuperset(MATRIX):
                share = HostShare(line.number("cpu_per_gpu"), line.number("mem_gb_per_gpu"))
                key = line.number("cluster_cpu_per_gpu"), line.text("model")
                line.enter(self.matrices.setdefault(key, {}), share, "normalized_throughput")
            else:
                said = (row.get("memory_gb_per_gpu") or "").strip()
                memory = line.number("memory_gb_per_gpu") if said else 0.0
                share = HostShare(line.number("cpus_per_gpu"), memory)
                rates = self.measured.setdefault(line.text("model"), {})
                line.enter(rates, share, "steps_per_s")

    def check(self) -> None:
        """See that every combination was measured that has to be.

        Raises:
            BadInput: a table has holes.
        """
        for model, rates in self.measured.items():
            _profile(model, rates)

    def for_servers(self, proportional: HostShare) -> Mapping[str, HostProfile]:
        """The profiles of all models on servers with this proportional share.

        Raises:
            BadInput: there are none for such servers, or a table has holes.
        """
        ratio = proportional.cpus
        found = {model: _profile(model, rates) for model, rates in self.measured.items()}
        for (cpus, model), gains in self.matrices.items():
            if cpus == ratio:
                found.setdefault(model, _profile(model, gains))
        for (cpus, model), (ideal, step_s, gain) in self.demands.items():
            if cpus != ratio or model in self.measured:
                continue
            known = found.get(model)
            if known is not None:  # the matrix has the gains, this has the seconds
                found[model] = replace(known, step_s=step_s, best=ideal)
                continue
            few, many = min(ratio, ideal.cpus), ideal.cpus
            points = [(few, 1.0), (many, gain)] if many > few else [(few, 1.0)]
            found[model] = HostProfile(
                cpus=np.array([at for at, _ in points]),
                memory_gb=np.array([ideal.memory_gb]),
                gain=np.array([[each] for _, each in points]),
                step_s=step_s,
                best=ideal,
            )
        if not found:
            known_ratios = sorted({cpus for cpus, _ in (*self.demands, *self.matrices)})
            raise BadInput(
                "--profiles: they speak of servers with "
                f"{', '.join(f'{each:g}' for each in known_ratios)} processors for each GPU; the "
                f"cluster has {ratio:g}"
            )
        return found


def is_host_table(header: str) -> bool:
    """Does a header say that a file is one of these?"""
    names = set(header.strip().split(","))
    return any(names.issuperset(each) for each in (MEASURED, DEMANDS, MATRIX))


class _Line:
    """One row, and what messages call it."""

    def __init__(self, where: str, row: Mapping[str, str | None]) -> None:
        self.where, self._row = where, row

    def text(self, name: str) -> str:
        found = (self._row.get(name) or "").strip()
        if not found:
            raise BadInput(f"{self.where}: no {name}")
        return found

    def number(self, name: str) -> float:
        """A number above 0."""
        text = self.text(name)
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not (math.isfinite(found) and found > 0):
            raise BadInput(f"{self.where}: {name} is {text!r}; a number above 0 is expected")
        return found

    def enter(self, table: dict[HostShare, float], share: HostShare, name: str) -> None:
        """Enter a measurement, once."""
        value = self.number(name)
        if table.setdefault(share, value) != value:
            raise BadInput(
                f"{self.where}: {name} with {share.cpus:g} processors and {share.memory_gb:g} GB "
                f"is {value:g} here and {table[share]:g} before"
            )


def _enter_demand(tables: HostTables, line: _Line) -> None:
    ideal = HostShare(line.number("ideal_cpu_per_gpu"), line.number("ideal_mem_gb_per_gpu"))
    key = line.number("cluster_cpu_per_gpu"), line.text("model")
    if key in tables.demands:
        raise BadInput(f"{line.where}: model {key[1]} is there twice")
    step_s, gain = line.number("iteration_s_at_fair_share"), line.number("speedup_at_ideal")
    tables.demands[key] = ideal, step_s, gain


def _profile(model: str, rates: Mapping[HostShare, float]) -> HostProfile:
    """A profile of measurements.

    Raises:
        BadInput: a combination of processors and memory is missing.
    """
    cpus = sorted({share.cpus for share in rates})
    memory = sorted({share.memory_gb for share in rates})
    for each in (HostShare(c, m) for c in cpus for m in memory):
        if each not in rates:
            raise BadInput(
                f"--profiles: model {model} was not measured with {each.cpus:g} processors and "
                f"{each.memory_gb:g} GB for each GPU, but with each of them"
            )
    gain = np.array([[rates[HostShare(c, m)] for m in memory] for c in cpus])
    return HostProfile(cpus=np.array(cpus), memory_gb=np.array(memory), gain=gain, step_s=1.0)
