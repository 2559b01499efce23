"""The domain that this machine belongs to, from its name and its files: no server is asked."""

from __future__ import annotations

import socket
from functools import cache
from pathlib import Path

RESOLVER = Path("/etc/resolv.conf")


@cache
def own_domain(resolver: Path = RESOLVER) -> str:
    """The domain in this machine's full name, or the first one in which it looks names up."""
    domain = socket.gethostname().partition(".")[2]
    if domain:
        return domain.lower()
    try:
        lines = resolver.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for words in map(str.split, lines):
        if len(words) > 1 and words[0] in ("domain", "search"):
            return words[1].strip(".").lower()
    return ""
