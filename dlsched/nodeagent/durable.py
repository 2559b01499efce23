"""Files that are there whole or not at all, whatever dies when."""

from __future__ import annotations

import contextlib
import os


def sync_folder(path: str) -> None:
    """Make what was created, renamed or removed in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_whole(path: str, data: bytes, *, durable: bool = True) -> None:
    """Replace a file; readers see the old or the new content."""
    temporary = f"{path}.{os.getpid()}.new"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        if durable:
            os.fsync(fd)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    finally:
        os.close(fd)
    os.rename(temporary, path)
    if durable:
        sync_folder(os.path.dirname(path))


def create_whole(path: str, data: bytes) -> bool:
    """Create a file with its content, durably; False when somebody else has created it."""
    temporary = f"{path}.{os.getpid()}.new"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        os.fsync(fd)
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    sync_folder(os.path.dirname(path))
    return True


def reserve(path: str, size: int) -> None:
    """Make a file whose blocks are there, so that filling it cannot fail for lack of space."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            if error.errno != 95:  # EOPNOTSUPP: write the blocks instead
                raise
            os.pwrite(fd, b" " * size, 0)
        os.fsync(fd)
    finally:
        os.close(fd)


def fill(reserved: str, path: str, data: bytes) -> None:
    """Give a reserved file its content and its name, durably; padded to what was reserved."""
    fd = os.open(reserved, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = max(os.fstat(fd).st_size, len(data))
        os.pwrite(fd, data.ljust(size), 0)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(reserved, path)
    sync_folder(os.path.dirname(path))


def read(path: str) -> bytes | None:
    """A file's content; None when there is no such file."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
