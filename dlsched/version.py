"""The version of this program: its release, and the commits since where git is there.

`RELEASE` in this folder is the only place of the release's number. A wheel, an sdist and a Debian
package carry the version that their build had in `BUILT`; a checkout counts its commits.
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent
_GIT_S = 10.0


@cache
def version() -> str:
    """The version, for example 1.2.0, or 1.2.0.post34 after 34 more commits.

    It rises with each commit, for pip and for apt. Where the commits of a checkout cannot be
    counted it ends with `+unknown`.
    """
    release = (_HERE / "RELEASE").read_text(encoding="ascii").strip()
    built = _HERE / "BUILT"
    if not (_HERE.parent / ".git").exists():
        return built.read_text(encoding="ascii").strip() if built.exists() else release
    try:
        released = _git("rev-list", "-1", "HEAD", "--", "dlsched/RELEASE")
        since = int(_git("rev-list", "--count", "HEAD", f"^{released}") if released else "0")
    except (OSError, subprocess.SubprocessError, ValueError):
        return f"{release}+unknown"
    return f"{release}.post{since}" if since else release


def _git(*words: str) -> str:
    # A build may run as another user than the one that the checkout belongs to.
    command = ["git", "-c", "safe.directory=*", "-C", str(_HERE.parent), *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_GIT_S)
    return ran.stdout.strip()
