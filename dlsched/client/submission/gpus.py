"""GPUs asked for: `8`, `a100:8`, alternatives `a100:8|v100:8`, and Slurm's `gpu[:type]:n`.

On each node there may be so many of each of several types: `a100:2,v100:2`.
"""

from __future__ import annotations

import re

from dlsched.client.submission.texts import whole_number
from dlsched.core.errors import BadInput, shorten
from dlsched.record import Record

MOST = 1_000_000
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]{0,63}", re.ASCII)


class GpuWish(Record):
    """How many, and of which types (lower case; none: any).

    With `by_type` there are so many of each type, `a100:2,v100:2`, and `types` is empty.
    """

    count: int
    types: tuple[str, ...] = ()
    by_type: str = ""

    @property
    def text(self) -> str:
        """The text that `parse_gpus` reads so."""
        each = "|".join(f"{kind}:{self.count}" for kind in self.types)
        return self.by_type or each or str(self.count)


def parse_gpus(what: str, text: str, *, on_node: bool = False) -> GpuWish:
    """Read a number with or without a type; `|` joins types that will do as well.

    Args:
        what: names the option.
        text: to read.
        on_node: they are GPUs of each node, which may be of several types.

    Raises:
        BadInput: malformed, alternatives that differ in number, or several types that are not
            for each node.
    """
    entries = text.split(",")
    if len(entries) > 1:
        if not on_node:
            raise BadInput(
                f"{what}: {shorten(text)}: several types are said for each node: --gpus-per-node"
            )
        return _sum(what, text, [parse_gpus(what, entry) for entry in entries])
    wishes = [_one(what, part.strip(), text) for part in text.split("|")]
    counts = {wish.count for wish in wishes}
    if len(counts) > 1:
        raise BadInput(
            f"{what}: {shorten(text)}: alternatives must ask for the same number of GPUs"
        )
    if len(wishes) > 1 and not all(wish.types for wish in wishes):
        raise BadInput(f"{what}: {shorten(text)}: every alternative needs a type")
    types = dict.fromkeys(kind for wish in wishes for kind in wish.types)
    return GpuWish(count=counts.pop(), types=tuple(types))


def parse_gres(what: str, text: str) -> GpuWish:
    """Read `gpu`, `gpu:2` or `gpu:a100:2`, as Slurm's `--gres` has it; entries are added up.

    Raises:
        BadInput: another resource than GPUs, or malformed.
    """
    entries = [entry for entry in text.split(",") if entry.strip()]
    if len(entries) > 1:
        return _sum(what, text, [parse_gres(what, entry) for entry in entries])
    kind, _, rest = text.strip().removeprefix("gres:").removeprefix("gres/").partition(":")
    if kind.lower() != "gpu":
        raise BadInput(f"{what}: {shorten(text)!r}: gpu is the only resource known here")
    if not rest:
        return GpuWish(count=1)
    if _TYPE.fullmatch(rest):
        return GpuWish(count=1, types=(rest.lower(),))
    return parse_gpus(what, rest)


def _sum(what: str, text: str, wishes: list[GpuWish]) -> GpuWish:
    """The sum of several entries; of several types, so many of each.

    Raises:
        BadInput: of several types, and an entry names none or alternatives.
    """
    counts: dict[str, int] = {}
    for wish in wishes:
        for kind in wish.types:
            counts[kind] = counts.get(kind, 0) + wish.count
    total = sum(wish.count for wish in wishes)
    if len(counts) < 2:
        return GpuWish(count=total, types=tuple(counts))
    if any(len(wish.types) != 1 for wish in wishes):
        raise BadInput(
            f"{what}: {shorten(text)!r}: of several types, each entry names one (a100:2,v100:2)"
        )
    from dlsched.core.cluster.gpus_by_type import by_type_text  # noqa: PLC0415  # few say it

    some = tuple(sorted((kind, count) for kind, count in counts.items() if count))
    if len(some) < 2:
        return GpuWish(count=total, types=tuple(kind for kind, _ in some))
    return GpuWish(count=total, by_type=by_type_text(some))


def parse_share(what: str, text: str) -> float:
    """Read the part of one GPU, above 0 and below 1.

    Raises:
        BadInput: it is none.
    """
    try:
        share = float(text)
    except ValueError:
        share = float("nan")
    if not 0 < share < 1:
        raise BadInput(f"{what}: {shorten(text)!r} is not a part of a GPU (between 0 and 1)")
    return share


def _one(what: str, part: str, whole: str) -> GpuWish:
    kind, colon, number = part.rpartition(":")
    if colon and not _TYPE.fullmatch(kind):
        raise BadInput(f"{what}: {shorten(whole)!r} is not a number of GPUs (8, a100:8)")
    if not (number.isascii() and number.isdigit()):
        raise BadInput(f"{what}: {shorten(whole)!r} is not a number of GPUs (8, a100:8)")
    count = whole_number(what, number, most=MOST)
    return GpuWish(count=count, types=(kind.lower(),) if colon else ())
