"""The page of defects and the options that bring published behaviour back name each other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simulate.published.profiles import PROFILES

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "errata.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([a-z_]+)` \| ([^|]*(?:\\\|[^|]*)*) \|", re.MULTILINE)


def options() -> dict[str, set[str]]:
    """Choices of each option of a policy page, by its name; all pages together."""
    found: dict[str, set[str]] = {}
    for page in sorted((DOCS / "policies").glob("*.md")):
        for name, choices in ROW.findall(page.read_text(encoding="utf-8")):
            found.setdefault(name, set()).update(choices.split("\\|"))
    return found


OPTIONS = options()
BACK = sorted(name for name, choices in OPTIONS.items() if "artifact" in choices)


@pytest.mark.parametrize("name", BACK)
def test_an_option_that_brings_a_defect_back_is_explained(name: str) -> None:
    assert f"`{name}=artifact`" in PAGE


def test_an_option_that_the_page_names_exists() -> None:
    named = re.findall(r"`(\w+)=(\w+)`", PAGE)
    assert len(named) > 10
    for name, value in named:
        assert name == "semantics" or value in OPTIONS.get(name, set()), f"{name}={value}"


def test_a_profile_that_the_page_names_exists() -> None:
    for name in re.findall(r"semantics=([a-z-]+)", PAGE):
        assert name in PROFILES
