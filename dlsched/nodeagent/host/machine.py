"""What names this machine's hardware, whatever disk it has."""

from __future__ import annotations

from pathlib import Path

_NAME = Path("/sys/class/dmi/id/product_uuid")  # readable by root


def machine_name() -> str:
    """Return the hardware's own name; empty where it has none, or it cannot be read."""
    try:
        return _NAME.read_text().strip().lower()
    except (OSError, UnicodeDecodeError):
        return ""
