"""What a job wants to see of its node in a container: `/data`, `/data:/mnt`, `/data:/mnt:ro`."""

from __future__ import annotations

from typing import NamedTuple

MOST = 100
MODES = ("ro", "rw")


class Mount(NamedTuple):
    """A folder or file of the node, its place in the container, and `ro` or `rw`."""

    source: str
    target: str
    mode: str


def read_mounts(text: str) -> tuple[Mount, ...]:
    """Read a list with commas.

    Raises:
        ValueError: which one is malformed, and why.
    """
    found = []
    for piece in filter(None, (each.strip() for each in text.split(","))):
        source, _, rest = piece.partition(":")
        target, _, mode = rest.partition(":")
        if not target or target in MODES:
            target, mode = source, target or mode
        for path in (source, target):
            if not path.startswith("/") or ".." in path.split("/"):
                raise ValueError(f"{piece[:60]!r}: {path!r:.60} is no path from the root")
        if (mode or "rw") not in MODES:
            raise ValueError(f"{piece[:60]!r}: after the second : comes ro or rw")
        found.append(Mount(source, target, mode or "rw"))
    if len(found) > MOST:
        raise ValueError(f"{len(found)} mounts, at most {MOST}")
    return tuple(found)
