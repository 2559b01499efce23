"""TOML files of a replay's inputs, with errors that name file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dlsched.core.documents import parse_toml
from dlsched.core.errors import BadInput


def read_toml(path: Path) -> dict[str, Any]:
    """Read a document.

    Raises:
        BadInput: one line with the file, and the line number where the TOML itself is broken.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
    return parse_toml(str(path), data)
