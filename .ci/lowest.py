"""Print, as constraints of pip, the lowest version of each package that `pyproject.toml` names.

    python .ci/lowest.py >lowest.txt && pip install --constraint lowest.txt --editable '.[dev]'

The tools of the tests themselves are left out: they belong to no installation of the project.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
TOOLS = {"dev", "docs", "torch", "frameworks", "jax"}  # and training frameworks, which are large


def lowest() -> list[str]:
    """The constraints, one for each package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *(x for e in extras.keys() - TOOLS for x in extras[e])]
    found = {}
    for wanted in map(Requirement, named):
        bounds = [each.version for each in wanted.specifier if each.operator in (">=", "==")]
        if bounds:
            found[wanted.name] = f"{wanted.name}=={bounds[0]}"
    return sorted(found.values())


if __name__ == "__main__":
    print("\n".join(lowest()))
