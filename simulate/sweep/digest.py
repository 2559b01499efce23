"""What a run's result depends on, as one digest: trace, cluster, events, settings and code.

Two runs of equal digests have equal results, so a stored one can stand for another.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dlsched
import simulate
from dlsched.composition.parts import part_names
from dlsched.core.cluster.description import Cluster
from dlsched.core.speed.throughput_table import ThroughputTable
from dlsched.policies.registry import find
from simulate.published.profiles import semantics_of
from simulate.settings import RunSettings
from simulate.sweep.run import Inputs, Run
from simulate.traces.trace import Trace


class Digests:
    """Digests of the runs of one sweep; its inputs are read once."""

    def __init__(self, inputs: Inputs) -> None:
        self._traces = [_trace_digest(trace) for trace in inputs.traces]
        self._shared = [
            code_digest(),
            _cluster_digest(inputs.cluster),
            repr(tuple(inputs.events)),
            _throughputs_digest(inputs.throughputs),
            repr(tuple(inputs.services)),
            repr(inputs.patterns),
            repr(inputs.pairs),
            *(f"{name} {each.digest}" for name, each in (inputs.applications or {}).items()),
        ]
        self._quotas = any(vc.gpus >= 0 for vc in inputs.cluster.vcs.values())

    def of(self, run: Run) -> str:
        """The digest of a run, as hexadecimal text."""
        settings = run.settings
        parts = [
            *self._shared,
            self._traces[run.trace],
            json.dumps(asdict(replace(settings, name="")), sort_keys=True),
            *_files_named_in(settings),
            *_code_of_others(settings, has_quotas=self._quotas),
        ]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def code_digest() -> str:
    """The digest of the code that replays: core, composition, policies and the simulated world."""
    ours, world = Path(dlsched.__file__).parent, Path(simulate.__file__).parent
    sources = [
        *ours.glob("core/**/*.py"),
        *ours.glob("composition/**/*.py"),
        *ours.glob("policies/**/*.py"),
        *(path for path in world.glob("**/*.py") if path.relative_to(world).parts[0] != "report"),
    ]
    return _files_digest(sorted(sources))


def _files_digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _code_of_others(settings: RunSettings, *, has_quotas: bool) -> list[str]:
    """Digests of the folders that third parties' parts come from: people edit what they study."""
    digests = []
    chosen = part_names(settings, semantics_of(settings), has_quotas=has_quotas)
    for stage, name in chosen.items():
        part = find(stage, name.partition(":")[0])
        if part.__module__.partition(".")[0] in ("dlsched", "simulate"):
            continue
        import inspect  # noqa: PLC0415 - rarely needed

        folder = Path(inspect.getfile(part)).parent
        digests.append(_files_digest(sorted(folder.glob("*.py"))))
    return digests


def _files_named_in(settings: RunSettings) -> list[str]:
    """Digests of the files that options name ("sample=FILE")."""
    values = [option.partition("=")[2] for option in settings.options]
    return [_files_digest([Path(value)]) for value in values if os.path.isfile(value)]


def _cluster_digest(cluster: Cluster) -> str:
    return repr((cluster.nodes, cluster.gpu_types, tuple(cluster.vcs.values())))


def _throughputs_digest(table: ThroughputTable | None) -> str:
    if table is None:
        return ""
    digest = hashlib.sha256(repr((table.types, table.kinds, table.scales)).encode())
    digest.update(table.alone.tobytes() + table.together.tobytes())
    return digest.hexdigest()


def _trace_digest(trace: Trace) -> str:
    digest = hashlib.sha256()
    columns: dict[str, NDArray[Any]] = {
        "job_id": trace.job_id,
        "submit_time": trace.submit_time,
        "num_gpus": trace.num_gpus,
        "duration": trace.duration,
        "user": trace.user,
        "vc": trace.vc,
        **trace.columns,
    }
    digest.update(json.dumps([trace.name, *trace.notes, *columns]).encode())
    for column in columns.values():
        if column.dtype == np.object_:
            digest.update(json.dumps(column.tolist()).encode())
        else:
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()
