"""How numbers are said: durations, shares and counts, with an en dash for what is not known."""

from __future__ import annotations

import math
from collections.abc import Sequence

DASH = "\u2013"
MINUS = "\u2212"

DurationUnit = tuple[str, float]

UNITS: tuple[DurationUnit, ...] = (
    ("s", 1.0),
    ("min", 60.0),
    ("h", 3600.0),
    ("d", 86400.0),
)

NARROW = frozenset("iljtfr.,:;|!'()[] I1/")
WIDE = frozenset("mwMWQOGD@%—")


def duration_unit(typical_s: float) -> DurationUnit:
    """The unit in which a duration of about `typical_s` seconds reads as 1 to 100."""
    size = abs(typical_s)
    if not math.isfinite(size) or size < 120.0:
        return UNITS[0]
    if size < 2 * 3600.0:
        return UNITS[1]
    return UNITS[2] if size < 3 * 86400.0 else UNITS[3]


def number_text(value: float, digits: int = 3) -> str:
    """`value` with about `digits` significant digits and thousands commas; en dash if unknown."""
    if not math.isfinite(value):
        return DASH
    if value == 0:
        return "0"
    before = math.floor(math.log10(abs(value))) + 1
    text = f"{value:,.{min(max(digits - before, 0), 6)}f}"
    return text.replace("-", MINUS)


def duration_text(seconds: float, digits: int = 3) -> str:
    """Seconds as `42.1 s`, `12.3 min`, `3.46 h` or `1.24 d`; en dash if unknown."""
    if not math.isfinite(seconds):
        return DASH
    if seconds == 0:
        return "0 s"
    name, size = duration_unit(seconds)
    return f"{number_text(seconds / size, digits)} {name}"


def share_text(share: float, digits: int = 3) -> str:
    """A share of one as a percentage; en dash if unknown."""
    if not math.isfinite(share):
        return DASH
    if share == 0:
        return "0 %"
    # Below a hundredth of a percent only its smallness matters.
    if abs(share) < 0.0001:
        return "< 0.01 %"
    return f"{number_text(share * 100.0, digits)} %"


def count_text(value: float) -> str:
    """A count with thousands commas; means over seeds keep one decimal; en dash if unknown."""
    if not math.isfinite(value):
        return DASH
    if value == round(value) or abs(value) >= 1000:
        return f"{value:,.0f}".replace("-", MINUS)
    return number_text(value)


def clean(text: object) -> str:
    """`text` without what XML 1.0 cannot carry (control characters, lone surrogates)."""
    return "".join(
        c
        if c in "\t\n" or ("\x20" <= c < "\ud800") or ("\ue000" <= c <= "\ufffd") or c > "\uffff"
        else "\ufffd"
        for c in str(text)
    )


def text_width(text: str, size: float = 12.0) -> float:
    """About how many pixels wide `text` is at a font size; errs on the wide side."""
    units = 0.0
    for char in text:
        if char in NARROW:
            units += 0.36
        elif char in WIDE or ord(char) > 0x2E80:
            units += 0.98
        else:
            units += 0.66 if char.isupper() else 0.58
    return units * size


def shorten(text: str, width: float, size: float = 12.0) -> str:
    """`text` cut in the middle with an ellipsis so that it fits in `width` pixels."""
    if text_width(text, size) <= width:
        return text
    for keep in range(len(text) - 1, 1, -1):
        head = (keep + 1) // 2
        cut = f"{text[:head]}…{text[len(text) - (keep - head) :]}"
        if text_width(cut, size) <= width:
            return cut
    return "…"


def common_unit(values_s: Sequence[float]) -> DurationUnit:
    """One unit for a whole column of durations: that of its middle value."""
    known = sorted(v for v in values_s if math.isfinite(v) and v > 0)
    return duration_unit(known[len(known) // 2]) if known else UNITS[0]
