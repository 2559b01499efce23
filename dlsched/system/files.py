"""Files that are there whole or not at all, whatever is killed when.

A temporary file is written in the same folder and then takes the name. A keeper loads this module,
so it imports little; `output_files` writes files that users name.
"""

from __future__ import annotations

import contextlib
import errno
import os

OWNER_ONLY = 0o600


def sync_folder(path: str) -> None:
    """Make durable what was created, renamed or removed in a folder."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(
    path: str,
    data: bytes,
    *,
    durable: bool = True,
    mode: int = OWNER_ONLY,
    owner: tuple[int, int] | None = None,
) -> None:
    """Give a file new content; its readers see the old or the new content, never a mixture.

    Args:
        path: of the file.
        data: the new content.
        durable: whether the content must survive a crash of the machine.
        mode: of the new file, from its first byte on.
        owner: ids of its user and group; None: those of this process.

    Raises:
        OSError: when it cannot be written; the old content is still there.
    """
    temporary = _write_beside(path, data, durable=durable, mode=mode, owner=owner)
    os.rename(temporary, path)
    if durable:
        sync_folder(os.path.dirname(path))


def create_file(path: str, data: bytes) -> bool:
    """Create a file with its content, durably.

    Returns:
        False when there is such a file already; it stays as it is.

    Raises:
        OSError: when it cannot be written.
    """
    temporary = _write_beside(path, data, durable=True, mode=OWNER_ONLY, owner=None)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    sync_folder(os.path.dirname(path))
    return True


def _write_beside(
    path: str, data: bytes, *, durable: bool, mode: int, owner: tuple[int, int] | None
) -> str:
    """Write a temporary file in the folder of `path`; return its name."""
    temporary = f"{path}.{os.getpid()}.new"
    with contextlib.suppress(FileNotFoundError):  # left by a process of the same id
        os.unlink(temporary)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, mode)
    try:
        os.fchmod(fd, mode)  # whatever the process's mask is
        if owner is not None:
            os.fchown(fd, *owner)
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
    return temporary


def reserve_file(path: str, size: int) -> None:
    """Make a file of `size` bytes with allocated blocks: filling it needs no more space.

    It may be gone after a crash of the machine.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
    try:
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:  # else write the blocks
                raise
            os.pwrite(fd, b" " * size, 0)
            os.fsync(fd)  # some systems allocate them then
    finally:
        os.close(fd)


def fill_reserved(reserved: str, path: str, data: bytes) -> None:
    """Write a reserved file's content, padded with blanks to its size, and rename it to `path`."""
    fd = os.open(reserved, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
    try:
        size = max(os.fstat(fd).st_size, len(data))
        os.pwrite(fd, data.ljust(size), 0)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.rename(reserved, path)
    sync_folder(os.path.dirname(path))


def read_if_there(path: str) -> bytes | None:
    """Return a file's content; None when there is no such file."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
