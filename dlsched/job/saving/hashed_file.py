"""A file that is hashed while it is written, so that a checkpoint is not read again."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO


def write_hashed(path: Path, save: Callable[[BinaryIO], object]) -> tuple[int, str]:
    """Write a file durably; return its size in bytes and its SHA-256.

    It is read again only if `save` did not write it from the beginning to the end through the
    file: if it went back, or wrote to the descriptor, as numpy does.

    Args:
        path: of the file.
        save: writes the content to an open binary file.
    """
    raw = _HashedFile(path, "wb")
    with io.BufferedWriter(raw) as file:
        save(file)
        file.flush()
        os.fsync(file.fileno())
        size = os.fstat(file.fileno()).st_size
        digest = raw.digest.hexdigest() if raw.hashed == size and not raw.went_back else None
    return size, digest or digest_of(path)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _HashedFile(io.FileIO):
    def __init__(self, path: Path, mode: str) -> None:
        super().__init__(path, mode)
        self.digest = hashlib.sha256()
        self.hashed = 0  # bytes from the beginning
        self.went_back = False

    def write(self, data: Any, /) -> int:
        written = super().write(data)
        self.digest.update(memoryview(data).cast("B")[:written])
        self.hashed += written
        return written

    def seek(self, offset: int, origin: int = os.SEEK_SET, /) -> int:
        found = super().seek(offset, origin)
        self.went_back = self.went_back or found != self.hashed
        return found

    def truncate(self, size: int | None = None, /) -> int:
        self.went_back = True
        return super().truncate(size)
