"""The table of facts about a node, beside its GPUs.

`NodeFacts` is the table; each of its fields says all about itself in its row: what an agent reports
of it and within which bounds, whether files may say it, which part of it jobs ask for, where it is
shown. Bounds, live nodes, snapshots, the nodes of rounds, keys of files, checks of jobs and views
are derived. A new fact is a line here, a field of the message `NodeFacts` in
proto/dlsched/v1/node.proto, and a line of `measured` in the agent.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

GB = 1e9
MOST_CPUS, MOST_BYTES = 1 << 16, 1 << 50  # of one node
UNKNOWN: dict[str, Any] = {"text": "", "number": float("nan")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is said of one fact.

    Attributes:
        name: of the fact, in snapshots, and its key in the daemon's file and in cluster files.
        form: a text or a number.
        reported: the field of an agent's report; empty: none.
        per: how many of what is reported make one of the fact: bytes a GB.
        most: the most that a node can report.
        configured: whether the daemon's `[[nodes]]` may say it.
        simulated: whether cluster files may say it and rounds know it.
        whole: it is a whole number of 1 or more.
        exact: a node that has more than the configuration says differs from it.
        label: what messages call it.
        unit: behind a number in messages.
        need: the field of a job that no node with less can give; counts what is reported.
        shown: the field of `NodeView`.
    """

    name: str = ""
    form: Literal["text", "number"]
    reported: str = ""
    per: float = 1.0
    most: int = 0
    configured: bool = True
    simulated: bool = True
    whole: bool = False
    exact: bool = False
    label: str = ""
    unit: str = ""
    need: str = ""
    shown: str = ""


def fact(form: Literal["text", "number"], **more: Any) -> Any:
    """Declare a fact with its row; see `Row` for what `more` may say."""
    return dataclasses.field(default=UNKNOWN[form], metadata={"row": Row(form=form, **more)})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What is known of a machine beside its GPUs; NaN and "" mean unknown."""

    gpu_memory_gib: float = fact("number", configured=False)  # of the GPU that has least
    cpus: float = fact(
        "number", reported="cpus", most=MOST_CPUS, whole=True, exact=True, label="CPUs",
        shown="cpus",
    )  # fmt: skip
    memory_gb: float = fact(
        "number", reported="memory_bytes", per=GB, most=MOST_BYTES, label="memory", unit=" GB",
        need="memory_bytes", shown="memory_bytes",
    )  # fmt: skip
    tmp_gb: float = fact(  # of the file system of /tmp
        "number", reported="tmp_bytes", per=GB, most=1 << 62, configured=False, simulated=False,
        label="temporary disk", need="tmp_bytes",
    )  # fmt: skip
    switch: str = fact("text")
    rack: str = fact("text")
    domain: str = fact("text")
    nic_gbps: float = fact("number")


ROWS: dict[str, Row] = {
    each.name: dataclasses.replace(each.metadata["row"], name=each.name)
    for each in dataclasses.fields(NodeFacts)
}
REPORTED = {name: row for name, row in ROWS.items() if row.reported}


def of_report(value_of: Callable[[str], Any]) -> dict[str, float]:
    """The facts that a report says, by name; 0 and what is no number are not known.

    Args:
        value_of: a field of the report; 64-bit numbers of JSON are texts.
    """
    found: dict[str, float] = {}
    for name, row in REPORTED.items():
        try:
            number = float(value_of(row.reported) or 0)
        except (TypeError, ValueError):
            continue
        if number and math.isfinite(number):
            found[name] = number / row.per
    return found
