"""Files of flows: CSV with a header, plain or gzip, one row a flow.

Required are `flow_id`, `arrival` [s], `size` and `path`, the names of links separated by "|".
`deadline` is in seconds after the arrival, as those of jobs are after the submit. `kind` is
`deadline`, `known` or `unknown`; without it a flow with a deadline is of the first kind, and
another one of the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dlsched.core.errors import BadInput, not_known
from simulate.network.flows import KINDS, Flow, Kind, Number
from simulate.traces.ledger import Ledger
from simulate.traces.table import EMPTY, Table, read_table

REQUIRED = ("flow_id", "arrival", "size", "path")
NUMBERS = ("arrival", "size", "deadline")
BETWEEN_LINKS = "|"


def read_flows(path: Path, links: Mapping[str, Number]) -> list[Flow]:
    """Read a file.

    Args:
        path: of it.
        links: that there are.

    Raises:
        BadInput: names the line: a field that is missing or unclear, a link that there is not, two
            flows of one name, a deadline that does not lie after the arrival.
    """
    ledger = Ledger(path, skip_bad_rows=False)
    table = read_table(
        path, ledger, numbers=NUMBERS, required=REQUIRED, unique=("flow_id",), lost=EMPTY
    )
    _check_numbers(table)
    names, words, paths = table.text("flow_id"), table.text("kind"), table.text("path")
    arrival, size, after = (table.number(name) for name in NUMBERS)
    has_deadline = np.isfinite(after)
    flows: dict[str, Flow] = {}
    for row in range(len(table)):
        where = f"{path}:{table.lines[row]}"
        if names[row] in flows:
            raise BadInput(f"{where}: flow {names[row]} is there twice")
        used = tuple(dict.fromkeys(paths[row].split(BETWEEN_LINKS)))
        for link in used:
            if link not in links:
                raise not_known(f"{where}: link", link, sorted(links))
        kind = _kind(words[row], where, has_deadline=bool(has_deadline[row]))
        flows[names[row]] = Flow(
            id=names[row],
            kind=kind,
            path=used,
            size=size.item(row),
            arrival=arrival.item(row),
            deadline=arrival.item(row) + after.item(row) if kind == "deadline" else None,
        )
    return list(flows.values())


def _check_numbers(table: Table) -> None:
    arrival, size, after = (table.number(name) for name in NUMBERS)
    for name, wrong, right in (
        ("arrival", ~(arrival >= 0), "a time of 0 s or later"),
        ("size", ~(size > 0), "more than 0"),
        ("deadline", after <= 0, "after the arrival (more than 0 s)"),
    ):
        values = table.number(name)
        table.refuse(
            np.flatnonzero(wrong),
            f"{name} is unclear",
            lambda row, name=name, values=values, right=right: (  # type: ignore[misc]
                f"{name} is {values[row]:g}; it must be {right}"
            ),
        )


def _kind(word: str, where: str, *, has_deadline: bool) -> Kind:
    if not word:
        return "deadline" if has_deadline else "known"
    for kind in KINDS:
        if word == kind:
            if has_deadline != (kind == "deadline"):
                must = "needs a deadline" if kind == "deadline" else "has no deadline"
                raise BadInput(f"{where}: a flow of kind {kind} {must}")
            return kind
    raise not_known(f"{where}: kind", word, KINDS)
