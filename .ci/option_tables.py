"""The tables of options in docs/policies, from the code.

    python .ci/option_tables.py --write     # brings them up to date; a test holds them

A table stands under a heading "Options of NAME".
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from dlsched.core.options import describe
from dlsched.policies.registry import STAGES, find, names

PAGES = Path(__file__).parent.parent / "docs" / "policies"
TABLE = re.compile(r"^(#+ Options of (\S+)\n(?:(?!#|\|).*\n)*)((?:\|.*\n)*)", re.M)


def tables_in(text: str) -> list[tuple[str, str]]:
    """Each part that a page has a table of, with the table."""
    return [(found[2], found[3]) for found in TABLE.finditer(text)]


def table_of(name: str) -> str:
    """The options of a part as a Markdown table."""
    parts = (find(s, name) for s in STAGES if name in [*names(s), *names(s, for_tests=True)])
    rows = [
        [f"`{each.name}`", each.kind, f"`{each.default}`", each.doc]
        for each in describe(next(parts).Options)
    ]
    lines = [["option", "kind", "default", "meaning"], ["---"] * 4, *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    for page in PAGES.glob("*.md"):
        page.write_text(TABLE.sub(lambda found: found[1] + table_of(found[2]), page.read_text()))
