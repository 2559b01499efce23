"""Which Slurm the commands are like."""

from __future__ import annotations

RELEASE = "24.05"


def version_text() -> str:
    """What `-V` prints."""
    from dlsched import __version__  # noqa: PLC0415

    return f"slurm {RELEASE}-compatible (dlsched {__version__})"
