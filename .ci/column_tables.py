"""The tables of docs/columns.md, from the code.

    python .ci/column_tables.py --write     # brings them up to date; a test holds them

A table stands under the heading that `TABLES` names.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from dlsched.core.context import RoundContext
from dlsched.core.units import UNIT_COLUMNS, Units
from dlsched.jobs.fields import COLUMNS, FURTHER
from dlsched.policies.registry import STAGES, find, names

PAGE = Path(__file__).parent.parent / "docs" / "columns.md"


def _doc(owner: type, name: str) -> str:
    lines = (inspect.getdoc(getattr(owner, name)) or "").splitlines()
    return lines[0] if lines else ""


def _kind(name: str) -> list[str]:
    dtype, unknown = UNIT_COLUMNS[name]
    return [{"f": "float", "i": "int"}[dtype().dtype.kind], f"{unknown:g}".replace("nan", "NaN")]


def asked() -> Iterator[list[str]]:
    """Columns that users ask for."""
    yield ["column", "type", "not said", "`dlsched submit`", "trace", "meaning"]
    for name, (field, column) in COLUMNS.items():
        words = ", ".join(f"`{option.words[-1]}`" for option in field.options)
        trace = f"`{field.csv}`" if field.csv else ""
        yield [f"`{name}`", *_kind(name), words, trace, column.doc]


def kept() -> Iterator[list[str]]:
    """Columns that the world keeps."""
    yield ["column", "type", "at first", "meaning"]
    for name in UNIT_COLUMNS:
        if name not in COLUMNS:
            yield [f"`{name}`", *_kind(name), _doc(Units, name)]


def derived() -> Iterator[list[str]]:
    """Columns that are worked out when they are read."""
    yield ["column", "meaning"]
    for name, value in vars(Units).items():
        if isinstance(value, property) and name not in UNIT_COLUMNS:
            yield [f"`{name}`", _doc(Units, name)]


def further() -> Iterator[list[str]]:
    """Columns that only some parts know, read with `units.extra("name")`."""
    yield ["column", "meaning"]
    for name, field in FURTHER.items():
        said = field.options[0].help if field.options else ""
        yield [f"`{name}`", said]


def moment() -> Iterator[list[str]]:
    """What the context says."""
    yield ["`ctx.`", "meaning"]
    told = inspect.getdoc(RoundContext) or ""
    for name, lines in re.findall(r"^ +(\w+): ((?:.|\n {8})+)", told, re.M):
        said = " ".join(lines.split())
        yield [f"`{name}`", said[:1].upper() + said[1:]]
    for name, value in vars(RoundContext).items():
        if isinstance(value, property):
            yield [f"`{name}`", _doc(RoundContext, name)]


def needed() -> Iterator[list[str]]:
    """Which parts refuse a run without which columns."""
    yield ["stage", "part", "needs"]
    for stage in STAGES:
        for name in names(stage):
            if found := sorted(getattr(find(stage, name), "needs", ())):
                yield [stage, f"`{name}`", ", ".join(f"`{each}`" for each in found)]


TABLES = {
    "What users ask for": asked,
    "What the world keeps": kept,
    "What is worked out when it is read": derived,
    "Further columns": further,
    "What the moment says": moment,
    "Which parts need what": needed,
}
TABLE = re.compile(r"^(## (.+)\n(?:(?!#|\|).*\n)*)((?:\|.*\n)*)", re.M)


def table_of(heading: str) -> str:
    """The table under a heading of the page, as Markdown; empty where it has none."""
    if heading not in TABLES:
        return ""
    header, *rows = TABLES[heading]()
    lines = [header, ["---"] * len(header), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    PAGE.write_text(TABLE.sub(lambda found: found[1] + table_of(found[2]), PAGE.read_text()))
