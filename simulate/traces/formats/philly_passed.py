"""An excerpt of the Philly trace that holds its successful jobs only.

`submit_time,duration_s,num_gpus,vc`, one row a job; times are US Pacific wall time without a zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from simulate.traces.formats.philly_clock import PHILLY_ZONE, philly_utc_offset
from simulate.traces.ledger import Ledger
from simulate.traces.normal import Rows, normal_trace
from simulate.traces.options import ReadOptions
from simulate.traces.table import read_table
from simulate.traces.textfile import stem_of
from simulate.traces.trace import Trace

__all__ = ["read", "recognises"]

COLUMNS = ("submit_time", "duration_s", "num_gpus", "vc")
ONLY_PASSED = (
    "philly-passed contains only status Pass: the killed and failed jobs of the same months, "
    "half of the cluster's GPU time and more, are missing"
)


def recognises(header: Sequence[str]) -> bool:
    """Whether a header has exactly these columns."""
    return set(header) == set(COLUMNS)


def read(path: Path, options: ReadOptions) -> Trace:
    """Read the successful Philly jobs; a job is named by its row, counted from 0.

    Raises:
        BadInput: see `normal_trace` and `read_table`.
    """
    ledger = Ledger(path, skip_bad_rows=options.skip_bad_rows)
    table = read_table(path, ledger, numbers=("duration_s", "num_gpus"), required=COLUMNS)
    submit = table.times("submit_time").seconds
    rows = Rows.of(
        table,
        job_id=table.row_numbers(),
        submit_time=submit,
        num_gpus=table.number("num_gpus"),
        duration=table.number("duration_s"),
        vc=table.text("vc"),
        status=np.full(len(table), "completed", dtype=object),
    )
    return normal_trace(
        rows,
        ledger,
        options,
        name=stem_of(path),
        source="philly-passed",
        is_log=True,
        zone=PHILLY_ZONE,
        utc_offset=philly_utc_offset,
        notes=(ONLY_PASSED,),
    )
