"""So many GPUs of each of several types on every node of a job: `a100:2,v100:2`.

Only a node that has GPUs of several types can give them; which of its GPUs has which type is kept
as the bits of one integer for each type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlsched.core.errors import BadInput, shorten

ByType = tuple[tuple[str, int], ...]  # types in small letters, ascending, and how many of each


def parse_by_type(what: str, text: str) -> ByType:
    """Read `TYPE:N,TYPE:N`; equal types are added up.

    Raises:
        BadInput: it does not read so, or names fewer than two types.
    """
    counts: dict[str, int] = {}
    for entry in text.lower().split(","):
        kind, _, number = entry.partition(":")
        if kind and number.isascii() and number.isdigit() and int(number):
            counts[kind] = counts.get(kind, 0) + int(number)
        else:
            counts.clear()
            break
    if len(counts) < 2:
        raise BadInput(f"{what}: {shorten(text)!r} does not read TYPE:N,TYPE:N (a100:2,v100:2)")
    return tuple(sorted(counts.items()))


def by_type_text(wanted: ByType) -> str:
    """The one spelling of a request."""
    return ",".join(f"{kind}:{count}" for kind, count in wanted)


def by_type_of(text: str) -> ByType:
    """The request that `by_type_text` wrote; nothing for an empty text."""
    entries = (entry.rpartition(":") for entry in text.split(",") if text)
    return tuple((kind, int(count)) for kind, _, count in entries)


def by_type_words(wanted: ByType) -> str:
    """A request, or what a node has, as a sentence says it: `2 a100 and 2 v100`."""
    *most, last = (f"{count} {kind}" for kind, count in wanted)
    return f"{', '.join(most)} and {last}" if most else last


def masks_by_type(types: Sequence[str]) -> dict[str, int]:
    """The GPUs of each type as bits, of the types of a node's GPUs by index."""
    masks: dict[str, int] = {}
    for gpu, kind in enumerate(types):
        masks[kind] = masks.get(kind, 0) | 1 << gpu
    return masks


def has_each(gpus: int, masks: Mapping[str, int], wanted: ByType) -> bool:
    """Are there so many of each type among some GPUs of a node?

    Args:
        gpus: as bits.
        masks: the node's GPUs of each type, as bits.
        wanted: the request.
    """
    return all((gpus & masks.get(kind, 0)).bit_count() >= count for kind, count in wanted)
