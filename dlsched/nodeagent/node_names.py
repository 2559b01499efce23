"""Node names in short: `n1,n2,n3,gpu07` is `n[1-3],gpu07`."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NUMBERED = re.compile(r"^(.*?)(\d+)$")


def compact(names: Iterable[str]) -> str:
    """A host list as training scripts and Slurm's tools read it; order kept, runs folded."""
    groups: list[tuple[str, list[str]]] = []
    for name in names:
        match = _NUMBERED.match(name)
        head, number = (match.group(1), match.group(2)) if match else (name, "")
        if groups and number and groups[-1][0] == head and groups[-1][1]:
            groups[-1][1].append(number)
        else:
            groups.append((head, [number] if number else []))
    return ",".join(_folded(head, numbers) for head, numbers in groups)


def _folded(head: str, numbers: list[str]) -> str:
    if not numbers:
        return head
    if len(numbers) == 1:
        return head + numbers[0]
    spans: list[list[str]] = []
    for number in numbers:
        last = spans[-1][-1] if spans else None
        if last is not None and _follows(last, number):
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    texts = [span[0] if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans]
    return f"{head}[{','.join(texts)}]"


def _follows(last: str, number: str) -> bool:
    """Whether two numbers are neighbours in a range: 08, 09 or 9, 10, but not 9, 010."""
    padded = last.startswith("0") or number.startswith("0")
    return int(last) + 1 == int(number) and (len(last) == len(number) or not padded)
