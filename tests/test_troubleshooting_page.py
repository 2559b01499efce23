"""`docs/troubleshooting.md`: each message that it explains is one that the program has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
ROW = re.compile(r"^\| (`.*?) \| .* \| .* \|$", re.M)
WORDS = sorted({word for row in ROW.findall(PAGE) for word in re.findall(r"`([^`]+)`", row)})


@pytest.fixture(scope="module")
def source() -> str:
    """All modules, with texts in one piece that the source has in several."""
    found = (path.read_text() for path in sorted((ROOT / "dlsched").rglob("*.py")))
    return re.sub(r'"\s*\n\s*f?"', "", "\n".join(found))


def test_the_page_explains_many_messages() -> None:
    assert len(WORDS) > 40


@pytest.mark.parametrize("word", WORDS)
def test_an_explained_message_exists(word: str, source: str) -> None:
    missing = [piece for piece in word.split("…") if piece.strip() not in source]
    assert not missing
