"""Files of flows: CSV with a header, plain or gzip, one row a flow.

Required are `flow_id`, `arrival` [s], `size` and `path`, the names of links separated by "|".
`deadline` is in seconds after the arrival, as those of jobs are after the submit. `kind` is
`deadline`, `known` or `unknown`; without it a flow with a deadline is of the first kind, and
another one of the second.
"""

from __future__ import annotations

from pathlib import Path

from dlsched.core.errors import BadInput, not_known
from simulate.bounded_tables import ABOVE_0, FROM_0, read_rows, rows_of
from simulate.worlds.network.flows import KINDS, Flow, Kind, Links

REQUIRED = ("flow_id", "arrival", "size", "path")
BOUNDS = {"arrival": FROM_0, "size": ABOVE_0, "deadline": ABOVE_0}
BETWEEN_LINKS = "|"


def read_flows(path: Path, links: Links) -> list[Flow]:
    """Read a file.

    Args:
        path: of it.
        links: that there are.

    Raises:
        BadInput: names the line: a field that is missing or unclear, a link that there is not, two
            flows of one name, a deadline that does not lie after the arrival.
    """
    table = read_rows(path, BOUNDS, required=REQUIRED, unique=("flow_id",), nouns="flows")
    flows: dict[str, Flow] = {}
    for where, row in rows_of(table, deadline=None, kind="", path=""):
        name, after = row["flow_id"], row["deadline"]
        if name in flows:
            raise BadInput(f"{where}: flow {name} is there twice")
        used = tuple(dict.fromkeys(row["path"].split(BETWEEN_LINKS)))
        for link in used:
            if link not in links:
                raise not_known(f"{where}: link", link, sorted(links))
        kind = _kind(row["kind"], where, has_deadline=after is not None)
        flows[name] = Flow(
            id=name,
            kind=kind,
            path=used,
            size=row["size"],
            arrival=row["arrival"],
            deadline=row["arrival"] + after if kind == "deadline" else None,
        )
    return list(flows.values())


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
