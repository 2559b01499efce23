"""Host lists as Slurm has them: `n[1-3,7]`, padded `n[01-10]`, products `a[1-2]b[3-4]`.

Command lines, configurations, traces and the job library all use this one form; the package of the
job library has this file, so it imports nothing of ours. `names_of` of `fold(names)` gives the
names again, sorted and each once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

MOST = 100_000  # hosts in one list
LONGEST = 255  # letters of a name
_PIECE = re.compile(r"([^\[\],]*)(?:\[([^\[\]]*)\])?", re.ASCII)
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?", re.ASCII)
_LAST_NUMBER = re.compile(r"(.*?)(\d{1,18})(\D*)", re.ASCII)


def names_of(text: str) -> list[str]:
    """Return the names of a list, each once, in the order written.

    Raises:
        ValueError: brackets that do not match, bad ranges, bad names, or too many of them.
    """
    found: dict[str, None] = {}
    written = 0  # a host that is named twice counts twice
    for word in _words(text):
        names = _product(word)
        written += len(names)
        if written > MOST:
            raise _too_many()
        for name in names:
            if not _NAME.fullmatch(name) or len(name) > LONGEST:
                raise _no_name(name)
            found[name] = None
    return list(found)


def fold(names: Iterable[str]) -> str:
    """Write names short: `n1,n2,n4` is `n[1-2,4]`."""
    numbered: dict[tuple[str, str, int], list[int]] = {}
    plain: list[str] = []
    for name in dict.fromkeys(names):
        match = _LAST_NUMBER.fullmatch(name)
        if match is None or set("[],") & set(name):
            plain.append(name)
            continue
        digits = match[2]
        # numbers of different lengths share a group only if none is padded
        width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        numbered.setdefault((match[1], match[3], width), []).append(int(digits))
    groups = _joined(numbered)
    told = [
        _group(before, after, width, sorted(numbers))
        for (before, after, width), numbers in groups.items()
    ]
    return ",".join(sorted(plain) + sorted(told))


def _joined(
    numbered: dict[tuple[str, str, int], list[int]],
) -> dict[tuple[str, str, int], list[int]]:
    """Padded groups take in the unpadded numbers of the same width: n08, n09, n10."""
    groups = {key: list(numbers) for key, numbers in numbered.items()}
    for before, after, width in sorted(groups, key=lambda key: (key[0], key[1], -key[2])):
        loose = groups.get((before, after, 0))
        if width and loose:
            same = [number for number in loose if len(str(number)) == width]
            groups[before, after, width] += same
            groups[before, after, 0] = [number for number in loose if number not in set(same)]
    return {key: numbers for key, numbers in groups.items() if numbers}


def _group(before: str, after: str, width: int, numbers: list[int]) -> str:
    runs = []
    for _, members in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in members]
        first, last = f"{run[0]:0{width}}", f"{run[-1]:0{width}}"
        runs.append(first if first == last else f"{first}-{last}")
    inside = ",".join(runs)
    return f"{before}[{inside}]{after}" if len(numbers) > 1 else f"{before}{inside}{after}"


def _words(text: str) -> Iterator[str]:
    """The list's members: split at the commas that stand outside of brackets."""
    word, inside = "", False
    for letter in text.strip():
        if (letter == "[" and inside) or (letter == "]" and not inside):
            raise _malformed(text)
        inside = (inside or letter == "[") and letter != "]"
        if letter == "," and not inside:
            if not word:
                raise _malformed(text)
            yield word
            word = ""
        else:
            word += letter
    if inside or not word:
        raise _malformed(text)
    yield word


def _product(word: str) -> list[str]:
    names = [""]
    for match in _PIECE.finditer(word):
        before, ranges = match[1], match[2]
        if len(before) > LONGEST:
            raise _no_name(before)
        parts = [before] if ranges is None else [before + n for n in _numbers(word, ranges)]
        if len(names) * len(parts) > MOST:
            raise _too_many()
        names = [name + part for name in names for part in parts]
        if len(names[0]) > LONGEST:
            raise _no_name(names[0])
    return names


def _numbers(word: str, ranges: str) -> list[str]:
    found: list[str] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise _malformed(word)
        first, last = match[1], match[2] or match[1]
        low, high = int(first), int(last)
        padded = first.startswith("0") and len(first) > 1
        if high < low:
            raise ValueError(f"{_short(word)}: {part!r} runs backwards")
        if padded and len(first) > len(last):
            raise _malformed(word)
        if len(found) + high - low >= MOST:
            raise _too_many()
        width = len(first) if padded else 0
        found += [f"{number:0{width}}" for number in range(low, high + 1)]
    return found


def _malformed(text: str) -> ValueError:
    return ValueError(f"{_short(text)} is not a host list (n1,n[2-4,7])")


def _no_name(text: str) -> ValueError:
    return ValueError(f"{_short(text)} is not a host name")


def _too_many() -> ValueError:
    return ValueError(f"more than {MOST:,} hosts")


def _short(text: str) -> str:
    """A text as an error quotes it: at most 60 characters."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
