"""`.changelog`: its files are entries, and a release joins them to CHANGELOG.md."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
tool: dict[str, Any] = runpy.run_path(str(ROOT / ".ci" / "changelog.py"))

BEFORE = """# Changelog

## [Unreleased]

What it is about.

### Added

- One that was there.

## [1.0.0]

### Added

- The first.
"""
AFTER = """# Changelog

## [Unreleased]

## [1.1.0]

What it is about.

### Added

- Two lines of
  a new one.
- One that was there.

### Fixed

- A fault.

## [1.0.0]

### Added

- The first.
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {
        "CHANGELOG.md": BEFORE,
        "dlsched/RELEASE": "1.0.0\n",
        ".changelog/added-two.md": "Two lines of\na new one.\n",
        ".changelog/fixed-fault.md": "A fault.\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_release_joins_the_changes_below_its_number(root: Path) -> None:
    tool["main"](["--release", "1.1.0"], root)
    assert (root / "CHANGELOG.md").read_text() == AFTER
    assert (root / "dlsched" / "RELEASE").read_text() == "1.1.0\n"
    assert list((root / ".changelog").iterdir()) == []
    tool["main"](["--release", "1.2.0"], root)  # without any change
    assert "## [Unreleased]\n\n## [1.2.0]\n\n## [1.1.0]\n" in (root / "CHANGELOG.md").read_text()


def test_a_build_has_the_changes_since_the_release(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool["main"]([], root)
    assert "- A fault.\n\n## [1.0.0]" in capsys.readouterr().out
    assert (root / "CHANGELOG.md").read_text() == BEFORE


@pytest.mark.parametrize(
    ("name", "text"),
    [("new-x.md", "x"), ("added-x.txt", "x"), ("added-x.md", "- x"), ("fixed-x.md", "x\n\ny")],
)
def test_what_is_no_entry_is_refused(root: Path, name: str, text: str) -> None:
    (root / ".changelog" / name).write_text(text)
    with pytest.raises(ValueError, match=name):
        tool["main"]([], root)


def test_the_changes_that_wait_are_entries_with_links_that_lead_somewhere() -> None:
    for texts in tool["entries"](ROOT / ".changelog").values():
        for target in re.findall(r"\]\(([^)#]+)", "\n".join(texts)):
            assert "://" in target or (ROOT / target).exists(), target
