"""The flows of a replay's jobs, where they ran: data that is read, gradients, checkpoints.

A trace says in GB (10^9 bytes) how much each job moves: `ingest_gb`, read anew by each of its nodes
at every start; `gradient_gb`, exchanged between its nodes over its whole life; `checkpoint_gb`,
written when it loses its GPUs. The links are the nodes'. A gang on one node exchanges nothing.

Gradients must keep up with the training: their flow has a deadline, the end of the stretch in which
the job had its GPUs. What is read is of known size; a checkpoint goes out as it is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dlsched.core.errors import BadInput
from simulate.csv_text import cell, whole_file
from simulate.report.interruptions import stretches
from simulate.results.tables import Floats, ReplayResult
from simulate.traces.trace import Trace
from simulate.worlds.network.flow_files import BETWEEN_LINKS
from simulate.worlds.network.flows import Kind

COLUMNS = ("ingest_gb", "gradient_gb", "checkpoint_gb")


class JobFlow(NamedTuple):
    """A row of a file of flows; the deadline is in seconds after the arrival, NaN for none."""

    flow_id: str
    arrival: float
    size: float
    path: str
    deadline: float
    kind: Kind


def check_moves_data(trace: Trace) -> None:
    """Refuse a trace that does not say what its jobs move.

    Raises:
        BadInput: it has none of the columns.
    """
    if not any(name in trace.columns for name in COLUMNS):
        raise BadInput(f"--flows-out: {trace.name} has none of the columns {', '.join(COLUMNS)}")


def write_flows(result: ReplayResult, trace: Trace, path: Path) -> None:
    """Write the flows of a run as `dlsched flows` reads them, in order of arrival.

    Raises:
        OSError: the file cannot be written.
    """
    with whole_file(path) as raw:
        raw.write((",".join(JobFlow._fields) + "\n").encode())
        for flow in sorted(flows_of(result, trace), key=lambda flow: (flow.arrival, flow.flow_id)):
            raw.write((",".join(map(cell, flow)) + "\n").encode())


def flows_of(result: ReplayResult, trace: Trace) -> Iterator[JobFlow]:
    """The flows of a run.

    Args:
        result: with its segments.
        trace: that it replayed.
    """
    assert result.segments is not None
    ingest, gradient, checkpoint = (_sizes(trace, name) for name in COLUMNS)
    joined = stretches(result.segments)
    order = np.lexsort((joined.node, joined.start, joined.job))
    job, start, end = joined.job[order], joined.start[order], joined.end[order]
    nodes = result.cluster.node_name[joined.node[order]]
    new = np.flatnonzero(np.diff(job, prepend=-1) | np.diff(start, prepend=-1.0).astype(bool))
    held = np.zeros(len(trace))  # seconds on GPUs, of each job
    np.add.at(held, job[new], (end - start)[new])
    for first, after in zip(new.tolist(), [*new[1:].tolist(), len(job)], strict=True):
        row, begin, until = job.item(first), start.item(first), end.item(first)
        name, links = f"{trace.job_id[row]}@{begin:g}", nodes[first:after].tolist()
        is_last = after == len(job) or job[after] != row
        if ingest[row] > 0:
            for link in links:
                yield JobFlow(f"{name}/ingest/{link}", begin, ingest[row], link, np.nan, "known")
        share = gradient[row] * (until - begin) / held[row] if held[row] > 0 else 0.0
        if share > 0 and len(links) > 1:
            path = BETWEEN_LINKS.join(links)
            yield JobFlow(f"{name}/gradient", begin, share, path, until - begin, "deadline")
        if checkpoint[row] > 0 and not is_last:
            size = checkpoint[row]
            yield JobFlow(f"{name}/checkpoint", until, size, links[0], np.nan, "unknown")


def _sizes(trace: Trace, name: str) -> Floats:
    column = trace.columns.get(name)
    if column is None or column.dtype == object:
        return np.zeros(len(trace))
    found: Floats = np.nan_to_num(column)
    return found
