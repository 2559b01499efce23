"""A trace: the jobs of a replay as columns, in submit order, whatever file they came from.

Times are seconds from the first submit; `epoch` (Unix seconds, UTC) says when that was, if the
source tells. Rows are sorted by submit time, ties in file order. Unknown numbers are NaN, unknown
texts are "": never a made-up default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatColumn = NDArray[np.float64]
TextColumn = NDArray[np.object_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The jobs of one trace.

    Attributes:
        name: what to call it in tables, usually the file's stem.
        source: the format it was read from ("philly", "native", …).
        job_id: `str` per job, unique.
        submit_time: seconds from the first submit, ascending.
        num_gpus: GPUs the job asks for at once; fractions are shares of one GPU, 0 is a CPU job.
        duration: seconds of execution on its gang (reference GPU type); NaN when unknown.
        user: text, "" when unknown.
        vc: virtual cluster, text, "" when unknown.
        status: how it ended in reality: completed, cancelled, failed, unfinished or "".
        columns: further columns by native name (`float64` or `object` of `str`), for example
            `model`, `gpu_type`, `num_cpus`, `memory_gb`, `num_nodes`, `priority`, `deadline`,
            `time_limit`, `start_time`, `end_time`, `round_delivered`, `attempts`, `note`.
        epoch: Unix seconds (UTC) of time 0, None when the source has no absolute time.
        zone: the rule by which local times were read ("America/Los_Angeles", "+08:00", "naive").
        dropped: rows left out, by reason, in file order of first occurrence.
        notes: sentences the user should read with any result based on this trace.
    """

    name: str
    source: str
    job_id: TextColumn
    submit_time: FloatColumn
    num_gpus: FloatColumn
    duration: FloatColumn
    user: TextColumn
    vc: TextColumn
    status: TextColumn
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    epoch: float | None = None
    zone: str = ""
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return int(self.submit_time.shape[0])
