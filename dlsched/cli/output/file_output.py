"""Files that commands write: whole or not at all; and cells that no program computes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dlsched.core.errors import BadInput, DlschedError
from dlsched.system.output_files import appearing_whole, why_not_writable


def check_writable(flag: str, path: Path) -> None:
    """Refuse an output file before long work, and not after it.

    Raises:
        BadInput: it cannot be written.
    """
    if why := why_not_writable(path):
        raise BadInput(f"{flag} {path}: {why}")


def save(chunks: Iterable[bytes], target: str) -> int:
    """Write a file under a temporary name and rename it; return its size in bytes.

    Raises:
        DlschedError: it cannot be written.
    """
    try:
        with appearing_whole(Path(target)) as part, part.open("wb") as file:
            return sum(map(file.write, chunks))
    except OSError as error:
        raise DlschedError(f"{target}: can't be written ({error.strerror or error})") from None


_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def plain_cell(value: object) -> object:
    """A cell that no program computes: a text that begins like a formula gets an apostrophe.

    Numbers stay as they are, also those that are written as text.
    """
    if not isinstance(value, str) or not value.startswith(_FORMULAS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
