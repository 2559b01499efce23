"""The shape of the project itself: floors, names, docstrings, what a light command may import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("dlsched", "simulate", "benchmarks", "examples", "tests")
FLOORS = ("dlsched/core", "dlsched/policies", "simulate", "dlsched/cli")  # lowest first
TEXTS = {".py", ".md", ".toml", ".yaml", ".yml", ".proto", ".html", ".css", ".js", ""}
NAMELESS = {"utils", "util", "helpers", "helper", "common", "manager", "managers", "misc"}
# written in pieces, so that this file passes its own test
MACHINE_PATH = re.compile(r"(?<![\w.~$}/-])/" + r"(work|root|home/\w+)/")
SCRATCH_PATH = re.compile(r"(?<![\w.~$}/-])/" + r"tmp/")


def files(*roots: str) -> Iterator[Path]:
    """Every file under some folders of the project, hidden and generated ones left out."""
    for root in roots:
        for path in sorted((ROOT / root).rglob("*")):
            inside = path.relative_to(ROOT).parts
            built = any(part.startswith(".") or part == "__pycache__" for part in inside)
            if path.is_file() and not built:
                yield path


def modules(*roots: str) -> list[Path]:
    return [path for path in files(*roots) if path.suffix == ".py"]


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports anywhere in it, as folders."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.replace(".", "/") for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.replace(".", "/")


def test_no_floor_knows_of_those_above_it() -> None:
    broken = [
        f"{shown(path)} imports {name}"
        for level, floor in enumerate(FLOORS)
        for path in modules(floor)
        for name in imported(path)
        if name.startswith(FLOORS[level + 1 :])
    ]
    assert not broken


def test_import_linter_keeps_its_contracts() -> None:
    pytest.importorskip("importlinter")
    found = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as f; f()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_product_code_imports_neither_tests_nor_benchmarks() -> None:
    broken = [
        f"{shown(path)} imports {name}"
        for path in modules("dlsched", "simulate")
        for name in imported(path)
        if name.split("/")[0] in {"tests", "benchmarks", "examples"}
    ]
    assert not broken


def test_every_module_has_a_name_that_says_what_it_is() -> None:
    assert not [shown(path) for path in files(*PACKAGES) if path.stem in NAMELESS]


def test_every_module_has_a_docstring() -> None:
    silent = [
        shown(path)
        for path in modules("dlsched", "simulate", "benchmarks", "examples")
        if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def test_no_file_mentions_a_path_of_one_machine() -> None:
    tops = [path for path in ROOT.iterdir() if path.is_file() and path.suffix in TEXTS]
    broken = []
    for path in [*tops, *files(*PACKAGES, "docs", "packaging", "proto")]:
        if path.suffix not in TEXTS or path.name.startswith("."):
            continue
        patterns = [MACHINE_PATH, SCRATCH_PATH] if path.suffix == ".md" else [MACHINE_PATH]
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if any(pattern.search(line) for pattern in patterns):
                broken.append(f"{shown(path)}:{number}: {line.strip()}")
    assert not broken


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["replay", "--help"]], ids=" ".join)
def test_a_light_command_imports_nothing_heavy(words: list[str]) -> None:
    script = (
        "import sys\n"
        "from dlsched.cli.main import run\n"
        f"sys.argv = ['dlsched', *{words!r}]\n"
        "try:\n"
        "    run()\n"
        "finally:\n"
        "    print(*sys.modules, file=sys.stderr)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    loaded = set(found.stderr.split())
    assert "dlsched.cli.main" in loaded
    assert not loaded & {"numpy", "sqlalchemy", "matplotlib", "polars", "distributed"}
