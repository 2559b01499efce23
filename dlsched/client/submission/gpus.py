"""GPUs asked for: `8`, `a100:8`, alternatives `a100:8|v100:8`, and Slurm's `gpu[:type]:n`."""

from __future__ import annotations

import re

from dlsched.client.submission.texts import whole_number
from dlsched.core.errors import BadInput, shorten
from dlsched.record import Record

MOST = 1_000_000
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]{0,63}", re.ASCII)


class GpuWish(Record):
    """How many, and of which types (lower case; none: any)."""

    count: int
    types: tuple[str, ...] = ()


def parse_gpus(what: str, text: str) -> GpuWish:
    """Read a number with or without a type; `|` joins types that will do as well.

    Raises:
        BadInput: malformed, or alternatives that differ in number.
    """
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
        BadInput: another resource than GPUs, GPUs of two types, or malformed.
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
    types = dict.fromkeys(kind for wish in wishes for kind in wish.types)
    if len(types) > 1:
        either = "|".join(f"{kind}:N" for kind in types)
        raise BadInput(
            f"{what}: {shorten(text)!r}: a node has GPUs of one type, so none can ever give "
            f"{' and '.join(types)}; either of them is --gpus '{either}'"
        )
    return GpuWish(count=sum(wish.count for wish in wishes), types=tuple(types))


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
