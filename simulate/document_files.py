"""Documents of inputs, TOML or JSON, with errors that name file and line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlsched.core.documents import parse_document, parse_toml
from dlsched.core.errors import BadInput


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML document.

    Raises:
        BadInput: one line with the file, and the line number where the TOML itself is broken.
    """
    return parse_toml(str(path), _bytes(path))


def read_document(path: Path, *, number: Callable[[str], Any] = float) -> Any:
    """Read a document, JSON or TOML; `number` as for `parse_document`.

    Raises:
        BadInput: one line with the file, and the line number where the text itself is broken.
    """
    return parse_document(str(path), _bytes(path), number=number)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
