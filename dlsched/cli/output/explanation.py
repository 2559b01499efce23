"""How a job's place in the order is told: a base value, the terms upon it, and their sum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dlsched.core.sums import ordered_sum

ESTIMATED = "estimate "  # before the names of the terms of a prediction
BASE = ESTIMATED + "base"


def explanation_lines(numbers: Mapping[str, float]) -> Iterator[str]:
    """The terms of a prediction, largest first, their sum, and then the policy's own numbers."""
    terms = {
        name.removeprefix(ESTIMATED): value
        for name, value in numbers.items()
        if name.startswith(ESTIMATED) and name != BASE
    }
    rest = {name: value for name, value in numbers.items() if not name.startswith(ESTIMATED)}
    rows: list[tuple[str, str]] = []
    if BASE in numbers:
        rows.append(("base", f"{numbers[BASE]:,.1f}"))
        largest_first = sorted(terms.items(), key=lambda term: -abs(term[1]))
        rows += [(name, f"{value:+,.1f}") for name, value in largest_first]
        rows.append(("predicted seconds", f"{numbers[BASE] + ordered_sum(terms.values()):,.1f}"))
    rows += [(name.replace("_", " "), f"{value:,.1f}") for name, value in rest.items()]
    width = max((len(name) for name, _ in rows), default=0)
    right = max((len(value) for _, value in rows), default=0)
    for name, value in rows:
        yield f"  {name:<{width}}  {value:>{right}}"
