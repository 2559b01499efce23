"""`packaging/constraints.txt` pins, with hashes, all that a cluster needs to be installed."""

from __future__ import annotations

import re
import runpy
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
ENTRY = re.compile(r"^(\S+)==(\S+)(?: ; (.+?))? \\$")
HASH = re.compile(r"^ {4}--hash=sha256:[0-9a-f]{64}(?: \\)?$")


def locked() -> list[tuple[Requirement, int]]:
    """The pinned packages, each with the number of its hashes."""
    found: list[tuple[Requirement, int]] = []
    for line in (ROOT / "packaging" / "constraints.txt").read_text().splitlines():
        if entry := ENTRY.match(line):
            marker = f"; {entry[3]}" if entry[3] else ""
            found.append((Requirement(f"{entry[1]}=={entry[2]}{marker}"), 0))
        elif HASH.match(line):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            assert line.startswith("#"), line
    return found


def needed() -> list[Requirement]:
    """What the project itself asks for in a cluster."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return [Requirement(x) for x in [*project["dependencies"], *extras["daemon"], *extras["agent"]]]


def pins() -> dict[str, str]:
    """The versions for this Python, by name."""
    here = [r for r, _ in locked() if r.marker is None or r.marker.evaluate()]
    return {canonicalize_name(r.name): next(iter(r.specifier)).version for r in here}


def test_every_package_has_a_hash() -> None:
    found = locked()
    assert len(found) > 20
    assert [str(each) for each, hashes in found if not hashes] == []


def test_the_pinned_versions_are_those_that_the_project_allows() -> None:
    versions = pins()
    for each in needed():
        assert each.specifier.contains(versions[canonicalize_name(each.name)]), str(each)


def test_what_the_packages_need_is_pinned_too() -> None:
    versions, seen = pins(), set[str]()
    todo = [(each.name, each.extras) for each in needed()]
    while todo:
        name, extras = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        assert canonicalize_name(name) in versions, f"{name}: run packaging/lock.sh"
        try:
            requires = distribution(name).requires or ()
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed here")
        for text in requires:
            each = Requirement(text)
            wanted = [{"extra": extra} for extra in (*extras, "")]
            if each.marker is None or any(each.marker.evaluate(extra) for extra in wanted):
                todo.append((each.name, each.extras))
    assert len(seen) > 20


def test_every_package_has_a_lowest_version_that_the_tests_can_be_run_with() -> None:
    """`.ci/lowest.py` makes constraints of them."""
    lowest = runpy.run_path(str(ROOT / ".ci" / "lowest.py"))["lowest"]()
    assert {canonicalize_name(Requirement(each).name) for each in lowest} >= {
        canonicalize_name(each.name) for each in needed()
    }
