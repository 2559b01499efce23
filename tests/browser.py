"""A real browser without a screen, for tests that look at pages."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    # Nothing can be reached: a page that wants something would say so on the console.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


@pytest.fixture(scope="module")
def chromium() -> str:
    """A browser on this machine."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        found = shutil.which(name)
        if found:
            return found
    pytest.skip("no chromium on this machine: apt-get install chromium")


def browse(chromium: str, page: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """A browser that has shown a page; its profile is in the folder."""
    return subprocess.run(
        [chromium, *FLAGS, f"--user-data-dir={folder / 'profile'}", *more, page],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
