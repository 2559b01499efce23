"""TOML files of a replay's inputs, with errors that name file and line."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from dlsched.core.errors import BadInput


def read_toml(path: Path) -> dict[str, Any]:
    """Read a document.

    Raises:
        BadInput: one line with the file, and the line number where the TOML itself is broken.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(_with_line(path, str(error))) from None


def _with_line(path: Path, message: str) -> str:
    """What the TOML reader says, with the line number behind the file's name."""
    found = re.search(r" \(at line (\d+), column (\d+)\)", message)
    if found is None:  # "at end of document"
        return f"{path}: not TOML: {message}"
    line, column = found.groups()
    return f"{path}:{line}: not TOML: {message.replace(found[0], '')} (column {column})"
