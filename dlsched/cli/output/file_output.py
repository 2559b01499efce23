"""Files that commands write: whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dlsched.core.errors import DlschedError
from dlsched.system.output_files import appearing_whole


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
