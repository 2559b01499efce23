"""The page as a browser shows it: drawn, without errors, and without any request."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from simulate.report import write_report
from simulate.results.tables import ReplayResult
from tests.browser import browse, chromium

__all__ = ["chromium"]


@pytest.mark.slow
def test_chromium_draws_every_picture_without_a_complaint(
    chromium: str, study_runs: list[ReplayResult], tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    picture = tmp_path / "report.png"
    write_report(study_runs, page)
    seen = browse(
        chromium,
        page.as_uri(),
        tmp_path,
        "--dump-dom",
        f"--screenshot={picture}",
        "--window-size=1200,1600",
    )
    assert "CONSOLE" not in seen.stderr
    drawn = re.findall(r'<svg [^>]*role="img"', page.read_text(encoding="utf-8"))
    assert len(re.findall(r'<svg [^>]*role="img"', seen.stdout)) == len(drawn)
    assert seen.stdout.count("<figure") == page.read_text(encoding="utf-8").count("<figure")
    data = picture.read_bytes()
    assert struct.unpack(">II", data[16:24]) == (1200, 1600)
    # An empty page compresses to a few kilobytes.
    assert len(data) > 40_000


def test_the_browser_refuses_what_would_leave_the_file(chromium: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_report([], page)
    planted = page.read_text(encoding="utf-8").replace(
        "</main>", '<img src="http://example.invalid/x.png"></main>'
    )
    page.write_text(planted, encoding="utf-8")
    seen = browse(chromium, page.as_uri(), tmp_path, "--dump-dom")
    assert "Content Security Policy" in seen.stderr
