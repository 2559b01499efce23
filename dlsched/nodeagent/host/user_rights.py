"""Paths that a user named are for a process that has become that user, and for no other.

Such a process has the user's ids and groups and no capability. It follows no magic link of /proc
(`/proc/PID/cwd`, `root`, `fd`, ...) where the kernel can refuse them; elsewhere the kernel lets it
follow only those of the user's own processes.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence
from functools import cache

from dlsched.nodeagent.host import syscalls


def become(uid: int, gid: int, groups: Sequence[int], *, keeps: Sequence[int] = ()) -> None:
    """Make this process, which has one thread, wholly the user's.

    Args:
        uid: of the user.
        gid: the user's own group.
        groups: all groups of the user; empty: the own one.
        keeps: capabilities that remain, also over the execution of a program, if there are any.

    Raises:
        PermissionError: this process may not.
    """
    is_root = os.geteuid() == 0
    if is_root:
        if keeps:
            syscalls.keep_capabilities_over_setuid()
        os.setgroups(list(groups) or [gid])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    if os.getresuid() != (uid, uid, uid):
        raise PermissionError(errno.EPERM, "the rights of the user cannot be had")
    if uid == 0:
        return  # a job of root's
    try:
        syscalls.set_capabilities(*(keeps if is_root else ()))
    except PermissionError:  # a root that has not got these itself
        syscalls.set_capabilities()


def see_mounts_of(process: int) -> None:
    """See files where another process sees them: its mounts, and its root among these.

    Nothing changes when it has ended, or when this process may not.

    Args:
        process: a descriptor of it.

    Raises:
        OSError: this process sees something else than both.
    """
    root = _enter_mounts(process)
    if root is None:
        return
    try:  # the mounts alone have the machine's root, whatever root the process has
        os.fchdir(root)
        os.chroot(".")
    finally:
        os.close(root)


def _enter_mounts(process: int) -> int | None:
    """Enter a process's mounts; return a descriptor of its root, None when nothing has changed."""
    root = None
    try:
        with open(f"/proc/self/fdinfo/{process}", encoding="ascii") as about:
            words = dict(line.split(":", 1) for line in about)
        root = os.open(f"/proc/{int(words['Pid'])}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        signal.pidfd_send_signal(process, 0)  # it lives: until here its id was no other one's
        syscalls.setns(process, syscalls.CLONE_NEWNS)
    except (OSError, KeyError):
        if root is not None:
            os.close(root)
        return None
    return root


@cache
def refuses_magic_links() -> bool:
    """Whether the kernel can: before Linux 5.6 it cannot, and a sandbox may forbid the call."""
    try:
        os.close(syscalls.open_without_magic_links(b"/", os.O_PATH | os.O_CLOEXEC, 0))
    except OSError:
        return False
    return True


def open_path(path: str, flags: int, mode: int = 0o666) -> int:
    """Open a path that a user named, with the rights of this process; `os.open` but for the links.

    Raises:
        OSError: it cannot be opened; for a link that is not followed, the text says so.
    """
    name = os.fsencode(path)
    if b"\0" in name:
        raise OSError(errno.EINVAL, "a zero byte in its name")
    open_it = syscalls.open_without_magic_links if refuses_magic_links() else os.open
    try:
        return open_it(name, flags | os.O_CLOEXEC, mode)
    except OSError as error:
        why = os.strerror(error.errno or 0)
        if error.errno == errno.ELOOP:
            why = "it leads through links of /proc, or too many"
            if flags & os.O_NOFOLLOW and os.path.islink(name):
                why = "it is a symbolic link"
        raise OSError(error.errno, why) from None


def enter(path: str) -> None:
    """Enter a folder that a user named.

    Raises:
        OSError: the user may not, or it is not there.
    """
    fd = open_path(path, os.O_PATH | os.O_DIRECTORY)
    try:
        os.fchdir(fd)
    finally:
        os.close(fd)
