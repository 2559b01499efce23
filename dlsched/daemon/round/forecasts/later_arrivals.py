"""Jobs of a snapshot that come later: at a time, after others, in turn with their array.

No round sees them yet, so they are beside the rows that one decides on. Where a snapshot is run on,
they arrive as in life, as far as that is known: jobs are taken to end well, so what waits for a
failure, for the start of another job, for a quota of GPU-hours or for a release by hand does not
come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dlsched.core.arrays import Floats, Rows
from dlsched.core.units import UnitTable
from dlsched.daemon.live import job_columns as c
from dlsched.protocol.messages import JobId

if TYPE_CHECKING:  # workers run this too: without a database
    from dlsched.daemon.live.live_state import LiveState
    from dlsched.db.records import Dependency, JobSpec

_COMES = ("BeginTime", "BackOff", "Dependency:", "JobArrayTaskLimit")  # how their reasons begin


def later_of(live: LiveState, now: float) -> dict[str, Any]:
    """What `LiveSnapshot.later` has: columns, empty ones where no job comes later.

    Returns:
        `row` and `begin` (seconds of the policy's clock) of each job that comes, pairs `parents` of
        its row and that of a job whose end it awaits, and `arrays`: row, number and limit of every
        live element of an array with a limit.
    """
    _, reasons = live.eligibility.judge(now, live.claims)
    rows: list[int] = []
    begins: list[float] = []
    parents: list[tuple[int, int]] = []
    arrays: list[tuple[int, int, int]] = []
    # live jobs by user and name, from the last one that awaited all before it
    namesakes: dict[tuple[str, str], list[int]] = {}
    for job, row in live.jobs.row_of.items():
        spec = live.requests.specs.get(job)
        if spec is None or live.jobs.get("phase", row) == c.ENDED:
            continue
        earlier = namesakes.setdefault((spec.user, spec.name), [])
        if spec.array is not None and spec.array.limit:
            arrays.append((row, job - spec.index, spec.array.limit))
        comes = reasons.get(job, "").startswith(_COMES) and live.jobs.get("gang", row)
        awaited = _awaited(live, spec, earlier) if comes else None
        if any(each.kind == "singleton" for each in spec.body.dependencies):
            earlier.clear()
        earlier.append(job)
        if awaited is not None:
            rows.append(row)
            begins.append(max(live.jobs.get(name, row) for name in ("begin_at", "not_before")))
            parents += [(row, other) for other in awaited]
    return {
        "row": np.array(rows, np.int64),
        "begin": np.array(begins, np.float64),
        "parents": np.array(parents, np.int64).reshape(-1, 2),
        "arrays": np.array(arrays, np.int64).reshape(-1, 3),
    }


def _awaited(live: LiveState, spec: JobSpec, earlier: Sequence[int]) -> list[int] | None:
    """The rows of live jobs whose ends a job awaits; None: it is not known when it comes.

    `earlier` are those of its user and name that a singleton awaits.
    """
    found: list[int] = []
    for number, dependency in enumerate(spec.body.dependencies):
        is_last = number + 1 == len(spec.body.dependencies)
        if dependency.or_next and not is_last:
            return None
        if dependency.kind == "singleton":
            others: Iterable[int] = earlier
        elif dependency.kind in ("afterok", "afterany", "aftercorr"):
            others = _named(live, dependency, spec)
        else:
            return None
        found += [
            live.jobs.row_of[other]
            for other in others
            if other in live.jobs.row_of
            and live.jobs.get("phase", live.jobs.row_of[other]) != c.ENDED
        ]
    return found


def _named(live: LiveState, dependency: Dependency, spec: JobSpec) -> Iterator[int]:
    first = live.eligibility.outcome(JobId(dependency.job))
    elements = first.elements if first is not None else ()
    if not elements:
        yield dependency.job
    elif dependency.kind == "aftercorr":
        yield elements[spec.index]
    else:
        yield from elements


@dataclass(frozen=True, slots=True)
class LaterArrivals:
    """Rows that come later.

    Attributes:
        rows: in the order in which they become visible.
        visible: when each row of the table becomes visible, in seconds of the policy's clock.
    """

    rows: Rows
    visible: Floats

    @classmethod
    def restored(cls, later: Mapping[str, Any], table: UnitTable, now: float) -> LaterArrivals:
        """Enter what rows of a table wait for; `later` is of a snapshot, empty for an older one."""
        visible = table.submit_time.copy()
        if not later:
            return cls(np.zeros(0, np.int64), visible)
        rows: Rows = later["row"]
        visible[rows] = np.maximum(later["begin"], now)
        parents: dict[int, list[int]] = {}
        for row, other in later["parents"].tolist():
            parents.setdefault(row, []).append(other)
        table.parents = {row: tuple(others) for row, others in parents.items()}
        table.array_limits = {row: (array, limit) for row, array, limit in later["arrays"].tolist()}
        order = np.lexsort((rows, visible[rows]))
        return cls(rows[order], visible)
