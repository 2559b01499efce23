"""Sizes of memory: a bare number is MiB, as in Slurm; units are powers of 1024."""

from __future__ import annotations

import re

from dlsched.core.errors import BadInput, shorten

_SIZE = re.compile(r"(\d{1,18})(?:([kmgtp])(?:i?b)?)?", re.I | re.ASCII)
_POWERS = {"k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_MOST = 2**60


def memory_bytes(what: str, text: str) -> int:
    """Return bytes.

    Raises:
        BadInput: not a size, nothing, or more than fits a machine.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise BadInput(f"{what}: {shorten(text)!r} is not an amount of memory (64G, 512M)")
    number = int(match[1]) << _POWERS[(match[2] or "m").lower()]
    if number == 0:
        raise BadInput(f"{what}: 0 is no amount of memory (64G, 512M)")
    if number > _MOST:
        raise BadInput(f"{what}: {shorten(text)} is more than any node has")
    return number


def is_whole_memory(text: str) -> bool:
    """Whether this is Slurm's 0: all of a node's memory, so nothing bounds it."""
    return text.strip() in ("0", "0M", "0G")


def memory_text(amount: int) -> str:
    """Write bytes in the largest unit that leaves no fraction, else with one decimal place."""
    for unit, power in reversed(_POWERS.items()):
        if amount >= 1 << power:
            whole, rest = divmod(amount, 1 << power)
            return (
                f"{whole}{unit.upper()}"
                if not rest
                else f"{amount / (1 << power):.1f}{unit.upper()}"
            )
    return f"{amount}B"
