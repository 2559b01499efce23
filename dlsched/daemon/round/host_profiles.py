"""What a live round believes of speeds by processors and memory: a file that was measured.

`dlsched admin profile host` writes such a file, and `[round] host_profiles` names it.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from dlsched.composition.host_tables import HostTables, is_host_table
from dlsched.core.allocation import HostShare
from dlsched.core.cluster.description import Cluster
from dlsched.core.errors import BadInput
from dlsched.core.speed.sensitivity import HostSpeeds, proportional_share
from dlsched.core.units import UnitTable

HostRow = tuple[str, float, float, float]  # model, processors and GB for each GPU, steps/s


def read_host_profiles(file: str) -> tuple[HostRow, ...]:
    """Read what was measured; nothing where no file is named.

    Raises:
        BadInput: one line with file and line number; tables of servers of another kind.
    """
    if not file:
        return ()
    tables = HostTables()
    try:
        with Path(file).open(encoding="utf-8", newline="") as lines:
            header = next(lines, "")
            if not is_host_table(header):
                raise BadInput(f"[round] host_profiles: {file} is no such table")
            tables.read(file, chain([header], lines))
    except OSError as error:
        raise BadInput(f"[round] host_profiles: {file}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"[round] host_profiles: {file}: {error}") from None
    if tables.demands or tables.matrices:
        raise BadInput(
            f"[round] host_profiles: {file} has no measured speeds "
            "(model,cpus_per_gpu,memory_gb_per_gpu,steps_per_s)"
        )
    tables.check()
    return tuple(
        (model, *share, rate)
        for model, rates in tables.measured.items()
        for share, rate in rates.items()
    )


def host_columns(
    rows: Sequence[HostRow], kinds: Mapping[Any, tuple[str, int]], row_of: Mapping[Any, int]
) -> Mapping[str, Any]:
    """What is known, as plain values for a snapshot; empty where nothing is.

    Args:
        rows: what was measured.
        kinds: model and batch size of live jobs.
        row_of: the rows of jobs.
    """
    known = {model for model, *_ in rows}
    models = {row_of[job]: model for job, (model, _) in sorted(kinds.items()) if model in known}
    if not models:
        return {}
    return {
        "rows": [list(row) for row in rows],
        "of": list(models),
        "models": list(models.values()),
    }


def host_speeds(
    columns: Mapping[str, Any], table: UnitTable, cluster: Cluster
) -> HostSpeeds | None:
    """What policies may believe, of `host_columns`; None where nothing is known."""
    proportional = proportional_share(cluster)
    if not columns or not proportional.cpus:
        return None
    tables = HostTables()
    for model, cpus, memory, rate in columns["rows"]:
        tables.measured.setdefault(model, {})[HostShare(cpus, memory)] = rate
    models = [""] * len(table)
    for row, model in zip(columns["of"], columns["models"], strict=True):
        models[row] = model
    return HostSpeeds(models, tables.for_servers(proportional), proportional)
