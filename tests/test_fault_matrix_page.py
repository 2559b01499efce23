"""The page about faults: each row is there, and each test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "fault-matrix.md").read_text()
ROWS = {
    line.split("|")[1].strip(): line
    for line in PAGE.splitlines()
    if re.match(r"\| [A-F][0-9]+ \|", line)
}
WANTED = [
    *(f"A{k}" for k in range(1, 18)),
    *(f"B{k}" for k in range(1, 10)),
    *(f"C{k}" for k in range(1, 30)),
    *(f"D{k}" for k in range(1, 15)),
]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)


@cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, functions))


def test_every_row_is_there_once() -> None:
    assert set(WANTED) <= set(ROWS)
    assert len(re.findall(r"^\| [A-F][0-9]+ \|", PAGE, re.MULTILINE)) == len(ROWS)


@pytest.mark.parametrize("row", WANTED)
def test_a_row_has_a_test_or_says_why_not(row: str) -> None:
    assert "::" in ROWS[row] or "not here, because" in ROWS[row]


@pytest.mark.parametrize("path", sorted({path for path, _ in NAMED}))
def test_every_named_test_exists(path: str) -> None:
    named = {name for file, name in NAMED if file == path}
    assert named <= names_in(path)


def test_whatever_looks_like_a_test_is_one() -> None:
    assert PAGE.count("::") == len(NAMED)
